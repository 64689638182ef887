"""The nouns of the engine. They hold data and check themselves; nothing here computes on a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sooner.errors import InputError
from sooner.params import SamplingParams as SamplingParams
from sooner.params import Structure as Structure
from sooner.params import Structured as Structured
from sooner.params import check_range, require

Distribution = NDArray[np.float64]  # [vocabulary], sums to 1

FinishReason = Literal["stop", "length", "abort", "error"]
Kind = Literal["correction", "bonus"]
Rule = Literal["auto", "match", "rejection", "block"]
DraftTokens = int | Literal["auto"]
LONGEST_DRAFT = 16  # that "auto" ever asks for
MOST_BRANCHES = 16
RULES: tuple[Rule, ...] = ("auto", "match", "rejection", "block")


@dataclass(frozen=True, slots=True)
class Speculation:
    """What a request asks of the draft side. An empty `drafters` is plain decoding.

    drafters: names under which the engine knows them. draft_tokens: a number, of the first drafter every round; or
    "auto", and the policy chooses the drafter and the number for every round, none included. draft_branches: the most
    tokens that a draft may offer as alternatives at one place; 1 drafts chains, more spend draft_tokens on a tree.
    """

    drafters: tuple[str, ...] = ()
    draft_tokens: DraftTokens = "auto"
    rule: Rule = "auto"
    draft_branches: int = 1

    def __post_init__(self) -> None:
        require(self.rule in RULES, "verify", self.rule, "one of " + ", ".join(RULES), "use auto")
        number = self.draft_tokens if isinstance(self.draft_tokens, int) else -1
        ok = self.draft_tokens == "auto" or 0 <= number <= 64
        require(ok, "draft_tokens", self.draft_tokens, '"auto" or between 0 and 64', "auto chooses by itself")
        check_range("draft_branches", self.draft_branches, 1, MOST_BRANCHES, "1 drafts chains")
        if self.draft_branches > 1:
            self._check_tree()

    def _check_tree(self) -> None:
        asked = f"draft_branches {self.draft_branches}"
        if self.draft_tokens == "auto":
            raise InputError(f"{asked} needs a number of draft_tokens: the policy of 'auto' weighs chains; use 8, say")
        if self.rule == "block":
            raise InputError(f"verify 'block' takes chains, and {asked} drafts trees; use verify 'rejection' or 'auto'")

    @property
    def longest(self) -> int:
        """The most tokens that a round may draft."""
        return LONGEST_DRAFT if self.draft_tokens == "auto" else self.draft_tokens

    @property
    def adaptive(self) -> bool:
        return self.draft_tokens == "auto" and bool(self.drafters)


@dataclass(frozen=True, slots=True)
class Request:
    """One sample of one prompt, checked at the door. `seed` is always set; `seeded` tells whether the user set it."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    seeded: bool
    sample: int = 0
    speculation: Speculation = Speculation()
    eos: frozenset[int] = frozenset()
    bad_words: tuple[tuple[int, ...], ...] = ()
    max_tokens: int = 256
    structure: Structure | None = None
    prediction: tuple[int, ...] = ()  # what the output is expected to be like
    history: str = ""  # requests of one name may draft from one another's answers; "" from none

    @property
    def stop_ids(self) -> frozenset[int]:
        """Every token that ends the request when it is committed."""
        eos = frozenset() if self.params.ignore_eos else self.eos
        return eos | frozenset(self.params.stop_token_ids)


@dataclass(slots=True)
class Ledger:
    """Prompt and committed tokens of one sequence: the only truth. It grows and never shrinks."""

    tokens: list[int]
    prompt_length: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_length :]

    @property
    def output_length(self) -> int:
        return len(self.tokens) - self.prompt_length


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens as flat arrays; a chain has parents (-1, 0, 1, ...), a root child has parent -1.

    Parents come before their children, siblings in the order in which they were drawn. probs[i] is the distribution
    [vocabulary] that node i was sampled from, after the whole sampling road and given its earlier siblings (without
    replacement: they are impossible in it), or None where the proposal is deterministic given what is known before the
    draw. An empty draft means plain decoding.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    probs: tuple[Distribution | None, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.parents) == len(self.probs):
            raise ValueError(f"{len(self.tokens)} tokens, {len(self.parents)} parents, {len(self.probs)} probs")
        if any(not -1 <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError(f"parents {self.parents} must point to an earlier node or to -1")

    @classmethod
    def chain(cls, tokens: Sequence[int], probs: Sequence[Distribution | None] | None = None) -> Draft:
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)), tuple(probs or [None] * len(tokens)))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    def ancestors(self, node: int) -> list[int]:
        """The path from the root's child down to `node`, itself included; empty for -1."""
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def children(self, node: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """The nodes from the root's child down that spell the beginning of `tokens`, as far as there are any."""
        path: list[int] = []
        for token in tokens:
            children = self.children(path[-1] if path else -1)
            node = next((child for child in children if self.tokens[child] == token), None)
            if node is None:
                break
            path.append(node)
        return path

    @property
    def branches(self) -> int:
        """The most children of one node, the root's included."""
        return max(Counter(self.parents).values(), default=0)


EMPTY = Draft()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification decided: indices of the accepted draft nodes, then one token of the target's own."""

    path: tuple[int, ...]
    last_token: int
    kind: Kind

    def tokens(self, draft: Draft) -> list[int]:
        return [draft.tokens[node] for node in self.path] + [self.last_token]


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log-probability of a token under the target's softmax, and the likeliest tokens at its place, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round of one sequence. Seconds are the sequence's share of the step: the step's time over its sequences.

    parents: of the draft's tokens, as in `Draft`. accepted: tokens on the path that verification followed.
    """

    request_id: str
    start: int  # ledger length before the round
    drafter: str  # "" when nothing was drafted
    rule: str
    reason: str  # why the plan granted what it granted
    draft: tuple[int, ...]
    parents: tuple[int, ...]
    accepted: int
    committed: tuple[int, ...]
    kind: Kind
    draft_s: float
    target_s: float
    verify_s: float
    commit_s: float

    @property
    def proposal(self) -> Draft:
        return Draft(self.draft, self.parents, (None,) * len(self.draft))

    @property
    def depth(self) -> int:
        """Tokens of the draft's longest path."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        return max(depths, default=0)
