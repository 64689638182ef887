"""Records answers, and at every position of them what each drafter would have proposed: the input of `plan.replay`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, takewhile

from sooner.bench.workloads import Prompt
from sooner.draft.protocol import Ask, Drafter, Estimates, falls_behind
from sooner.llm import LLM
from sooner.models.runner import states
from sooner.plan.replay import Offer, Recorded, Replay
from sooner.types import LONGEST_DRAFT, Ledger, Request, SamplingParams

SLOW_STEP_S = 1e-3  # a drafter whose further token costs more is asked for fewer
FEW = 6
_keys = count(1 << 41)  # far from the engine's own


def record(
    llm: LLM, prompts: Sequence[Prompt], params: SamplingParams, progress: Callable[[str], None]
) -> list[Recorded]:
    """Answers with the policy on, which costs less and changes no token, and has live rounds correct the costs."""
    recorded = []
    for number, prompt in enumerate(prompts, 1):
        ids = prompt.token_ids(llm.tokenizer)
        answer = llm.generate([ids], params)[0].token_ids
        [request] = llm.requests(ids, params)
        offers = trace(llm, request, answer)
        recorded.append(Recorded(prompt.id, prompt.category, len(ids), len(answer), tuple(offers)))
        progress(f"{number}/{len(prompts)} {prompt.id}: {len(answer)} tokens")
    return recorded


def trace(llm: LLM, request: Request, answer: Sequence[int]) -> list[dict[str, Offer]]:
    """Of each output position what the drafters offer there; nothing at the first, which comes with the prompt."""
    parts = llm.engine.parts
    key, ledger = next(_keys), Ledger([*request.prompt, *answer[:1]], len(request.prompt))
    seen = {name: states(parts.decoder, [*request.prompt, *answer], d.taps) for name, d in parts.readers.items()}
    start = 0  # of what the drafters that read features have not seen
    offers: list[dict[str, Offer]] = [{}]
    for place in range(1, len(answer)):
        for name, reader in parts.readers.items():
            reader.observe(key, ledger.tokens, start, seen[name][start : len(ledger) - 1])
        start = len(ledger) - 1
        offers.append(
            {
                name: offer(drafter, Ask(key, request, ledger, _limit(llm, name), "match", True), answer[place:])
                for name, drafter in parts.drafters.items()
            }
        )
        ledger.tokens.append(answer[place])
        for drafter in parts.drafters.values():
            drafter.commit(key, ledger)
    for drafter in parts.drafters.values():
        drafter.forget(key)
    return offers


def offer(drafter: Drafter, ask: Ask, following: Sequence[int]) -> Offer:
    estimate = tuple(drafter.estimate(ask)) if isinstance(drafter, Estimates) else None
    [draft] = drafter.propose([ask])
    right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft.tokens, following)))
    return Offer(len(draft), right, estimate[: len(draft)] if estimate is not None else None)


def replay_of(llm: LLM, params: SamplingParams) -> Replay:
    """Under the engine's costs of the moment, one answer in flight."""
    parts, names = llm.engine.parts, llm.speculation.drafters
    behind = [name for name in names if falls_behind(parts.drafters[name])]
    return Replay(parts.planner.costs, "greedy" if params.greedy else "sampled", behind=behind)


def _limit(llm: LLM, name: str) -> int:
    slow = llm.engine.parts.planner.costs.drafter(name).step > SLOW_STEP_S
    return FEW if slow else LONGEST_DRAFT
