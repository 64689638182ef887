"""How tokens are chosen and when a request ends: options that check themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sooner.errors import InputError


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
            check_range(name, getattr(self, name), low, high, remedy)
        require(self.top_p > 0, "top_p", self.top_p, "above 0 and at most 1", "use 1 to switch it off")
        require(self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "above 0", "1 is neutral")
        require(all(self.stop), "stop", self.stop, "non-empty strings", "drop the empty string")
        require(all(self.bad_words), "bad_words", self.bad_words, "non-empty strings", "drop the empty string")
        for token, bias in self.logit_bias.items():
            require(token >= 0, "logit_bias token id", token, "at least 0", "use ids of the target's vocabulary")
            check_range("logit_bias", bias, -100.0, 100.0, "OpenAI's range")
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
_WHOLE = {"n", "top_k", "min_tokens", "draft_branches"} | _OPTIONAL


def require(ok: bool, name: str, value: object, limit: str, remedy: str) -> None:
    if not ok:
        raise InputError(f"{name} is {value!r}, must be {limit}; {remedy}")


def check_range(name: str, value: Any, low: float, high: float, remedy: str) -> None:
    if value is None and name in _OPTIONAL:
        return
    wanted = int if name in _WHOLE else (int, float)
    require(isinstance(value, wanted) and not isinstance(value, bool), name, value, "a number", remedy)
    span = f"at least {low:g}" if high == _INF else f"between {low:g} and {high:g}"
    require(low <= value <= high, name, value, span, remedy)
