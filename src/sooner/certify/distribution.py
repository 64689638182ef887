"""Part 3: the law of sampled text through the real drafter and engine, enumerated over recorded rows and by chi-square.

A request's first token comes from the pass over its prompt, the next ones from a round of drafted tokens. So the joint
law of the first three tokens is that of a prompt's row and of the first two positions that a draft can decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sooner.certify.checks import Check, Job, Part
from sooner.certify.divergence import read
from sooner.certify.law_cases import LIMIT
from sooner.certify.laws import Tokens
from sooner.certify.rows import Rows, TooWideError, record
from sooner.certify.statistics import fit, sample_size
from sooner.certify.subject import Subject, run_many
from sooner.certify.tiny import tiny_subject
from sooner.certify.watchers import Recorder
from sooner.draft.protocol import Drafter, Features
from sooner.kernels.interface import PAGE
from sooner.types import Request, RoundRecord, Rule, SamplingParams

K = 2
SAMPLED: tuple[Rule, ...] = ("rejection", "block")
JOINT = 3
ROADS = {
    "narrow": SamplingParams(temperature=0.8, top_k=3, top_p=0.95, max_tokens=K + 2, ignore_eos=True),
    "penalties": SamplingParams(
        temperature=1.4, top_k=3, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.6,
        max_tokens=K + 2, ignore_eos=True,
    ),
}  # fmt: skip
# On the user's model: the four likeliest tokens are lifted above all others. So target and draft choose among the same
# few, however far they are apart, and rows can be enumerated. The prompt ends in a pattern of these tokens, so that
# lookups propose them too, and fills one page of the cache, which all samples share.
LIFTED = 4
LIFT = 100.0
SPREAD = 3.0  # nats between the first and the last of them, after the prompt
PATTERN = (0, 1, 2, 0, 1, 3, 2, 0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Amount:
    """distance: the total variation that must be seen on the tiny models. samples: of each rule on the user's model."""

    distance: float
    samples: int
    tiny: tuple[tuple[Rule, str, str], ...]  # rule, drafter, road


