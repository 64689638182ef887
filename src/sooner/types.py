"""The nouns of the engine. They hold data and check themselves; nothing here computes on a model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sooner.errors import InputError

Distribution = NDArray[np.float64]  # [vocabulary], sums to 1

FinishReason = Literal["stop", "length", "abort", "error"]
Kind = Literal["correction", "bonus"]
Rule = Literal["auto", "match", "rejection", "block"]
DraftTokens = int | Literal["auto"]
LONGEST_DRAFT = 16  # that "auto" ever asks for
RULES: tuple[Rule, ...] = ("auto", "match", "rejection", "block")


@dataclass(frozen=True, slots=True)
class Structured:
    """The form that an answer must have: exactly one of these.

    json_schema: a JSON schema, as text or as a mapping; its "x-guidance" may set llguidance's options, for instance
    {"whitespace_flexible": false}. json_object: any JSON object. regex: what the whole answer matches. grammar: in
    Lark's or llama.cpp's (GBNF) notation.
    """

    json_schema: str | Mapping[str, Any] | None = None
    json_object: bool = False
    regex: str | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        given = [f.name for f in fields(self) if getattr(self, f.name) not in (None, False)]
        if len(given) != 1:
            raise InputError(f"structured output has {given or 'nothing'}, must have one; known are {_names(self)}")

    @property
    def source(self) -> tuple[str, str]:
        """What it is written in, "json_schema", "regex" or "grammar", and the text."""
        if self.regex is not None:
            return "regex", self.regex
        if self.grammar is not None:
            return "grammar", self.grammar
        schema = {"type": "object"} if self.json_schema is None else self.json_schema
        return "json_schema", schema if isinstance(schema, str) else json.dumps(schema)


class Structure(Protocol):
    """A compiled `Structured` for one vocabulary. Both answers are functions of the output so far alone."""

    def allowed(self, output: Sequence[int]) -> NDArray[np.bool_] | None:
        """Which tokens [vocabulary] may come next; None after a token that was not allowed, or that ended the answer.

        Only rows of a draft that will be rejected can be there.
        """
        ...

    def forced(self, output: Sequence[int]) -> list[int]:
        """Tokens that spell what has to come next; empty where there is a choice."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when a request ends. Names and meanings follow vLLM's SamplingParams.

    temperature 0 is greedy. top_k 0 and -1, top_p 1 and min_p 0 are off. max_tokens None means "up to the context
    limit". seed None draws a fresh one for each request. stop strings end the text before them; token ids, counts and
    logprobs end with the token that completes them.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    max_tokens: int | None = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured: Structured | None = None

    def __post_init__(self) -> None:
        for name in ("stop", "bad_words"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        for name, low, high, remedy in _LIMITS:
            _check_range(name, getattr(self, name), low, high, remedy)
        _require(self.top_p > 0, "top_p", self.top_p, "above 0 and at most 1", "use 1 to switch it off")
        _require(self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "above 0", "1 is neutral")
        _require(all(self.stop), "stop", self.stop, "non-empty strings", "drop the empty string")
        _require(all(self.bad_words), "bad_words", self.bad_words, "non-empty strings", "drop the empty string")
        for token, bias in self.logit_bias.items():
            _require(token >= 0, "logit_bias token id", token, "at least 0", "use ids of the target's vocabulary")
            _check_range("logit_bias", bias, -100.0, 100.0, "OpenAI's range")
        if self.structured and self.ignore_eos:
            raise InputError("ignore_eos does not go with structured output, which ends with an end token; drop it")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InputError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}; lower one of them")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Unknown keys raise and are named, with the known ones. `structured` may be a mapping too."""
        _check_names("sampling option", values, cls)
        structured = values.get("structured")
        if isinstance(structured, Mapping):
            _check_names("option of structured output", structured, Structured)
            return cls(**{**values, "structured": Structured(**structured)})
        return cls(**values)


def _names(nouns: Any) -> str:
    return ", ".join(f.name for f in fields(nouns))


def _check_names(what: str, values: Mapping[str, Any], nouns: Any) -> None:
    if unknown := sorted(set(values) - {f.name for f in fields(nouns)}):
        raise InputError(f"unknown {what} {', '.join(unknown)}; known are {_names(nouns)}")


_INF = math.inf
_LIMITS: tuple[tuple[str, float, float, str], ...] = (
    ("n", 1, 4096, "ask for fewer samples"),
    ("temperature", 0.0, 100.0, "use 0 for greedy"),
    ("top_k", -1, _INF, "use 0 to switch it off"),
    ("top_p", 0.0, 1.0, "use 1 to switch it off"),
    ("min_p", 0.0, 1.0, "use 0 to switch it off"),
    ("repetition_penalty", 0.0, 100.0, "1 is neutral"),
    ("presence_penalty", -100.0, 100.0, "0 is neutral"),
    ("frequency_penalty", -100.0, 100.0, "0 is neutral"),
    ("min_tokens", 0, _INF, "use 0 to switch it off"),
    ("max_tokens", 0, _INF, "leave it out for the context limit"),
    ("seed", 0, 2**64 - 1, "use an unsigned 64-bit number"),
    ("logprobs", 0, 20, "OpenAI's limit; leave it out for none"),
    ("prompt_logprobs", 0, 20, "leave it out for none"),
)
_OPTIONAL = {"max_tokens", "seed", "logprobs", "prompt_logprobs"}
_WHOLE = {"n", "top_k", "min_tokens"} | _OPTIONAL


def _require(ok: bool, name: str, value: object, limit: str, remedy: str) -> None:
    if not ok:
        raise InputError(f"{name} is {value!r}, must be {limit}; {remedy}")


def _check_range(name: str, value: Any, low: float, high: float, remedy: str) -> None:
    if value is None and name in _OPTIONAL:
        return
    wanted = int if name in _WHOLE else (int, float)
    _require(isinstance(value, wanted) and not isinstance(value, bool), name, value, "a number", remedy)
    span = f"at least {low:g}" if high == _INF else f"between {low:g} and {high:g}"
    _require(low <= value <= high, name, value, span, remedy)


@dataclass(frozen=True, slots=True)
class Speculation:
    """What a request asks of the draft side. An empty `drafters` is plain decoding.

    drafters: names under which the engine knows them. draft_tokens: a number, of the first drafter every round; or
    "auto", and the policy chooses the drafter and the number for every round, none included.
    """

    drafters: tuple[str, ...] = ()
    draft_tokens: DraftTokens = "auto"
    rule: Rule = "auto"

    def __post_init__(self) -> None:
        _require(self.rule in RULES, "verify", self.rule, "one of " + ", ".join(RULES), "use auto")
        number = self.draft_tokens if isinstance(self.draft_tokens, int) else -1
        ok = self.draft_tokens == "auto" or 0 <= number <= 64
        _require(ok, "draft_tokens", self.draft_tokens, '"auto" or between 0 and 64', "auto chooses by itself")

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

    Parents come before their children. probs[i] is the distribution [vocabulary] that node i was sampled from, after
    the whole sampling road, or None where the proposal is deterministic given what is known before the draw.
    An empty draft means plain decoding.
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
    """One round of one sequence. Seconds are the sequence's share of the step: the step's time over its sequences."""

    request_id: str
    start: int  # ledger length before the round
    drafter: str  # "" when nothing was drafted
    rule: str
    reason: str  # why the plan granted what it granted
    draft: tuple[int, ...]
    accepted: int
    committed: tuple[int, ...]
    kind: Kind
    draft_s: float
    target_s: float
    verify_s: float
    commit_s: float
