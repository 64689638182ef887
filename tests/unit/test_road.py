"""The sampling road against worked cases and a slow, literal twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.sampling.noise import Noise
from sooner.sampling.road import F32, NumericalError, Road
from sooner.types import SamplingParams


def road(**options: object) -> Road:
    return Road(SamplingParams(**options), 2, stop_ids=(1,))  # type: ignore[arg-type]


def logits_of(p: list[float]) -> F32:
    return np.asarray(np.log(np.array(p)), np.float32)


def test_top_p_works_on_what_top_k_left() -> None:
    """CASES.md 11."""
    p = [0.35, 0.25, 0.20, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03]
    kept = road(top_k=4, top_p=0.82).probabilities(logits_of(p), [0, 0])
    assert np.flatnonzero(kept).tolist() == [0, 1, 2]
    assert kept[:3] == pytest.approx(np.array([0.35, 0.25, 0.20]) / 0.80, abs=1e-6)


def test_ties_go_to_the_lowest_id() -> None:
    flat = np.zeros(5, np.float32)
    assert road(temperature=0).choose(flat, [0, 0], Noise(1)) == 0
    assert np.flatnonzero(road(top_k=2).probabilities(flat, [0, 0])).tolist() == [0, 1]


def test_top_k_keeps_what_a_whole_sort_keeps() -> None:
    rng = np.random.default_rng(0)
    for size in range(1, 60):
        row = (rng.normal(size=size) * 2).round().astype(np.float32)  # many ties
        k = int(rng.integers(1, 12))
        kept = np.flatnonzero(road(top_k=k).probabilities(row, [0, 0]))
        assert kept.tolist() == sorted(np.argsort(-row, kind="stable")[:k].tolist())


def test_penalties_see_the_prefix_of_the_row() -> None:
    row = np.array([2.0, -1.0, 1.0, 0.5], np.float32)
    prefix = [0, 1, 2, 2]  # prompt 0 1, output 2 2
    adjusted = road(repetition_penalty=2.0).adjust(row, prefix)
    assert adjusted.tolist() == [1.0, -2.0, 0.5, 0.5]
    adjusted = road(presence_penalty=1.0, frequency_penalty=0.25).adjust(row, prefix)
    assert adjusted.tolist() == [2.0, -1.0, 1.0 - 1.0 - 0.5, 0.5]


def test_bad_words_and_minimum_length() -> None:
    row = np.zeros(5, np.float32)
    banned = Road(SamplingParams(), 2, bad_words=((3,), (2, 4)))
    assert np.isinf(banned.adjust(row, [0, 0, 2])).tolist() == [False, False, False, True, True]
    assert np.isinf(banned.adjust(row, [0, 0, 1])).tolist() == [False, False, False, True, False]
    waiting = road(min_tokens=2)
    assert np.isinf(waiting.adjust(row, [0, 0, 3])).tolist() == [False, True, False, False, False]
    assert not np.isinf(waiting.adjust(row, [0, 0, 3, 3])).any()


def test_a_road_without_options_hands_the_row_through() -> None:
    row = np.zeros(3, np.float32)
    assert road().adjust(row, [0, 0]) is row


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_raise(bad: float) -> None:
    row = np.array([0.0, bad, 1.0], np.float32)
    with pytest.raises(NumericalError, match="logits hold"):
        road().choose(row, [0, 0], Noise(1))


def test_options_that_leave_nothing_raise() -> None:
    everything = Road(SamplingParams(), 2, bad_words=((0,), (1,)))
    with pytest.raises(NumericalError, match="no token"):
        everything.probabilities(np.zeros(2, np.float32), [0, 0])


def literal(row: F32, params: SamplingParams) -> dict[int, float]:
    """temperature -> top-k -> renormalise -> top-p -> min-p -> normalise, with Python lists."""
    weights = [(float(np.exp(float(x) / params.temperature)), -i) for i, x in enumerate(row)]
    ranked = sorted(weights, reverse=True)[: params.top_k or None]
    total = sum(w for w, _ in ranked)
    kept: list[tuple[float, int]] = []
    mass = 0.0
    for w, i in ranked:
        if mass < params.top_p * total or not kept:
            kept.append((w, -i))
        mass += w
    kept = [(w, i) for w, i in kept if w >= params.min_p * kept[0][0] * (1 - 1e-12)]
    return {i: w / sum(w for w, _ in kept) for w, i in kept}


@given(
    row=st.lists(st.integers(-8, 8), min_size=2, max_size=9),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.integers(0, 9),
    top_p=st.sampled_from([0.13, 0.52, 0.91, 1.0]),
    min_p=st.sampled_from([0.0, 0.07, 0.41]),
)
def test_equals_the_literal_twin(row: list[int], temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = np.array(row, np.float32) * 0.37
    p = Road(params, 1).probabilities(logits, [0])
    wanted = literal(logits, params)
    assert p == pytest.approx(np.array([wanted.get(i, 0.0) for i in range(len(row))]), abs=1e-9)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p[Road(params, 1).choose(logits, [0], Noise(3))] > 0.0
