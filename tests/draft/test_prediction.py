"""The prediction drafter follows what is expected, and finds its place again after an edit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.draft.load import load_lookup
from sooner.draft.prediction import Follower, PredictionDrafter
from sooner.draft.protocol import Ask
from sooner.testing import check_drafter
from sooner.types import Ledger, SamplingParams
from tests.support.engines import VOCABULARY, engine, plain, request, run

TEXT = tuple(range(10, 40))


def places(prediction: tuple[int, ...], output: list[int]) -> list[int | None]:
    """After each output token, what the follower expects next; None where it is lost or at the end."""
    follower, tokens, expected = Follower(prediction, 3), [1, 2, 3], list[int | None]()
    for token in output:
        tokens.append(token)
        follower.extend(tokens)
        there = follower.matched and follower.place < len(prediction)
        expected.append(prediction[follower.place] if there else None)
    return expected


@pytest.mark.parametrize(
    ("output", "next_tokens"),
    [
        ([10, 11, 12], [11, 12, 13]),
        ([*range(10, 40)], [*range(11, 40), None]),
        ([10, 5, 12, 13], [11, None, 13, 14]),  # one token changed
        ([10, 5, 5, 11, 12], [11, None, None, 12, 13]),  # two put in
        ([10, 14, 15], [11, 15, 16]),  # three left out
        ([5, 5, 5, 10, 11], [None, None, None, 11, 12]),  # an introduction
        ([10, 35, 36, 37], [11, None, 37, 38]),  # far ahead: a single token is not believed
        ([10, 11, 12, 13, 14, 5, 11, 12, 13], [11, 12, 13, 14, 15, None, None, 13, 14]),  # back again
        ([7] * 9, [None] * 9),
    ],
)
def test_it_keeps_its_place(output: list[int], next_tokens: list[int | None]) -> None:
    assert places(TEXT, output) == next_tokens


def test_the_nearest_repetition_is_taken_ahead_before_behind() -> None:
    again = (1, 2, 3, 50, 1, 2, 3, 51, 1, 2, 3, 52)
    assert places(again, [1, 2, 3, 9, 1, 2, 3])[-1] == 51
    assert places(again, [1, 2, 3, 50, 1, 2, 3, 51, 9, 2, 3])[-1] == 52


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30), st.integers(1, 7))
def test_the_place_does_not_depend_on_how_the_output_came(prediction: list[int], output: list[int], step: int) -> None:
    one, other = (Follower(tuple(prediction), 1) for _ in range(2))
    ledger = [0]
    for token in output:
        ledger.append(token)
        one.extend(ledger)
    for end in (*range(1, len(ledger), step), len(ledger)):
        other.extend(ledger[:end])
    assert (one.place, one.matched) == (other.place, other.matched)
    assert 0 <= one.place <= len(prediction)


class Expecting(PredictionDrafter):
    """Expects the prompt to come once more."""

    def new_index(self, ask: Ask) -> Follower:
        return Follower(ask.request.prompt, len(ask.request.prompt))


def test_it_keeps_the_contract() -> None:
    check_drafter(lambda target: Expecting())
    check_drafter(lambda target: PredictionDrafter())


def test_the_estimate_belongs_to_the_draft() -> None:
    drafter = PredictionDrafter()
    one = request([1, 2], prediction=TEXT)
    ask = Ask(0, one, Ledger([1, 2], 2), 6, "match")
    chances = list(drafter.estimate(ask))
    assert len(chances) == len(drafter.propose([ask])[0]) == 6
    assert chances == sorted(chances, reverse=True) and 0 < chances[-1] < chances[0] < 1
    assert list(drafter.estimate(Ask(1, request([1]), Ledger([1], 1), 6, "match"))) == []


def test_a_right_prediction_is_accepted_whole_and_an_edited_one_nearly() -> None:
    params = SamplingParams(temperature=0.8, seed=4, max_tokens=60)
    truth = plain(request([1, 2, 3], params)).tokens
    edited = [*truth[:20], 5, 5, *truth[20:30], *truth[33:]]
    machine, _ = engine({"prediction": load_lookup("prediction")})
    whole, changed, none = run(
        machine,
        [request([1, 2, 3], params, "prediction", 5, prediction=tuple(text)) for text in (truth, edited, ())],
    )
    assert whole.tokens == changed.tokens == none.tokens == truth
    assert whole.stats.acceptance_rate == 1.0 and whole.stats.rounds == -(-59 // 6)
    assert changed.stats.rounds < 24 and (changed.stats.acceptance_rate or 0) > 0.6
    assert none.stats.drafted == 0 and none.stats.rounds == 59


def test_tokens_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match="prediction token 41 is outside the vocabulary of 41"):
        engine()[0].add(request([1], prediction=(VOCABULARY,)))
