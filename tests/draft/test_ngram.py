"""Prompt lookup against a search by hand, and hand-made cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.draft.ngram import NgramDrafter
from sooner.errors import InputError
from sooner.testing import check_drafter
from sooner.types import EMPTY, Draft
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


def tree(tokens: Sequence[int], limit: int, branches: int = 2, **options: int) -> Draft:
    return NgramDrafter(**options).propose([replace(ask(tokens, limit), branches=branches)])[0]


def test_a_tree_holds_what_followed_several_occurrences() -> None:
    """After matches of two tokens: 60 is right in one case of two, 50 in one of four; what comes after follows."""
    draft = tree([1, 2, 50, 1, 2, 60, 1, 2], limit=5)
    assert (draft.tokens, draft.parents) == ((60, 1, 50, 2, 1), (-1, 0, -1, 1, 2))


def test_a_tree_holds_what_followed_shorter_matches() -> None:
    draft = tree([9, 1, 2, 70, 5, 1, 2, 80, 9, 1, 2], limit=6, branches=3)
    roots = [draft.tokens[node] for node in draft.children(-1)]
    assert roots == [70, 80]


def test_a_tree_of_one_continuation_is_the_chain() -> None:
    tokens = [5, 6, 7, 8, 9, 10, 11, 7, 8]
    assert tree(tokens, limit=3) == Draft.chain(propose(tokens))


@given(tokens=few_tokens, limit=st.integers(1, 9), branches=st.integers(2, 4))
def test_a_tree_copies_from_its_own_ledger(tokens: list[int], limit: int, branches: int) -> None:
    """Every path is the copy after one occurrence, the first one that of the chain, and siblings are different."""
    draft = tree(tokens, limit, branches)
    assert len(draft) == (limit if draft else 0)
    assert len(draft.children(-1)) <= branches
    spine = draft.follow(propose(tokens, limit))
    assert bool(spine) == bool(draft)
    for root in draft.children(-1):
        path = [draft.tokens[node] for node in range(len(draft)) if root in draft.ancestors(node)]
        starts = [i for i in range(2, len(tokens)) if tokens[i - 2 : i] == tokens[-2:]]
        copies = [[(tokens[start:] * limit)[step] for step in range(len(path))] for start in starts]
        assert path in copies
    roots = [draft.tokens[node] for node in draft.children(-1)]
    assert len(set(roots)) == len(roots)


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
