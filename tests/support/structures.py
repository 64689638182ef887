"""A vocabulary as small as the tiny engines', in which JSON can be written, and structures over it."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from sooner.models.structure import Matched, Structures
from sooner.models.tokenizer import Tokenizer
from sooner.types import Request, SamplingParams, Structured
from tests.support.engines import VOCABULARY, request

EOS = 7
MERGES = [("{", '"'), ('"', ":"), ('"', ","), ("a", "b"), ("ab", "c")]
TOKENS = ["{", "}", "[", "]", '"', ":", ",", "<|end|>", "Ġ", "Ċ", *"abcdefgh", *"0123456789", *"-.trulsn"]
TOKENS += [left + right for left, right in MERGES]

SCHEMA: dict[str, Any] = {
    "x-guidance": {"whitespace_flexible": False},
    "type": "object",
    "properties": {
        "abcde": {"type": "integer", "minimum": 0, "maximum": 999},
        "fag": {"enum": ["a", "bad", "cab"]},
        "hub": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["abcde", "fag", "hub"],
    "additionalProperties": False,
}
FORMS = {
    "schema": Structured(json_schema=SCHEMA),
    "flexible schema": Structured(json_schema={**SCHEMA, "x-guidance": {"whitespace_pattern": "[ \n]?"}}),
    "regex": Structured(regex=r"-?[0-9]{1,3}(\.[0-9]{2})?( (ab|cd)+e)?"),
    "lark": Structured(grammar='start: item ("," item)*\nitem: "abc" | "abd" | "[" start "]"'),
    "gbnf": Structured(grammar='root ::= "true" | "[" root "]" | "fals" "e"'),
}


@cache
def tokenizer() -> Tokenizer:
    assert len(TOKENS) == VOCABULARY
    backend = Backend(models.BPE(vocab={token: i for i, token in enumerate(TOKENS)}, merges=MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(TOKENS[EOS], special=True, normalized=False)])
    return Tokenizer(backend, None)


@cache
def structures() -> Structures:
    return Structures(tokenizer(), VOCABULARY, frozenset({EOS}))


def compiled(name: str) -> Matched:
    return structures().compile(FORMS[name])


def structured(name: str, prompt: list[int], drafter: str | None = None, k: int = 4, **options: Any) -> Request:
    """A request in one of FORMS; greedy for at most 60 tokens, unless told otherwise."""
    options = {"temperature": 0.0, "max_tokens": 60} | options
    rule = options.pop("rule", "auto")
    params = SamplingParams(structured=FORMS[name], **options)
    return request(prompt, params, drafter, k, rule, eos=frozenset({EOS}), structure=compiled(name))
