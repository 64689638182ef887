"""Requests in, tokens out: `add`, `abort`, and `step`, which plays one round for everything that is running."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from sooner.cache.paged import pages_for
from sooner.draft.protocol import Drafter, branches
from sooner.engine.calibrate import prior
from sooner.engine.planner import Planner
from sooner.engine.scheduler import Scheduler
from sooner.engine.sequence import Piece, Sequence
from sooner.engine.stats import Stats
from sooner.engine.step import Parts, play_round
from sooner.engine.text import Detokenizer, TextState
from sooner.errors import InputError
from sooner.kernels.interface import PAGE
from sooner.models.decoder import Decoder
from sooner.plan.cost import CostTable, LiveCosts
from sooner.types import FinishReason, Logprob, Request, RoundRecord


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step added to one request; the last one carries the reason why it ended."""

    request_id: str
    pieces: tuple[Piece, ...]
    finish_reason: FinishReason | None
    stats: Stats
    error: str = ""
    prompt_logprobs: tuple[Logprob | None, ...] = ()


class Engine:
    """Owns the target's cache and the requests in flight. One thread drives it.

    cache_tokens: positions that the cache holds for all requests together. prefix_cache: whether prompts start from
    pages that earlier requests left. detokenizer makes one request's text state; without it there is no text, and stop
    strings are refused. trace is called with every round's record. costs: what passes and drafts cost on this machine
    (`calibrate.costs_for`); without it the policy begins with what the model's size suggests. on_stale is called when
    live rounds contradict them.
    """

    def __init__(
        self,
        decoder: Decoder,
        drafters: Mapping[str, Drafter] | None = None,
        *,
        cache_tokens: int,
        max_rows: int = 512,
        max_sequences: int = 64,
        prefix_cache: bool = True,
        detokenizer: Callable[[], Detokenizer] | None = None,
        trace: Callable[[RoundRecord], None] | None = None,
        costs: CostTable | None = None,
        on_stale: Callable[[], None] = lambda: None,
    ) -> None:
        cache, known = decoder.new_cache(pages_for(cache_tokens)), dict(drafters or {})
        planner = Planner(LiveCosts(costs or prior(decoder)), known, on_stale)
        self.parts = Parts(decoder, cache, known, planner)
        self.scheduler = Scheduler(cache, max_rows, max_sequences, prefix_cache, readers=self.parts.readers)
        self.trace = trace
        self._detokenizer = detokenizer
        self._sequences: dict[str, Sequence] = {}
        self._keys = count()
        self.preemptions = 0

    @property
    def busy(self) -> bool:
        return bool(self._sequences)

    @property
    def in_flight(self) -> list[str]:
        """Ids of the requests that run or wait."""
        return list(self._sequences)

    @property
    def capacity(self) -> int:
        """The most tokens, prompt and output, that one request can have."""
        return min(self.parts.decoder.config.context, self.parts.cache.pages * PAGE)

    def add(self, request: Request) -> None:
        """Takes a request in. Raises InputError for what can never run; see `Request` for its fields."""
        self.check(request)
        text = None
        if self._detokenizer:
            params = request.params
            text = TextState(self._detokenizer(), params.stop, params.include_stop_str_in_output)
        sequence = Sequence.of(next(self._keys), request, text)
        sequence.trace = self.trace
        if request.max_tokens == 0 and request.params.prompt_logprobs is None:
            sequence.finish_reason = "length"
        self._sequences[request.id] = sequence
        self.scheduler.add(sequence)

    def abort(self, request_id: str) -> None:
        """Drops a request and frees what it holds; unknown or finished ids are ignored."""
        if sequence := self._sequences.get(request_id):
            sequence.finish_reason = "abort"
            self._retire(sequence)

    def clear(self) -> None:
        """Drops every request, in whatever state a failed step left it, and asserts that the cache is whole."""
        for request_id in self.in_flight:
            self.abort(request_id)
        self.parts.cache.check_integrity([])

    def step(self) -> list[Progress]:
        """Plays one round and returns what it added. Without work it returns at once."""
        ended = [s for s in self._sequences.values() if s.finish_reason]
        for sequence in ended:
            self._retire(sequence)
        turns, preempted = self.scheduler.schedule()
        self.preemptions += len(preempted)
        for sequence in preempted:
            self._forget(sequence)
        if turns:
            play_round(self.parts, turns)
        return [self._report(s) for s in ended + [turn.sequence for turn in turns]]

    def _report(self, sequence: Sequence) -> Progress:
        pieces, sequence.new_pieces = tuple(sequence.new_pieces), []
        if sequence.finish_reason and sequence.request.id in self._sequences:
            self._retire(sequence)
        reason, scores = sequence.finish_reason, tuple(sequence.prompt_logprobs)
        return Progress(sequence.request.id, pieces, reason, sequence.stats, sequence.error, scores)

    def _retire(self, sequence: Sequence) -> None:
        self.scheduler.remove(sequence)
        self._forget(sequence)
        self.parts.planner.forget(sequence.key)
        del self._sequences[sequence.request.id]

    def _forget(self, sequence: Sequence) -> None:
        for name in sequence.request.speculation.drafters:
            self.parts.drafters[name].forget(sequence.key)

    def check(self, request: Request) -> None:
        """Raises InputError for a request that can never run. Changes nothing: any thread may call it."""
        vocabulary = self.parts.decoder.config.vocabulary
        if request.id in self._sequences:
            raise InputError(f"request id {request.id!r} is in flight already; choose another")
        if not request.prompt:
            raise InputError("the prompt has no tokens; give at least one")
        if wrong := [t for t in request.prompt if not 0 <= t < vocabulary]:
            raise InputError(f"prompt token {wrong[0]} is outside the vocabulary of {vocabulary}")
        if wrong := [t for t in request.prediction if not 0 <= t < vocabulary]:
            raise InputError(f"prediction token {wrong[0]} is outside the vocabulary of {vocabulary}")
        if wrong := [t for t in request.params.logit_bias if t >= vocabulary]:
            raise InputError(f"logit_bias token {wrong[0]} is outside the vocabulary of {vocabulary}")
        if len(request.prompt) + request.max_tokens > self.capacity:
            raise InputError(
                f"{len(request.prompt)} prompt tokens and max_tokens {request.max_tokens} exceed the limit of "
                f"{self.capacity}; shorten one of them, or raise the context (--max-context)"
            )
        spec = request.speculation
        if unknown := [name for name in spec.drafters if name not in self.parts.drafters]:
            raise InputError(f"drafter {unknown[0]!r} is not loaded; loaded are {sorted(self.parts.drafters)}")
        if spec.draft_branches > 1 and not any(branches(self.parts.drafters[name]) for name in spec.drafters):
            raise InputError(
                f"draft_branches {spec.draft_branches} needs a drafter that branches, none of {list(spec.drafters)} "
                "does; use suffix or model:..., or leave draft_branches out"
            )
        if request.params.structured and not request.structure:
            raise InputError("structured output needs a tokenizer, and this request was made without one; drop it")
        if spec.adaptive and spec.rule in ("rejection", "block") and request.seeded and not request.params.greedy:
            raise InputError(
                f"verify {spec.rule!r} with a seed repeats an answer only while draft lengths repeat, and draft_tokens "
                "'auto' follows the clock; give a number (--draft-tokens 4), leave out the seed, or use verify 'match'"
            )
        if request.params.stop and not self._detokenizer:
            raise InputError(f"stop strings {request.params.stop} need a tokenizer; use stop_token_ids")
