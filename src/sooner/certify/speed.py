"""Part 4: what must hold of acceptance and of drafters' caches whatever the text. A fault costs speed, not tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sooner.cache.paged import pages_for
from sooner.certify.checks import Check, Job, Part
from sooner.certify.subject import Subject, run
from sooner.certify.tokens import bushy
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
    """Knows each prompt's answer, and proposes what comes next in it; in a tree with a decoy beside each token."""

    name = "oracle"
    samples = False
    trees = True

    def __init__(self, answers: Mapping[tuple[int, ...], Sequence[int]]) -> None:
        self._answers = answers

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        done = ask.ledger.output_length
        right = self._answers[ask.request.prompt][done : done + right_of(ask.limit, ask.branches)]
        return Draft.chain(right) if ask.branches == 1 else bushy(right, [abs(token - 1) for token in right])

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

    def oracle(self, batch: int, k: int, branches: int = 1) -> list[Check]:
        """A drafter that knows the answers."""
        prompts = list(dict.fromkeys(self.subject.prompts))[:batch]
        params = self._params(False, self.amount.tokens)
        engine = self.subject.engine({}, max(map(len, prompts)) + self.amount.tokens)
        answers = run(engine, [self.subject.request(prompt, params) for prompt in prompts])
        oracle = Oracle({prompt: answer.token_ids for prompt, answer in zip(prompts, answers)})
        among = " in trees of 2 branches" if branches == 2 else ""
        name = f"oracle, batch of {len(prompts)}, {k} drafted{among}"
        return [self._all_accepted(name, oracle, prompts, params, "match", k, branches)]

    def _all_accepted(
        self,
        name: str,
        drafter: Drafter,
        prompts: Sequence[tuple[int, ...]],
        params: SamplingParams,
        rule: Rule,
        k: int,
        branches: int = 1,
    ) -> Check:
        records: list[RoundRecord] = []
        tokens = self.amount.tokens
        engine = self.subject.engine({drafter.name: drafter}, max(map(len, prompts)) + tokens, records.append)
        run(engine, [self.subject.request(prompt, params, drafter.name, k, rule, branches) for prompt in prompts])
        rounds = [record for record in records if record.reason != "prefill"]
        drafted, accepted = sum(r.depth for r in rounds), sum(r.accepted for r in rounds)
        wanted = len(prompts) * rounds_of(tokens - 1, k, branches)
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


def right_of(drafted: int, branches: int) -> int:
    """How many of so many drafted tokens are right where each has decoys beside it."""
    return drafted // branches


def rounds_of(tokens: int, k: int, branches: int) -> int:
    """That many tokens take, where all that is right is accepted and no more is drafted than can be used."""
    rounds = 0
    while tokens > 0:
        tokens -= 1 + right_of(min(k, tokens - 1), branches)
        rounds += 1
    return rounds


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
    jobs += [Job("oracle in trees, 8 at once", partial(checks.oracle, 8, 10, 2))]
    jobs += [Job(f"{name}, a long answer", partial(checks.long_run, name, 4)) for name in subject.drafters]
    question = (
        "Is everything accepted that the target itself or an oracle drafts, are drafters' caches where they should be, "
        "and does acceptance hold along a long answer?"
    )
    return Part("speed", question, jobs)
