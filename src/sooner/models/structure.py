"""Structured output: which tokens may come next under a JSON schema, a regular expression or a grammar (llguidance).

From outside, a compiled structure is a pure function of the output so far. Inside, one matcher is moved to whatever
output is asked about, by rolling back to what both have in common: a row of a draft, the row after the next commit and
another drafter's look ahead are all one short step away.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, grammar_from
from numpy.typing import NDArray

from sooner.errors import InputError
from sooner.models.tokenizer import Tokenizer
from sooner.sampling.road import NoTokenError
from sooner.types import Structured

LIMITS = LLParserLimits(verbose_errors=False)  # llguidance's own limits; errors that show no parser state
KEPT = 64  # compiled structures that are kept for the next request with the same one
BEFORE = "\n"  # a text to encode others behind: it never joins what follows to one token


class Matched:
    """One request's structure; implements `sooner.types.Structure`.

    start: a matcher that has read nothing; it is copied and stays so. vocabulary: how many logits a row has.
    """

    def __init__(self, start: LLMatcher, vocabulary: int, eos: frozenset[int]) -> None:
        self._start = start
        self._vocabulary = vocabulary
        self._eos = eos
        self._restart()

    def allowed(self, output: Sequence[int]) -> NDArray[np.bool_] | None:
        if not self._move(output):
            return None
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(np.bool_)

    def forced(self, output: Sequence[int]) -> list[int]:
        """llguidance's tokens for the forced text, then the end token where nothing else is left."""
        try:
            tokens = self._matcher.compute_ff_tokens() if self._move(output) else []
            ends = self._move([*output, *tokens]) and self._matcher.is_stopped() and len(self._eos) == 1
        except NoTokenError:  # verification meets it too, and says so
            return []
        return [*tokens, *self._eos] if ends else tokens

    def _restart(self) -> None:
        self._matcher = self._start.deep_copy()
        self._read: list[int] = []  # what the matcher has consumed

    def _check(self) -> None:
        """Raises when a limit of llguidance is passed. A draft may lead there, so the matcher starts anew."""
        if self._matcher.is_error():
            error = self._matcher.get_error()
            self._restart()
            raise NoTokenError(f"the structure cannot be followed: {_line(error)}")

    def _move(self, output: Sequence[int]) -> bool:
        """Lets the matcher have read `output`, as far as it is allowed; False where that is not all of it."""
        common = min(len(self._read), len(output))
        while self._read[:common] != output[:common]:
            common -= 1
        self._matcher.rollback(len(self._read) - common)
        fresh = list(output[common:])
        # End tokens are not fed: a matcher that nothing can extend takes none, and no row after one counts.
        text = fresh[: next((i for i, token in enumerate(fresh) if token in self._eos), len(fresh))]
        taken = self._matcher.try_consume_tokens(text)
        self._read[common:] = text[:taken]
        self._check()
        return taken == len(fresh)


class Structures:
    """Compiles structures for one model. Making it takes about a second for a vocabulary of a hundred thousand."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, eos: frozenset[int]) -> None:
        if not eos:
            raise InputError("structured output ends with an end token, and the model has none; drop it")
        self._vocabulary, self._eos = vocabulary, eos
        self._tokens = LLTokenizer(TokenizerWrapper(_Tokens(tokenizer, min(eos))), eos_token=sorted(eos))
        self._compiled = lru_cache(KEPT)(self._compile)

    def compile(self, structured: Structured) -> Matched:
        """A structure for one request. Raises InputError for what cannot be compiled, and says why."""
        return Matched(self._compiled(*structured.source), self._vocabulary, self._eos)

    def _compile(self, kind: str, text: str) -> LLMatcher:
        try:
            grammar = grammar_from(kind, text)  # type: ignore[arg-type]
        except ValueError as error:
            raise InputError(f"{kind} {_line(text)!r} cannot be used: {_line(str(error))}") from None
        matcher = LLMatcher(self._tokens, grammar, log_level=0, limits=LIMITS)
        if matcher.is_error():
            raise InputError(f"{kind} {_line(text)!r} cannot be used: {_line(matcher.get_error())}")
        return matcher


class _Tokens:
    """A vocabulary as llguidance wants to see it."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, eos: int) -> None:
        self.eos_token_id = eos
        self.tokens = [tokenizer.token_bytes(token, skip_special=False) for token in range(tokenizer.vocabulary)]
        self.special_token_ids = sorted(tokenizer.specials)
        self._tokenizer = tokenizer
        self._before = len(tokenizer.encode(BEFORE, add_special=False))

    def __call__(self, text: bytes) -> list[int]:
        """How the text is spelled within another one; alone, it would begin with a space in some vocabularies."""
        return self._tokenizer.encode(BEFORE + text.decode(), add_special=False)[self._before :]


def _line(text: str) -> str:
    """The beginning of a text that may have many lines, as one."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:197] + "..."
