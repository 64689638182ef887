"""The round: plan -> draft -> verify -> commit, for a list of sequences. Plain decoding is a round of empty drafts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import pairwise

from torch import Tensor

from sooner.cache.paged import PagedCache
from sooner.draft.protocol import Ask, Drafter, Features
from sooner.engine.commit import commit
from sooner.engine.judge import judge_by_match, judge_by_ratio, rule_for
from sooner.engine.planner import PREFILL, Planner
from sooner.engine.scheduler import Turn
from sooner.engine.sequence import switch_off
from sooner.errors import DrafterError
from sooner.models.decoder import Decoder
from sooner.models.runner import F32, Span, tapped
from sooner.plan.policy import Grant
from sooner.sampling.road import NumericalError
from sooner.types import EMPTY, Draft, RoundRecord, Rule, Verdict


@dataclass(frozen=True, slots=True)
class Parts:
    """What a round works with: the target, its cache, the drafters by name, and who decides how much they draft."""

    decoder: Decoder
    cache: PagedCache
    drafters: Mapping[str, Drafter]
    planner: Planner
    readers: Mapping[str, Features] = field(init=False)  # the drafters that read the target's features

    def __post_init__(self) -> None:
        readers = {name: drafter for name, drafter in self.drafters.items() if isinstance(drafter, Features)}
        object.__setattr__(self, "readers", readers)

    def taps(self, turns: Seq[Turn]) -> list[int]:
        """The layers whose inputs are wanted of a pass."""
        names = {name for turn in turns for name in turn.sequence.reading(self.readers)} if self.readers else ()
        return sorted({tap for name in names for tap in self.readers[name].taps})

    def samples(self, grant: Grant) -> bool:
        return bool(grant.tokens) and self.drafters[grant.drafter].samples


def play_round(parts: Parts, turns: Seq[Turn]) -> None:
    """One round for every turn. Commits to ledgers, moves caches, records; finished sequences carry their reason."""
    marks = [time.perf_counter()]
    grants = parts.planner.grant(turns)
    rules = [rule_for(turn.sequence.request, parts.samples(grant)) for turn, grant in zip(turns, grants)]
    drafts = draft(parts, turns, grants, rules)
    marks.append(time.perf_counter())
    taps = parts.taps(turns)
    rows, features = tapped(parts.decoder, parts.cache, [span(turn, d) for turn, d in zip(turns, drafts)], taps)
    logits = [choosing(turn, d, all_rows) for turn, d, all_rows in zip(turns, drafts, rows)]
    marks.append(time.perf_counter())
    verdicts = [verify(parts, turn, d, rule, chosen) for turn, d, rule, chosen in zip(turns, drafts, rules, logits)]
    marks.append(time.perf_counter())
    committed = [settle(parts, turn, d, v, chosen) for turn, d, v, chosen in zip(turns, drafts, verdicts, logits)]
    if taps:
        show(parts, turns, verdicts, committed, taps, features)
    marks.append(time.perf_counter())
    record(turns, grants, rules, drafts, verdicts, committed, marks)
    accepted = [len(verdict.path) if verdict else 0 for verdict in verdicts]
    parts.planner.learn(turns, drafts, accepted, [len(tokens) for tokens in committed], marks)


def draft(parts: Parts, turns: Seq[Turn], grants: Seq[Grant], rules: Seq[Rule]) -> list[Draft]:
    """Asks each granted drafter once for all its sequences. One that fails is switched off for them, and reported."""
    drafts = [EMPTY] * len(turns)
    for name in {grant.drafter for grant in grants if grant.tokens}:
        start = time.perf_counter()
        mine = [i for i, grant in enumerate(grants) if grant.drafter == name and grant.tokens]
        sequences = [turns[i].sequence for i in mine]
        asks = [
            Ask(s.key, s.request, s.ledger, grants[i].tokens, rules[i], spec.adaptive, spec.draft_branches)
            for i, s, spec in zip(mine, sequences, (s.request.speculation for s in sequences))
        ]
        unread = parts.planner.unread(name, sequences)
        try:
            proposed = parts.drafters[name].propose(asks)
            check(name, asks, proposed, parts.decoder.config.vocabulary)
        except Exception as error:  # whatever a user's drafter raises must not end the text
            switch_off(name, sequences, error)
        else:
            for i, proposal in zip(mine, proposed, strict=True):
                drafts[i] = proposal
            parts.planner.learn_draft(name, asks, unread, time.perf_counter() - start)
    return drafts


def check(name: str, asks: Seq[Ask], drafts: Seq[Draft], vocabulary: int) -> None:
    if len(drafts) != len(asks):
        raise DrafterError(f"drafter {name!r} returned {len(drafts)} drafts for {len(asks)} asks")
    for ask, proposal in zip(asks, drafts):
        if len(proposal) > ask.limit:
            raise DrafterError(f"drafter {name!r} proposed {len(proposal)} tokens where {ask.limit} were granted")
        if proposal.branches > ask.branches:
            raise DrafterError(f"drafter {name!r} branched into {proposal.branches}, {ask.branches} was asked for")
        wrong = [token for token in proposal.tokens if not 0 <= token < vocabulary]
        if wrong:
            raise DrafterError(f"drafter {name!r} proposed token {wrong[0]}, the target's vocabulary has {vocabulary}")


def span(turn: Turn, proposal: Draft) -> Span:
    start = turn.sequence.table.length
    tail = turn.sequence.ledger.tokens[start : start + turn.take]
    return Span(turn.sequence.table, tail, proposal, turn.take if turn.scores_prompt else int(turn.completes))


def choosing(turn: Turn, proposal: Draft, rows: F32) -> F32:
    """The rows that choose tokens, [1 + len(draft), V] or none; the prompt's own are turned into log-probabilities."""
    if turn.scores_prompt:
        turn.sequence.score_prompt(rows[: turn.take])
    return rows[-1 - len(proposal) :] if turn.completes else rows[:0]


