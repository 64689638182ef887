"""The suffix drafter against counting by hand, and hand-made cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.draft.suffix import COUNTED, SuffixDrafter
from sooner.errors import InputError
from sooner.testing import check_drafter
from sooner.types import EMPTY
from tests.draft.asks import ask

DOUBT = 2.0
# A ledger shorter than COUNTED cannot loop often enough for any count to be left out.
few_tokens = st.lists(st.integers(0, 2), min_size=1, max_size=COUNTED)


def propose(tokens: Sequence[int], limit: int = 3, **options: float) -> tuple[int, ...]:
    return SuffixDrafter(**options).propose([ask(tokens, limit)])[0].tokens


def estimate(tokens: Sequence[int], limit: int = 3) -> tuple[float, ...]:
    return tuple(SuffixDrafter(doubt=DOUBT).estimate(ask(tokens, limit)))


def by_counting(tokens: Sequence[int], limit: int) -> tuple[list[int], list[float]]:
    """The continuation and, for each token, its estimate given those before it."""
    text = list(tokens)
    chances: list[float] = []
    while len(chances) < limit:
        for m in range(len(text), 0, -1):
            after = [tokens[i] for i in range(m, len(tokens)) if tokens[i - m : i] == text[-m:]]
            if after:
                break
        else:
            break
        counts = Counter(after)
        best = [token for token in after if counts[token] == max(counts.values())][-1]
        chances.append(counts[best] * m / (len(after) * m + DOUBT))
        text.append(best)
    return text[len(tokens) :], chances


def test_proposes_while_it_is_sure() -> None:
    """2/(2+2) after [1, 2], then 3/(3+2), then 4/(4+2); the product falls below .25 with the third."""
    tokens = [1, 2, 3, 4, 5, 6, 1, 2]
    assert estimate(tokens) == pytest.approx((0.5, 0.3, 0.2))
    assert propose(tokens, 8, min_confidence=0.25) == (3, 4)
    assert propose(tokens, 8, min_confidence=0.0) == (3, 4, 5, 6, 1, 2, 3, 4)
    assert propose(tokens, 8, min_confidence=0.6) == ()


def test_agreement_makes_sure_and_disagreement_unsure() -> None:
    [once] = estimate([1, 2, 3, 9, 1, 2], limit=1)
    [twice] = estimate([1, 2, 3, 8, 1, 2, 3, 9, 1, 2], limit=1)
    [torn] = estimate([1, 2, 3, 8, 1, 2, 4, 9, 1, 2], limit=1)
    assert (once, twice, torn) == pytest.approx((2 / 4, 4 / 6, 2 / 6))


def test_the_more_frequent_continuation_wins() -> None:
    assert propose([1, 2, 5, 1, 2, 6, 1, 3, 7, 1], limit=1, min_confidence=0.0) == (2,)


def test_the_more_recent_of_equally_frequent_ones_wins() -> None:
    assert propose([1, 2, 5, 1, 3, 6, 1], limit=1, min_confidence=0.0) == (3,)
    assert propose([1, 2, 5, 1, 3, 6, 1, 3, 7, 1, 2, 8, 1], limit=1, min_confidence=0.0) == (2,)


def test_a_longer_context_wins_over_a_more_frequent_continuation() -> None:
    assert propose([9, 1, 3, 1, 2, 1, 2, 9, 1], limit=1, min_confidence=0.0) == (3,)


@pytest.mark.parametrize("tokens", [[4], [4, 5], [1, 2, 3, 4, 5]])
def test_nothing_to_copy(tokens: list[int]) -> None:
    assert SuffixDrafter(min_confidence=0.0).propose([ask(tokens)]) == [EMPTY]
    assert estimate(tokens) == ()


@pytest.mark.parametrize("period", [1, 3])
def test_a_long_loop_is_drafted_to_the_full_limit(period: int) -> None:
    """Far more turns than COUNTED; leaving it, the shorter contexts take over."""
    loop = list(range(10, 10 + period))
    turns = loop * (4 * COUNTED)
    assert propose(turns, limit=20) == tuple((loop * 20)[:20])
    assert propose([*turns, 99, *loop], limit=1) == (loop[0],)


@given(tokens=few_tokens, limit=st.integers(1, 9))
def test_equals_counting(tokens: list[int], limit: int) -> None:
    wanted, chances = by_counting(tokens, limit)
    assert propose(tokens, limit, min_confidence=0.0) == tuple(wanted)
    assert estimate(tokens, limit) == pytest.approx([prod(chances[: i + 1]) for i in range(len(chances))])


@given(tokens=few_tokens, limit=st.integers(1, 9), least=st.floats(0.0, 1.0))
def test_a_draft_is_as_long_as_its_estimates_allow(tokens: list[int], limit: int, least: float) -> None:
    sure = [chance for chance in estimate(tokens, limit) if chance >= least]
    assert len(propose(tokens, limit, min_confidence=least, doubt=DOUBT)) == len(sure)


@given(chunks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), min_size=1, max_size=6))
def test_grows_as_if_made_from_scratch(chunks: list[list[int]]) -> None:
    drafter, one = SuffixDrafter(doubt=DOUBT), ask([])
    for chunk in chunks:
        one.ledger.tokens += chunk
        assert drafter.propose([one])[0].tokens == propose(one.ledger.tokens, doubt=DOUBT)
        assert tuple(drafter.estimate(one)) == estimate(one.ledger.tokens)
        assert drafter.cached(one.key) == len(one.ledger)


@pytest.mark.parametrize(("option", "value"), [("min_confidence", 1.5), ("min_confidence", -0.1), ("doubt", -1.0)])
def test_options_are_checked(option: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{option} is {value}"):
        SuffixDrafter(**{option: value})


def test_keeps_the_contract() -> None:
    check_drafter(lambda target: SuffixDrafter())
    check_drafter(SuffixDrafter(min_confidence=0.0), seed=1)
