"""Part 4: what must hold of acceptance and of drafters' caches whatever the text. A fault costs speed, not tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sooner.cache.paged import pages_for
from sooner.certify.checks import Check, Job, Part
from sooner.certify.subject import Subject, run
from sooner.certify.watchers import Watched
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Ask, Drafter
from sooner.kernels.interface import PAGE
from sooner.types import Draft, Ledger, RoundRecord, Rule, SamplingParams

SHORT_PROMPT = 64  # tokens of a user's prompt: what counts is the answer
MARGIN = 0.02  # of drafted tokens that near-ties may reject where kernels promise no equal bits


@dataclass(frozen=True, slots=True)
class Amount:
    tokens: int  # of an answer
    long: int  # of a long one


QUICK = Amount(19, 48)
FULL = Amount(121, 400)


class Oracle:
    """Knows each prompt's answer, and proposes what comes next in it."""

    name = "oracle"
    samples = False

    def __init__(self, answers: Mapping[tuple[int, ...], Sequence[int]]) -> None:
        self._answers = answers

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft.chain(self._next(ask.request.prompt, ask.ledger.output_length, ask.limit)) for ask in asks]

    def _next(self, prompt: tuple[int, ...], done: int, limit: int) -> Sequence[int]:
        return self._answers[prompt][done : done + limit]

    def commit(self, key: int, ledger: Ledger) -> None:
        """Nothing to cut back."""

    def cached(self, key: int) -> int:  # noqa: ARG002
        return 0

    def forget(self, key: int) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class Speed:
    subject: Subject
    amount: Amount
    seed: int

    def _params(self, sampled: bool, tokens: int) -> SamplingParams:
        temperature = 0.8 if sampled else 0.0
        return SamplingParams(temperature=temperature, max_tokens=tokens, seed=self.seed, ignore_eos=True)

    def same_model(self, rule: Rule, sampled: bool, k: int) -> list[Check]:
        """The target drafts for itself: it must accept all."""
        prompt = self.subject.prompts[0]
        longest = len(prompt) + self.amount.tokens
        drafter = ModelDrafter(
            "the target itself", self.subject.decoder, self.subject.decoder.config.vocabulary, pages_for(longest + PAGE)
        )
        how = f"{rule}, {'sampled' if sampled else 'greedy'}, {k} drafted"
        params = self._params(sampled, self.amount.tokens)
        return [self._all_accepted(f"draft = target, {how}", drafter, [prompt], params, rule, k)]

    def oracle(self, batch: int, k: int) -> list[Check]:
        """A drafter that knows the answers."""
        prompts = list(dict.fromkeys(self.subject.prompts))[:batch]
        params = self._params(False, self.amount.tokens)
        engine = self.subject.engine({}, max(map(len, prompts)) + self.amount.tokens)
        answers = run(engine, [self.subject.request(prompt, params) for prompt in prompts])
        oracle = Oracle({prompt: answer.token_ids for prompt, answer in zip(prompts, answers)})
        name = f"oracle, batch of {len(prompts)}, {k} drafted"
        return [self._all_accepted(name, oracle, prompts, params, "match", k)]

    def _all_accepted(
        self,
        name: str,
        drafter: Drafter,
        prompts: Sequence[tuple[int, ...]],
        params: SamplingParams,
        rule: Rule,
        k: int,
    ) -> Check:
        records: list[RoundRecord] = []
        tokens = self.amount.tokens
        engine = self.subject.engine({drafter.name: drafter}, max(map(len, prompts)) + tokens, records.append)
        run(engine, [self.subject.request(prompt, params, drafter.name, k, rule) for prompt in prompts])
        rounds = [record for record in records if record.reason != "prefill"]
        drafted, accepted = sum(len(r.draft) for r in rounds), sum(r.accepted for r in rounds)
        wanted = len(prompts) * math.ceil((tokens - 1) / (k + 1))
        spare = 0 if self.subject.bound == 0 else math.ceil(MARGIN * drafted)
        ok = drafted - accepted <= spare and len(rounds) <= wanted + spare and drafted > 0
        text = (
            f"{len(rounds)} rounds for {len(prompts) * tokens} tokens, {wanted} wanted; "
            f"{accepted} of {drafted} drafted tokens accepted"
        )
        figures = {
            "rounds": len(rounds), "rounds_wanted": wanted, "drafted": drafted, "accepted": accepted, "spare": spare,
        }  # fmt: skip
        return Check(name, ok, text, figures)

    def long_run(self, name: str, k: int) -> list[Check]:
        """A long answer: nothing that a drafter loses on the way may add up."""
        inner = self.subject.drafters[name]
        watched = Watched(inner, self.subject.bound == 0 or not inner.samples, self.subject.decoder)
        prompt, tokens = self.subject.prompts[0], self.amount.long
        params = self._params(False, tokens)
        records: list[RoundRecord] = []
        engine = self.subject.engine({name: watched}, len(prompt) + tokens, records.append)
        [answer] = run(engine, [self.subject.request(prompt, params, name, k, "match")])
        quarters = [_acceptance(records[i * len(records) // 4 : (i + 1) * len(records) // 4]) for i in range(4)]
        shown = ", ".join("none drafted" if rate is None else f"{rate:.2f}" for rate in quarters)
        error = answer.stats.drafter_error
        text = error or "; ".join(watched.faults[:2]) or (
            f"{watched.rounds} drafts in {tokens} tokens: cache where it should be, {watched.compared} drafts equal to "
            f"those without a past; acceptance by quarter {shown}"
        )  # fmt: skip
        figures = {
            "drafter": name, "tokens": tokens, "drafts": watched.rounds, "compared": watched.compared,
            "faults": watched.faults, "acceptance_by_quarter": quarters,
        }  # fmt: skip
        return [Check(f"{name}, {tokens} tokens", not watched.faults and not error, text, figures)]


def _acceptance(records: Sequence[RoundRecord]) -> float | None:
    drafted = sum(len(record.draft) for record in records)
    return sum(record.accepted for record in records) / drafted if drafted else None


def speed(quick: bool, seed: int, subject: Subject) -> Part:
    amount = QUICK if quick else FULL
    subject = replace(subject, prompts=[prompt[:SHORT_PROMPT] for prompt in subject.prompts])
    checks = Speed(subject, Amount(subject.room(amount.tokens), subject.room(amount.long)), seed)
    ways: tuple[tuple[Rule, bool, int], ...] = (
        ("match", False, 3), ("match", True, 4), ("block", True, 7), ("rejection", True, 1),
    )  # fmt: skip
    jobs = [Job("draft = target", partial(checks.same_model, rule, sampled, k)) for rule, sampled, k in ways]
    jobs += [Job(f"oracle, {batch} at once", partial(checks.oracle, batch, 5)) for batch in (1, 8)]
    jobs += [Job(f"{name}, a long answer", partial(checks.long_run, name, 4)) for name in subject.drafters]
    question = (
        "Is everything accepted that the target itself or an oracle drafts, are drafters' caches where they should be, "
        "and does acceptance hold along a long answer?"
    )
    return Part("speed", question, jobs)
