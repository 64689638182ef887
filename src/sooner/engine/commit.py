"""Stopping rules, on committed tokens only and in order: what a verdict adds to the ledger, and whether it ends."""

from __future__ import annotations

from sooner.engine.sequence import Piece, Sequence
from sooner.sampling.logprobs import logprob
from sooner.sampling.road import F32
from sooner.types import Draft, FinishReason, Verdict


def commit(sequence: Sequence, draft: Draft, verdict: Verdict, logits: F32) -> list[int]:
    """Appends the verdict's tokens up to the first that ends the request; returns what was committed.

    logits [1 + len(draft), V]: the rows that the verdict was made from.
    """
    committed: list[int] = []
    rows = [0, *(node + 1 for node in verdict.path)]  # the row that chose each token
    for i, token in enumerate(verdict.tokens(draft)):
        sequence.ledger.tokens.append(token)
        committed.append(token)
        sequence.finish_reason = _ends(sequence, token)
        if sequence.text and sequence.finish_reason:
            sequence.text.finish()
        origin = "accepted" if i < len(verdict.path) else verdict.kind
        top = sequence.request.params.logprobs
        score = None if top is None else logprob(logits[rows[i]], token, top)
        sequence.new_pieces.append(Piece(token, sequence.text.take() if sequence.text else "", origin, score))
        if sequence.finish_reason:
            break
    return committed


def _ends(sequence: Sequence, token: int) -> FinishReason | None:
    request, params = sequence.request, sequence.request.params
    long_enough = sequence.ledger.output_length >= params.min_tokens
    if token in request.stop_ids:
        if sequence.text and params.include_stop_str_in_output:
            sequence.text.push(token, may_stop=False)
        return "stop"
    if sequence.text and sequence.text.push(token, may_stop=long_enough):
        return "stop"
    return "length" if sequence.remaining <= 0 else None
