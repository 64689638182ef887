"""Part 2: plain against speculative, token for token, on the user's model or on a tiny one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from sooner.certify.checks import Check, Job, Part
from sooner.certify.divergence import first_divergence, read, read_alone
from sooner.certify.subject import Subject, run
from sooner.draft.protocol import branches
from sooner.engine.engine import Engine
from sooner.engine.stats import Stats
from sooner.outputs import Completion
from sooner.types import Draft, DraftTokens, Request, RoundRecord, Rule, SamplingParams

LENGTHS = 8  # draft lengths 1..8
WIDTHS = 3  # branches 1..3, in turn with the lengths
ADAPTIVE = 4  # the size of the batches whose draft lengths the policy chooses, where the rule allows it
ROWS = 8  # of a pass that is compared with as many passes of one row
SETTINGS = ("greedy", "top-p", "min-p", "penalties", "bias", "stop", "greedy, rejection", "greedy, block")


@dataclass(frozen=True, slots=True)
class Amount:
    """tokens: of an answer. prompt: tokens of a prompt that are used. batches: size, and how many, the settings rotated
    by one over the prompts each time. rows: prompts whose rows are read in two shapes."""

    tokens: int
    prompt: int
    batches: tuple[tuple[int, int], ...]
    rows: int


QUICK = Amount(20, 64, ((8, 1), (4, 1), (1, 2)), 2)
FULL = Amount(40, 256, ((8, 8), (4, 4), (1, 8)), 8)


@dataclass(slots=True)
class Comparison:
    """Plain answers are made alone, once each: they are the truth."""

    subject: Subject
    tokens: int
    seed: int
    _plain: dict[tuple[int, str], Completion] = field(default_factory=dict)
    _engines: dict[str, Engine] = field(default_factory=dict)
    _rounds: defaultdict[str, list[RoundRecord]] = field(default_factory=lambda: defaultdict(list))

    def plain(self, prompt: int, setting: str) -> Completion:
        if (prompt, setting) not in self._plain:
            [self._plain[prompt, setting]] = self._run("", [self.request(prompt, setting)])
        return self._plain[prompt, setting]

    def request(self, prompt: int, setting: str, drafter: str = "", k: DraftTokens = 0) -> Request:
        params, rule = self._setting(prompt, setting)
        takes_trees = drafter and rule != "block" and branches(self.subject.drafters[drafter])
        width = 1 + k % WIDTHS if takes_trees and k != "auto" else 1
        return self.subject.request(self.subject.prompts[prompt], params, drafter, k, rule, width)

    def _setting(self, prompt: int, name: str) -> tuple[SamplingParams, Rule]:
        """Options and rule. Bias and stop string come from the greedy answer, so that they change it."""
        sampled = partial(SamplingParams, max_tokens=self.tokens, seed=self.seed)
        greedy = sampled(temperature=0.0)
        if name == "stop":
            text = self.plain(prompt, "greedy").text
            middle = text[len(text) // 2 : len(text) // 2 + 4]
            return replace(greedy, stop=(middle,) if middle else ()), "auto"
        if name == "bias":
            first = self.plain(prompt, "greedy").token_ids
            return sampled(temperature=0.9, top_k=40, logit_bias={first[0]: -4.0, first[-1]: 2.0}), "auto"
        settings: dict[str, tuple[SamplingParams, Rule]] = {
            "greedy": (greedy, "auto"),
            "top-p": (sampled(temperature=0.8, top_p=0.9), "auto"),
            "min-p": (sampled(temperature=1.2, min_p=0.08), "auto"),
            "penalties": (
                sampled(temperature=0.7, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.4), "auto",
            ),
            "greedy, rejection": (greedy, "rejection"),
            "greedy, block": (greedy, "block"),
        }  # fmt: skip
        return settings[name]

    def _run(self, drafter: str, requests: Sequence[Request]) -> list[Completion]:
        """Each drafter has an engine of its own: it reads the prompts itself, its later batches find them cached."""
        if drafter not in self._engines:
            longest = max(map(len, self.subject.prompts)) + self.tokens
            self._engines[drafter] = self.subject.engine(self.subject.drafters, longest, self._note)
        self._rounds.clear()
        return run(self._engines[drafter], requests)

    def _note(self, record: RoundRecord) -> None:
        self._rounds[record.request_id].append(record)

    def batch(self, drafter: str, size: int, rotation: int) -> list[Check]:
        """`size` requests at once, with settings, prompts and draft lengths in turn; each against its plain answer."""
        names = [SETTINGS[(i + rotation) % len(SETTINGS)] for i in range(size)]
        shift = 0 if size == LENGTHS else rotation  # the largest batch meets every setting with every draft length
        prompts = [(i + shift) % len(self.subject.prompts) for i in range(size)]
        lengths = [
            self._length(p, name, size, (i + shift) % LENGTHS + 1) for i, (p, name) in enumerate(zip(prompts, names))
        ]
        requests = [self.request(p, name, drafter, k) for p, name, k in zip(prompts, names, lengths)]
        plain = [self.plain(p, name) for p, name in zip(prompts, names)]
        answers = self._run(drafter, requests)
        found = []
        for p, name, k, request, truth, answer in zip(prompts, names, lengths, requests, plain, answers):
            if difference := self._difference(request, truth, answer, self._rounds[request.id]):
                found.append({"prompt": p, "setting": name, "draft_tokens": k} | difference)
        return [self._verdict(drafter, size, rotation, names, answers, found)]

    def _length(self, prompt: int, setting: str, size: int, length: int) -> DraftTokens:
        _, rule = self._setting(prompt, setting)
        return "auto" if size == ADAPTIVE and rule == "auto" else length

    def _difference(
        self, request: Request, plain: Completion, answer: Completion, records: Sequence[RoundRecord]
    ) -> dict[str, object] | None:
        if answer.stats.drafter_error:
            return {"kind": "bug", "text": answer.stats.drafter_error}
        parted = first_divergence(self.subject, request, plain.token_ids, answer.token_ids, records)
        if parted:
            return parted.as_dict() | {"text": str(parted)}
        if (plain.text, plain.finish_reason) != (answer.text, answer.finish_reason):
            text = f"equal tokens, but {plain.text!r} ({plain.finish_reason}) became {answer.text!r}"
            return {"kind": "bug", "text": f"{text} ({answer.finish_reason})"}
        return None

    def _verdict(
        self,
        drafter: str,
        size: int,
        rotation: int,
        names: Sequence[str],
        answers: Sequence[Completion],
        found: Sequence[dict[str, object]],
    ) -> Check:
        stats = Stats()
        for answer in answers:
            stats.merge(answer.stats)
        bugs = [difference for difference in found if difference["kind"] == "bug"]
        equal = f"{size - len(found)} of {size} answers equal, {stats.output_tokens} tokens"
        drafting = f"{stats.accepted} of {stats.drafted} drafted tokens accepted"
        examples = "".join(f"; {difference['text']}" for difference in [*bugs, *found][:1])
        figures = {
            "drafter": drafter, "batch": size, "settings": list(names), "tokens": stats.output_tokens,
            "drafted": stats.drafted, "accepted": stats.accepted, "divergences": list(found),
        }  # fmt: skip
        name = f"{drafter}, batch of {size}, {names[0]}" + (" and on" if size > 1 else "")
        return Check(f"{name} (run {rotation + 1})", not bugs, f"{equal}, {drafting}{examples}", figures)

    def rows(self, prompt: int) -> list[Check]:
        """The rows of one pass, as a chain and as a tree with a decoy beside each, against as many passes of one row:
        the shapes of verification and of plain decoding."""
        tokens = [*self.subject.prompts[prompt], *self.plain(prompt, "greedy").token_ids]
        count = min(ROWS, len(tokens))
        start = len(tokens) - count + 1
        decoys = [(token + 1) % self.subject.decoder.config.vocabulary for token in tokens[start:]]
        tree = bushy(tokens[start:], decoys)
        path = [0, *(node + 1 for node in tree.follow(tokens[start:]))]
        alone = read_alone(self.subject, tokens[:start], tokens[start:])
        as_chain = read(self.subject, tokens[:start], Draft.chain(tokens[start:]))
        as_tree = read(self.subject, tokens[:start], tree)[path]
        difference = max(float(np.abs(rows - alone).max()) for rows in (as_chain, as_tree))
        bound = self.subject.bound
        margins = np.diff(np.sort(alone)[:, -2:])
        text = f"largest difference {difference:.2g} in {alone.size:,} logits, bound {bound:.2g}"
        figures = {"difference": difference, "bound": bound, "rows": count, "smallest_margin": float(margins.min())}
        return [
            Check(
                f"prompt {prompt + 1}: {count} rows in one pass, as chain and as tree, and alone",
                difference <= bound,
                text,
                figures,
            )
        ]


def bushy(path: Sequence[int], decoys: Sequence[int]) -> Draft:
    """A tree with the path in it, and before each of its tokens a decoy beside it."""
    tokens = tuple(token for pair in zip(decoys, path) for token in pair)
    parents = tuple(2 * (node // 2) - 1 for node in range(len(tokens)))
    return Draft(tokens, parents, (None,) * len(tokens))


def tokens(quick: bool, seed: int, subject: Subject) -> Part:
    amount = QUICK if quick else FULL
    subject = replace(subject, prompts=[prompt[: amount.prompt] for prompt in subject.prompts])
    comparison = Comparison(subject, subject.room(amount.tokens), seed)
    question = (
        "Are the tokens of greedy and seeded requests those of plain decoding, for every drafter, draft lengths of 1 "
        "to 8 and those that the policy chooses, alone and in batches? Where not: was it a near-tie of the target, or "
        "a bug?"
    )
    return Part("tokens", question, list(_jobs(comparison, amount)))


def _jobs(comparison: Comparison, amount: Amount) -> Iterator[Job]:
    for prompt in range(min(amount.rows, len(comparison.subject.prompts))):
        yield Job("rows of two shapes", partial(comparison.rows, prompt))
    for drafter in comparison.subject.drafters:
        for size, count in amount.batches:
            for rotation in range(count):
                yield Job(f"{drafter}, batch of {size}", partial(comparison.batch, drafter, size, rotation))