QUICK = Amount(0.15, 96, (("rejection", "model", "narrow"), ("block", "model", "penalties"), ("match", "", "narrow")))
FULL = Amount(
    0.04,
    2000,
    (
        ("rejection", "model", "narrow"),
        ("rejection", "model", "penalties"),
        ("block", "model", "narrow"),
        ("block", "model", "penalties"),
        ("match", "model", "penalties"),
        ("match", "", "narrow"),
    ),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One law, and where to sample it: `samples` requests that differ in their seeds alone.

    road: what people call `params`. drafter "" is plain sampling. samples None: as many as seeing a total variation of
    `distance` takes. known: recorded rows, which the cases of one drafter share.
    """

    where: str
    subject: Subject
    rule: Rule
    drafter: str
    road: str
    params: SamplingParams
    seed: int
    samples: int | None = None
    distance: float = 0.0
    known: dict[str, Rows] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        how = f"{self.rule} with {self.drafter}" if self.drafter else "plain, seeded"
        return f"{how}, road {self.road}, {self.where}"

    def check(self) -> list[Check]:
        drafter = self.subject.drafters[self.drafter] if self.drafter and self.rule != "match" else None
        if isinstance(drafter, Features):
            drafter = None  # what it draws from depends on where its draft began, so only the text's law can be known
        params = self.params if self.drafter else replace(self.params, max_tokens=JOINT)
        request = self.subject.request(self.subject.prompts[0], params, self.drafter, K, self.rule)
        try:
            rows = self._rows(request, drafter)
        except TooWideError as error:
            return [Check(self.name, False, str(error))]
        words: Counter[Tokens] = Counter()
        accepted: Counter[int] = Counter()
        if drafter is None:
            self._sample(request, rows, self.subject.drafters, words, accepted)
            return [self._joint(rows, words)]
        recorder = Recorder(drafter, rows)
        self._sample(request, rows, {drafter.name: recorder}, words, accepted)
        return [
            self._enumerated(rows),
            self._joint(rows, words),
            self._accepted(rows, accepted),
            self._same_q(recorder),
        ]

    def _rows(self, request: Request, drafter: Drafter | None) -> Rows:
        key = f"{self.drafter if drafter else ''}, {self.road}"
        if key not in self.known:
            self.known[key] = record(self.subject, request, drafter)
        return self.known[key]

    def _sample(
        self,
        request: Request,
        rows: Rows,
        drafters: Mapping[str, Drafter],
        words: Counter[Tokens],
        accepted: Counter[int],
    ) -> None:
        """Counts what the requests begin with, and how much of their first draft was accepted."""
        samples = self.samples or sample_size(self.distance, len(rows.words(JOINT)))
        start = len(request.prompt) + 1

        def trace(record: RoundRecord) -> None:
            if record.start == start:
                accepted[record.accepted] += 1

        longest = len(request.prompt) + request.max_tokens
        engine = self.subject.engine(drafters, longest, trace)
        requests = (replace(request, id=f"{i}", seed=self.seed + i) for i in range(samples))
        words.update(tuple(answer.token_ids[:JOINT]) for answer in run_many(engine, requests))

    def _enumerated(self, rows: Rows) -> Check:
        """The first round's law over the recorded rows, completed by plain sampling, against plain sampling's."""
        committed: dict[Tokens, float] = defaultdict(float)
        law = rows.rounds(self.rule, K)
        for (tokens, _), mass in law.items():
            committed[tokens] += mass
        length = K + 2
        plain, whole = rows.words(length), rows.complete(committed, length)
        distance = float(0.5 * sum(abs(whole.get(w, 0.0) - plain.get(w, 0.0)) for w in {*whole, *plain}))
        first = float(sum(mass for (_, accepted), mass in law.items() if accepted))
        mean = sum(mass * accepted for (_, accepted), mass in law.items())
        overlap = float(rows.overlap())
        ok = distance < LIMIT and (self.rule != "rejection" or abs(first - overlap) < LIMIT)
        text = (
            f"total variation {distance:.1e} over {len(rows.p)} rows of p and {len(rows.q)} of q; accepts the first "
            f"token with {first:.4f} (1 - TV is {overlap:.4f}), {mean:.3f} of {K} in all"
        )
        figures = self._figures | {
            "p_rows": len(rows.p), "q_rows": len(rows.q), "total_variation": distance, "limit": LIMIT,
            "acceptance": first, "one_minus_tv": overlap, "accepted_tokens": mean,
        }  # fmt: skip
        return Check(f"{self.name}: recorded rows, enumerated", ok, text, figures)

    def _joint(self, rows: Rows, words: Counter[Tokens]) -> Check:
        test = fit(words, rows.words(JOINT))
        return Check(f"{self.name}: first {JOINT} tokens", test.ok, str(test), self._figures | test.figures)

    def _accepted(self, rows: Rows, accepted: Counter[int]) -> Check:
        law: dict[int, float] = defaultdict(float)
        for (_, length), mass in rows.rounds(self.rule, K).items():
            law[length] += mass
        test = fit(accepted, law)
        measured = 1 - accepted[0] / max(accepted.total(), 1)
        text = f"{measured:.4f} of first drafted tokens accepted, {1 - law[0]:.4f} expected; {test}"
        figures = self._figures | test.figures | {"acceptance": measured, "expected_acceptance": 1 - law[0]}
        return Check(f"{self.name}: accepted lengths", test.ok, text, figures)

    def _same_q(self, recorder: Recorder) -> Check:
        exact = self.subject.decoder.kernels.exact_rows
        text = f"{recorder.compared:,} distributions that came with drafts, largest difference {recorder.largest:.1e}"
        ok = recorder.compared > 0 and (recorder.largest == 0.0 or not exact)
        figures = self._figures | {"compared": recorder.compared, "largest_difference": recorder.largest}
        return Check(f"{self.name}: q as recorded", ok, text, figures)

    @property
    def _figures(self) -> dict[str, Any]:
        return {"rule": self.rule, "drafter": self.drafter, "road": self.road, "where": self.where}


def distribution(quick: bool, seed: int, subject: Subject | None = None) -> Part:
    """The tiny models, and where there is one the user's model with every drafter."""
    amount = QUICK if quick else FULL
    jobs = [Job(case.name, case.check) for case in tiny_cases(amount, seed)]
    if subject:
        jobs += [Job(case.name, case.check) for case in own_cases(amount, seed, subject)]
    question = (
        "Does sampled text have the law that the target's own distributions give it? First by enumeration of recorded "
        "rows, then by chi-square over many seeds through the engine."
    )
    return Part("distribution", question, jobs)


def tiny_cases(amount: Amount, seed: int) -> list[Case]:
    subject = tiny_subject()
    return [
        Case("tiny model", subject, rule, drafter, road, ROADS[road], _first_seed(seed, i), distance=amount.distance)
        for i, (rule, drafter, road) in enumerate(amount.tiny)
    ]


def own_cases(amount: Amount, seed: int, subject: Subject) -> list[Case]:
    start = subject.prompts[0][: PAGE + 1 - len(PATTERN)]
    likeliest = np.argsort(-read(subject, start)[0], kind="stable")[:LIFTED].tolist()
    prompt = (*start, *(likeliest[i] for i in PATTERN))
    subject, params = replace(subject, prompts=[prompt]), lifting(subject, prompt, likeliest)
    ways = [(rule, name) for name in subject.drafters for rule in SAMPLED]
    known: dict[str, Rows] = {}
    return [
        Case(
            "your model", subject, rule, name, "lifted", params, _first_seed(seed, 100 + i), amount.samples, known=known
        )
        for i, (rule, name) in enumerate([*ways, ("match", "")])
    ]


def lifting(subject: Subject, prompt: tuple[int, ...], tokens: list[int]) -> SamplingParams:
    """The road of the user's model; its temperature keeps the likeliest of the tokens from being near certain."""
    return SamplingParams(
        temperature=max(float(np.ptp(read(subject, prompt)[0][tokens])) / SPREAD, 0.1),
        top_k=LIFTED - 1 if subject.bound == 0 else LIFTED,  # rounding must not decide which tokens top-k leaves
        logit_bias=dict.fromkeys(tokens, LIFT),
        max_tokens=K + 2,
        ignore_eos=True,
    )


def _first_seed(seed: int, case: int) -> int:
    """Seeds of different cases and runs never meet: a case takes fewer than 2^24, a run fewer than 2^8 cases."""
    return (seed << 32) + (case << 24)
