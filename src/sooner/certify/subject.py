"""What is certified: a target with its drafters and prompts, and how requests reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice

from sooner.draft.protocol import Drafter
from sooner.engine.engine import Engine
from sooner.kernels.interface import PAGE
from sooner.llm import LLM
from sooner.models.decoder import Decoder
from sooner.models.tokenizer import TextStream, Tokenizer
from sooner.outputs import Completion
from sooner.types import DraftTokens, Request, RoundRecord, Rule, SamplingParams, Speculation

BATCH = 8  # the user's model is tested with so many requests at once
LONGEST_PROMPT = 256  # tokens of a user's prompt that are used, and at most half of the context
# Logits of one row in two passes of different shapes differ by less than this where kernels promise no equal bits.
ROUNDING = {"f32": 1e-3, "f16": 0.1, "bf16": 0.5}

_ids = count()


@dataclass(frozen=True, slots=True)
class Subject:
    """batch: how many requests run at once. tokenizer is None for the tiny models, which have no text."""

    decoder: Decoder
    drafters: Mapping[str, Drafter]
    prompts: Sequence[tuple[int, ...]]
    batch: int = BATCH
    tokenizer: Tokenizer | None = None
    eos: frozenset[int] = frozenset()

    @classmethod
    def of(cls, llm: LLM, prompts: Sequence[Sequence[int]]) -> Subject:
        longest = min(LONGEST_PROMPT, llm.config.context // 2)
        used = [tuple(prompt[:longest]) for prompt in prompts]
        drafters = {name: llm.engine.parts.drafters[name] for name in llm.speculation.drafters}
        return cls(llm.decoder, drafters, used, BATCH, llm.tokenizer, llm.config.eos)

    def room(self, tokens: int) -> int:
        """How long an answer can be where `tokens` are wanted: with any prompt it fits into the context."""
        return min(tokens, self.decoder.config.context // 2)

    @property
    def bound(self) -> float:
        """What two passes over one row may differ by, in logits: nothing where the kernels promise equal bits."""
        return 0.0 if self.decoder.kernels.exact_rows else ROUNDING[self.decoder.head.format]

    def text_of(self, token: int) -> str:
        return self.tokenizer.text_of(token) if self.tokenizer else ""

    def engine(
        self,
        drafters: Mapping[str, Drafter],
        longest: int,
        trace: Callable[[RoundRecord], None] | None = None,
        *,
        prefix_cache: bool = True,
    ) -> Engine:
        """An engine with room for `batch` requests of `longest` tokens, prompt and output."""
        tokenizer = self.tokenizer
        return Engine(
            self.decoder,
            drafters,
            cache_tokens=self.batch * (longest + PAGE),
            max_sequences=self.batch,
            prefix_cache=prefix_cache,
            detokenizer=(lambda: TextStream(tokenizer)) if tokenizer else None,
            trace=trace,
        )

    def request(
        self,
        prompt: tuple[int, ...],
        params: SamplingParams,
        drafter: str = "",
        k: DraftTokens = 4,
        rule: Rule = "auto",
        branches: int = 1,
    ) -> Request:
        """Greedy and sampled requests alike carry their seed; under `auto` a seed means `match`."""
        assert params.max_tokens is not None
        return Request(
            id=f"certify-{next(_ids)}",
            prompt=prompt,
            params=params,
            seed=params.seed or 0,
            seeded=True,
            speculation=Speculation((drafter,) if drafter else (), k, rule, branches),
            eos=self.eos,
            max_tokens=params.max_tokens,
        )


def run(engine: Engine, requests: Sequence[Request]) -> list[Completion]:
    """All of them at once, as far as the engine's batch allows; answers in the order of the requests."""
    answers = {request.id: Completion(0) for request in requests}
    for request in requests:
        engine.add(request)
    while engine.busy:
        for progress in engine.step():
            answers[progress.request_id].grow(progress)
    return list(answers.values())


def run_many(engine: Engine, requests: Iterator[Request]) -> Iterator[Completion]:
    """Any number of requests, answers as they come: the engine always has more of them than it can take."""
    most = 2 * engine.scheduler.max_sequences
    answers: dict[str, Completion] = {}
    while True:
        for request in islice(requests, most - len(answers)):
            answers[request.id] = Completion(0)
            engine.add(request)
        if not answers:
            return
        for progress in engine.step():
            answers[progress.request_id].grow(progress)
            if progress.finish_reason:
                yield answers.pop(progress.request_id)