def verify(parts: Parts, turn: Turn, proposal: Draft, rule: Rule, logits: F32) -> Verdict | None:
    """The verdict on one draft; None where no token is due. logits [1 + len(draft), V], row 0 after the ledger.

    A bad row ends the request when the ledger has reached it, as in plain decoding: until then it drops the draft.
    """
    sequence = turn.sequence
    if not turn.completes:
        return None
    if sequence.remaining == 0:  # the prompt's log-probabilities were all that was wanted
        sequence.finish_reason = "length"
        return None
    tokens, road, noise = sequence.ledger.tokens, sequence.road, sequence.noise
    try:
        if rule == "match":
            return judge_by_match(proposal, tokens, logits, road, noise, parts.decoder.kernels.choose)
        return judge_by_ratio(rule, proposal, tokens, logits, road, noise)
    except NumericalError as error:
        if proposal:
            return verify(parts, turn, EMPTY, rule, logits[:1])
        sequence.finish_reason, sequence.error = "error", str(error)
        return None


def settle(parts: Parts, turn: Turn, proposal: Draft, verdict: Verdict | None, logits: F32) -> list[int]:
    """Commits a verdict and brings the target's and the drafters' caches back to what the ledger confirms."""
    sequence = turn.sequence
    if verdict is None:
        return []
    start = len(sequence.ledger)
    committed = commit(sequence, proposal, verdict, logits)
    parts.cache.keep(sequence.table, start, verdict.path[: len(committed)])
    parts.cache.publish(sequence.table, sequence.ledger.tokens)
    assert sequence.table.length <= len(sequence.ledger), "the target's cache is ahead of the ledger"
    for name in sequence.request.speculation.drafters:
        drafter = parts.drafters[name]
        drafter.commit(sequence.key, sequence.ledger)
        assert drafter.cached(sequence.key) <= len(sequence.ledger), f"drafter {name!r} is ahead of the ledger"
    return committed


def show(
    parts: Parts,
    turns: Seq[Turn],
    verdicts: Seq[Verdict | None],
    committed: Seq[list[int]],
    taps: Seq[int],
    features: Seq[Tensor],
) -> None:
    """Hands the features of the rows that were kept to the drafters that read them. features: [rows, taps, width]."""
    for turn, verdict, new, rows in zip(turns, verdicts, committed, features):
        sequence, tokens = turn.sequence, turn.sequence.ledger.tokens
        if not verdict and turn.completes:  # the request has ended
            continue
        path = verdict.path[: len(new)] if verdict else ()
        kept = [*range(turn.take), *(turn.take + node for node in path)]
        start = sequence.table.length - len(kept)
        states = (rows if kept == list(range(len(kept))) else rows[kept])[: min(len(kept), len(tokens) - 1 - start)]
        for name in sequence.reading(parts.readers):
            drafter = parts.readers[name]
            mine = states if list(drafter.taps) == taps else states[:, [taps.index(tap) for tap in drafter.taps]]
            try:
                drafter.observe(sequence.key, tokens, start, mine)
            except Exception as error:  # whatever a user's drafter raises must not end the text
                switch_off(name, [sequence], error)


def record(
    turns: Seq[Turn],
    grants: Seq[Grant],
    rules: Seq[Rule],
    drafts: Seq[Draft],
    verdicts: Seq[Verdict | None],
    committed: Seq[list[int]],
    marks: Seq[float],
) -> None:
    """Writes each sequence's share of the round into its statistics."""
    draft_s, target_s, verify_s, commit_s = ((b - a) / len(turns) for a, b in pairwise(marks))
    for turn, grant, rule, proposal, verdict, tokens in zip(turns, grants, rules, drafts, verdicts, committed):
        entry = RoundRecord(
            request_id=turn.sequence.request.id,
            start=len(turn.sequence.ledger) - len(tokens),
            drafter=grant.drafter if proposal else "",
            rule=rule,
            reason=grant.reason if proposal or not grant.tokens else f"{grant.drafter} had nothing to propose",
            draft=proposal.tokens,
            parents=proposal.parents,
            accepted=min(len(verdict.path), len(tokens)) if verdict else 0,
            committed=tuple(tokens),
            kind=verdict.kind if verdict else "bonus",
            draft_s=draft_s,
            target_s=target_s,
            verify_s=verify_s,
            commit_s=commit_s,
        )
        turn.sequence.note(entry, prefill=grant.reason == PREFILL)
