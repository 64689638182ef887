"""What a step costs outside the kernels: planning, layout, Python between calls, choosing, committing, text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sooner.bench.statistics import summary
from sooner.llm import LLM
from sooner.types import Request, SamplingParams

STEPS = 40
PLAYED = STEPS + 3  # tokens of output


@dataclass(slots=True)
class Clock:
    seconds: float = 0.0

    def take(self) -> float:
        taken, self.seconds = self.seconds, 0.0
        return taken


class Clocked:
    """Stands in for an object and adds up the time that its methods take; attributes are those of the object."""

    def __init__(self, inner: object, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if callable(value):
            value = _clocked(value, self._clock)
            setattr(self, name, value)  # the next call finds it without coming here
        return value


def _clocked(function: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            clock.seconds += time.perf_counter() - start

    return timed


def outside_kernels(llm: LLM, prompt: Sequence[int]) -> dict[str, Any]:
    """Plain steps of one greedy sequence at one row; milliseconds a step.

    ms: the step without what its kernels took. On `cpu` the C++ functions alone count as kernels, so that checking
    and handing over their arguments is outside; on torch, whose calls cannot be told apart, the backend's methods do.
    """
    engine, parts, clock = llm.engine, llm.engine.parts, Clock()
    kernels: Any = parts.decoder.kernels
    library = getattr(kernels, "_library", None)
    if library is None:
        engine.parts = replace(parts, decoder=replace(parts.decoder, kernels=Clocked(kernels, clock)))
    else:
        kernels._library = Clocked(library, clock)
    try:
        steps, inside = _play(llm, prompt, clock)
    finally:
        engine.parts = parts
        if library is not None:
            kernels._library = library
    return {
        "step_ms": summary(steps)["ms"],
        "kernels": "torch calls" if library is None else "C++ functions",
        "kernels_ms": summary(inside)["ms"],
        **summary([step - kernel for step, kernel in zip(steps, inside, strict=True)]),
    }


def _play(llm: LLM, prompt: Sequence[int], clock: Clock) -> tuple[list[float], list[float]]:
    """Milliseconds of each step, and of the kernels in it; the prefill and the first two steps do not count."""
    params = SamplingParams(temperature=0.0, ignore_eos=True)
    request = Request("overhead", tuple(prompt), params, seed=0, seeded=True, max_tokens=PLAYED)
    llm.engine.add(request)
    steps, inside = [], []
    while llm.engine.busy:
        clock.take()
        start = time.perf_counter()
        llm.engine.step()
        steps.append(1e3 * (time.perf_counter() - start))
        inside.append(1e3 * clock.take())
    return steps[-STEPS:], inside[-STEPS:]
