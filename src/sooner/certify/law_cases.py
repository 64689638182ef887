"""Part 1: every rule on every road, by enumeration over small vocabularies. Needs no model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sooner.certify.checks import Check, Job, Part
from sooner.certify.laws import Experiment, TableModel
from sooner.sampling.road import Road
from sooner.types import Rule, SamplingParams

LIMIT = 1e-12  # of the total variation: rounding alone stays thousands of times below it

ROADS = {
    "none": SamplingParams(),
    "temperature": SamplingParams(temperature=2.0),
    "greedy": SamplingParams(temperature=0.0),
    "top-k": SamplingParams(top_k=2),
    "top-p": SamplingParams(temperature=1.3, top_p=0.8),
    "min-p": SamplingParams(min_p=0.3),
    "penalties": SamplingParams(repetition_penalty=1.4, presence_penalty=0.3, frequency_penalty=0.5),
    "bias": SamplingParams(logit_bias={0: -2.0, 1: 1.5}),
    "all": SamplingParams(temperature=1.5, top_k=3, top_p=0.95, min_p=0.05, frequency_penalty=0.7, logit_bias={1: 0.5}),
}
RATIO: tuple[Rule, ...] = ("rejection", "block")
RULES: tuple[Rule, ...] = (*RATIO, "match")
TREES: tuple[Rule, ...] = ("rejection", "match")


@dataclass(frozen=True, slots=True)
class Size:
    """together: all paths of all rounds at once, which also sees draws that rounds share; else round by round. Under
    `match` rounds share their draws by design: one at a time is not what happens."""

    vocabulary: int
    k: int
    together: bool
    roads: tuple[str, ...]
    certain: bool = False
    rules: tuple[Rule, ...] = RULES
    branches: int = 1


QUICK = (
    Size(2, 1, True, tuple(ROADS)),
    Size(2, 2, True, ("temperature",), rules=RATIO),
    Size(3, 1, True, ("temperature",), rules=RATIO),
    Size(3, 1, True, ("top-k", "all")),
    Size(3, 1, True, ("none",), certain=True),
    Size(3, 2, True, ("top-k",), rules=TREES, branches=2),
    Size(3, 2, True, ("none",), certain=True, rules=TREES, branches=2),
)
FULL = (
    *QUICK,
    Size(2, 2, True, ("temperature",), rules=("match",)),
    Size(2, 2, True, ("penalties", "top-p")),
    Size(3, 1, True, ("none", "top-p", "min-p", "penalties", "bias")),
    Size(3, 1, True, ("top-k", "penalties"), certain=True),
    Size(4, 1, True, ("top-k",)),
    Size(3, 2, False, ("top-k", "top-p"), rules=RATIO),
    Size(2, 4, False, ("top-p",), rules=RATIO),
    Size(3, 3, True, ("top-k",), rules=TREES, branches=2),
    Size(3, 2, True, ("top-p", "greedy"), rules=TREES, branches=2),
    Size(3, 4, False, ("top-k",), rules=("rejection",), branches=2),
    Size(3, 2, False, ("all", "penalties"), rules=("rejection",), branches=2),
)


def laws(quick: bool) -> Part:
    question = (
        "Is the joint law of three rounds, of all that they can commit, that of plain sampling? Every path of random "
        "answers is played through the engine's own drafting and verification."
    )
    return Part("laws", question, list(_jobs(QUICK if quick else FULL)))


def _jobs(sizes: tuple[Size, ...]) -> Iterator[Job]:
    for size in sizes:
        for rule in size.rules:
            for road in size.roads:
                yield Job(f"{rule}, {road}", partial(_check, rule, size, road))


def _check(rule: Rule, size: Size, road: str) -> list[Check]:
    target, draft = TableModel(size.vocabulary, 1), TableModel(size.vocabulary, 2)
    case = Experiment(rule, target, draft, Road(ROADS[road], 1), size.k, certain=size.certain, branches=size.branches)
    law = case.exact_law() if size.together else case.composed_law()
    distance = float(case.total_variation(law))
    drafting = "certain drafts" if size.certain else "drafts"
    scope = "all paths together" if size.together else "round by round"
    shape = f" in trees of {size.branches} branches" if size.branches > 1 else ""
    name = f"{rule}, road {road}, {drafting} of {size.k}{shape}, vocabulary {size.vocabulary}"
    figures = {
        "rule": rule, "road": road, "k": size.k, "branches": size.branches, "vocabulary": size.vocabulary,
        "certain": size.certain, "together": size.together, "outcomes": len(law), "total_variation": distance,
        "limit": LIMIT,
    }  # fmt: skip
    text = f"total variation {distance:.1e} over {len(law):,} outcomes, {scope}"
    return [Check(name, distance < LIMIT, text, figures)]
