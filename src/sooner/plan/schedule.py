"""The best draft length for each batch size, from a curve of pass times and acceptance by position, of any engine.

Arithmetic for questions without a model (`sooner plan --what-if`) and for other engines' settings (`--emit`). All
sequences draft the same number of tokens here, and a round is a draft step for each token and one pass over all rows.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import mul
from typing import Any

from sooner.errors import InputError
from sooner.plan.cost import CostTable

ENGINES = ("vllm", "llama.cpp")
FIELDS = {"drafter", "pass_ms", "draft_ms", "acceptance", "max_batch"}
WORTHWHILE = 1.02  # a smaller gain is lost in what the curve does not know


@dataclass(frozen=True, slots=True)
class Situation:
    """curve: seconds of a target pass by rows. acceptance[i]: the chance that drafted token i is accepted once those
    before it were. draft_s: seconds of one draft step for the whole batch."""

    curve: CostTable
    acceptance: tuple[float, ...]
    draft_s: float = 0.0

    def __post_init__(self) -> None:
        if wrong := [chance for chance in self.acceptance if not 0.0 <= chance <= 1.0]:
            raise InputError(f"acceptance is {wrong[0]}, must be between 0 and 1")
        if not self.acceptance:
            raise InputError("acceptance is empty; give the chance of at least the first drafted token")
        if self.draft_s < 0.0:
            raise InputError(f"the cost of a draft step is {self.draft_s}, must be at least 0")

    @property
    def longest(self) -> int:
        return len(self.acceptance)

    def tokens(self, k: int) -> float:
        """Expected tokens a round of k drafted ones: 1 + a1 + a1 a2 + ... (Leviathan et al. 2023, equation 1, with an
        acceptance of each position's own)."""
        return 1.0 + sum(accumulate(self.acceptance[:k], mul), 0.0)

    def round_seconds(self, batch: int, k: int) -> float:
        return self.curve.products(batch * (k + 1)) + k * self.draft_s

    def speedup(self, batch: int, k: int) -> float:
        return self.tokens(k) * self.curve.products(batch) / self.round_seconds(batch, k)

    def best(self, batch: int) -> int:
        """The draft length with the highest speedup, the shortest of equals; 0 where none is worthwhile."""
        k = max(range(self.longest + 1), key=lambda k: (self.speedup(batch, k), -k))
        return k if self.speedup(batch, k) >= WORTHWHILE else 0

    def break_even(self, batch: int, k: int) -> float:
        """The share of k drafted tokens that must be accepted for a round to take plain time; above 1 none can pay."""
        plain = self.curve.products(batch)
        return (self.round_seconds(batch, k) / plain - 1.0) / k

    def operations(self, k: int) -> float:
        """Target rows for each committed token: plain decoding has 1."""
        return (k + 1) / self.tokens(k)


def free_curve(verification: Sequence[float] = (1.0,)) -> CostTable:
    """A curve in units of a plain pass: verification[i] is a pass over i + 1 rows, and further rows cost as much as the
    last two say; (1,) is the theorem's free verification."""
    if not verification or min(verification) <= 0.0:
        raise InputError(f"verification costs are {list(verification)}, must be above 0; for example 1,1.1,1.2")
    rows = tuple(range(1, len(verification) + 1))
    return CostTable(rows, tuple(v / verification[0] for v in verification), head=0.0)


def measured_elsewhere(data: Any, name: str) -> tuple[Situation, dict[str, Any], int]:
    """The file behind `--emit`: a situation, the drafter's own settings in that engine, and the largest batch.

    {"pass_ms": {"1": 21.0, "4": 24.5, "16": 60.0}, "draft_ms": 0.4, "acceptance": [0.7, 0.6, 0.5], "max_batch": 16,
    "drafter": {"method": "ngram", "prompt_lookup_max": 4}}. pass_ms: a target pass by rows; draft_ms: a draft step for
    a whole batch, 0 where it is left out. Raises InputError, which names the field.
    """
    if not isinstance(data, Mapping) or set(data) - FIELDS or not {"pass_ms", "acceptance"} <= set(data):
        raise InputError(
            f"{name}: needs pass_ms and acceptance, may have {', '.join(sorted(FIELDS))}, and nothing else"
        )
    passes = {int(_number(name, "pass_ms", rows)): _number(name, "pass_ms", ms) for rows, ms in _pairs(name, data)}
    if len(passes) < 2 or min(passes) < 1 or min(passes.values()) <= 0.0:
        raise InputError(f"{name}: pass_ms needs milliseconds above 0 of at least two numbers of rows, 1 among them")
    order = sorted(passes)
    if order[0] != 1:
        raise InputError(f"{name}: pass_ms begins at {order[0]} rows; a plain pass has 1")
    acceptance = data["acceptance"]
    if not isinstance(acceptance, list):
        raise InputError(f"{name}: acceptance is {acceptance!r}, must be a list of chances by position")
    curve = CostTable(tuple(order), tuple(passes[rows] / 1e3 for rows in order), head=0.0)
    chances = tuple(_number(name, "acceptance", chance) for chance in acceptance)
    draft_s = _number(name, "draft_ms", data.get("draft_ms", 0.0)) / 1e3
    most = int(_number(name, "max_batch", data.get("max_batch", order[-1])))
    if most < 1:
        raise InputError(f"{name}: max_batch is {most}, must be at least 1")
    drafter = data.get("drafter", {})
    if not isinstance(drafter, Mapping):
        raise InputError(f"{name}: drafter is {drafter!r}, must be the drafter's settings, for example a method")
    return Situation(curve, chances, draft_s), dict(drafter), most


def schedule(situation: Situation, most: int) -> list[tuple[int, int, int]]:
    """(first batch, last batch, draft length) for batches 1 to `most`, without gaps."""
    runs = groupby(range(1, most + 1), key=situation.best)
    return [(batches[0], batches[-1], k) for k, batches in ((k, list(run)) for k, run in runs)]


def emit(engine: str, situation: Situation, drafter: Mapping[str, Any], most: int) -> str:
    """The flags of another engine's server for the best lengths; empty where drafting never pays.

    vLLM has a length for each batch size (num_speculative_tokens_per_batch_size); llama.cpp has one, which is chosen
    for `most` sequences at once.
    """
    if engine == "vllm":
        return _vllm(schedule(situation, most), drafter)
    k = situation.best(most)
    words = [word for key, value in drafter.items() for word in (f"--{key}", str(value))]
    return shlex.join([*words, "--draft-min", "0", "--draft-max", str(k)]) if k else ""


def _vllm(lengths: Sequence[tuple[int, int, int]], drafter: Mapping[str, Any]) -> str:
    longest = max(k for _, _, k in lengths)
    if not longest:
        return ""
    config = dict(drafter) | {"num_speculative_tokens": longest}
    if len(lengths) > 1:
        config["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in lengths]
    return f"--speculative-config {shlex.quote(json.dumps(config))}"


def _pairs(name: str, data: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    passes = data["pass_ms"]
    if not isinstance(passes, Mapping):
        raise InputError(f'{name}: pass_ms is {passes!r}, must be milliseconds by rows, for example {{"1": 21.0}}')
    return list(passes.items())


def _number(name: str, field: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: {field} holds {value!r}, must be a number") from None
