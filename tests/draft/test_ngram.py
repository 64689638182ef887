"""Prompt lookup against a search by hand, and hand-made cases."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.draft.ngram import NgramDrafter
from sooner.errors import InputError
from sooner.testing import check_drafter
from sooner.types import EMPTY
from tests.draft.asks import ask

few_tokens = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def propose(tokens: Sequence[int], limit: int = 3, **options: int) -> tuple[int, ...]:
    return NgramDrafter(**options).propose([ask(tokens, limit)])[0].tokens


def by_search(tokens: Sequence[int], limit: int, longest: int, shortest: int) -> tuple[int, ...]:
    for n in range(longest, shortest - 1, -1):
        found = [i for i in range(n, len(tokens)) if tokens[i - n : i] == tokens[-n:]]
        if found:
            text = list(tokens)
            for i in range(max(found), max(found) + limit):
                text.append(text[i])
            return tuple(text[len(tokens) :])
    return ()


def test_a_prompt_without_any_end_token() -> None:
    """CASES.md 6."""
    assert propose([5, 6, 7, 8, 9, 10, 11, 7, 8]) == (9, 10, 11)


def test_never_more_than_the_limit() -> None:
    assert propose([5, 6, 7, 8, 9, 10, 11, 7, 8], limit=1) == (9,)


@pytest.mark.parametrize("tokens", [[4], [4, 5], [4, 4], [1, 2, 3, 4, 5]])
def test_nothing_to_copy(tokens: list[int]) -> None:
    assert NgramDrafter().propose([ask(tokens)]) == [EMPTY]


def test_the_longest_match_wins_over_a_more_recent_one() -> None:
    assert propose([1, 2, 3, 50, 2, 3, 60, 1, 2, 3], limit=1) == (50,)


def test_the_most_recent_of_equal_matches_wins() -> None:
    assert propose([1, 2, 50, 1, 2, 60, 1, 2], limit=1) == (60,)


@pytest.mark.parametrize("period", [1, 2, 3, 5])
def test_a_loop_is_drafted_to_the_full_limit(period: int) -> None:
    loop = list(range(10, 10 + period))
    assert propose(loop * 3, limit=12) == tuple((loop * 12)[:12])


def test_lengths_are_checked() -> None:
    for longest, shortest in ((2, 3), (2, 0)):
        with pytest.raises(InputError, match=f"shortest is {shortest} and longest {longest}"):
            NgramDrafter(longest, shortest)


@given(tokens=few_tokens, limit=st.integers(1, 9), longest=st.integers(1, 6), data=st.data())
def test_equals_a_search(tokens: list[int], limit: int, longest: int, data: st.DataObject) -> None:
    shortest = data.draw(st.integers(1, longest))
    got = propose(tokens, limit, longest=longest, shortest=shortest)
    assert got == by_search(tokens, limit, longest, shortest)


@given(chunks=st.lists(few_tokens, min_size=1, max_size=6))
def test_grows_as_if_made_from_scratch(chunks: list[list[int]]) -> None:
    drafter, one = NgramDrafter(), ask([])
    for chunk in chunks:
        one.ledger.tokens += chunk
        assert drafter.propose([one])[0].tokens == propose(one.ledger.tokens)
        assert drafter.cached(one.key) == len(one.ledger)


def test_keeps_the_contract() -> None:
    check_drafter(lambda target: NgramDrafter())
    check_drafter(NgramDrafter(longest=3, shortest=1), seed=1)
