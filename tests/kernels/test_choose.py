"""The choice of a token in C++: the very token of the Python road."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sooner.kernels.cpu import CpuKernels
from sooner.sampling.noise import Noise
from sooner.sampling.road import NumericalError, Road
from sooner.types import SamplingParams

ROADS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {},
    {"temperature": 0.3},
    {"temperature": 1e-6},
    {"temperature": 100.0},
    {"top_k": 1},
    {"top_k": 50},
    {"top_k": 40_000},
    {"top_p": 0.9},
    {"top_p": 0.05},
    {"top_p": 1e-9},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"temperature": 1.7, "top_k": 200, "top_p": 0.95, "min_p": 0.01},
)


def twin(row: NDArray[np.float32], options: dict[str, Any], noise: Noise, position: int) -> int:
    return Road(SamplingParams(**options), prompt_length=0).choose(row, [0] * position, noise)


def fast_choice(
    kernels: CpuKernels, row: NDArray[np.float32], options: dict[str, Any], noise: Noise, position: int
) -> int | None:
    p = SamplingParams(**options)
    return kernels.choose(
        row, temperature=p.temperature, top_k=p.top_k, top_p=p.top_p, min_p=p.min_p,
        seed=noise.seed, sample=noise.sample, position=position,
    )  # fmt: skip


def logits_like_a_model(size: int, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    row = rng.normal(0, 2, size)
    row[rng.integers(0, size, 30)] += rng.exponential(5, 30)
    return row.astype(np.float32)


@pytest.mark.parametrize("options", ROADS, ids=str)
@pytest.mark.parametrize("size", [49_152, 1_003])
def test_the_same_token(fast: CpuKernels, options: dict[str, Any], size: int) -> None:
    for seed in range(12):
        row, noise = logits_like_a_model(size, seed), Noise(2**64 - 1 - seed, sample=seed % 3)
        assert fast_choice(fast, row, options, noise, seed * 7) == twin(row, options, noise, seed * 7), seed


@settings(max_examples=300, deadline=None)
@given(
    levels=st.lists(st.integers(-6, 6), min_size=1, max_size=70),
    masked=st.sets(st.integers(0, 69)),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 30]),
    top_p=st.sampled_from([1.0, 0.99, 0.7, 0.3]),
    min_p=st.sampled_from([0.0, 0.02, 0.5]),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 1000),
)
def test_ties_and_masked_tokens(
    fast: CpuKernels, levels: list[int], masked: set[int], temperature: float, top_k: int, top_p: float, min_p: float,
    seed: int, position: int,
) -> None:  # fmt: skip
    row = np.array(levels, np.float32)
    row[[token for token in masked if token < len(row) - 1]] = -np.inf
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    got = fast_choice(fast, row, options, Noise(seed), position)
    assert got is None or got == twin(row, options, Noise(seed), position)


def test_it_decides_nearly_always(fast: CpuKernels) -> None:
    options = {"temperature": 0.8, "top_p": 0.9, "top_k": 64}
    choices = [fast_choice(fast, logits_like_a_model(5_000, s), options, Noise(s), 0) for s in range(200)]
    assert None not in choices


def test_an_exact_border_is_left_to_the_road(fast: CpuKernels) -> None:
    assert fast_choice(fast, np.zeros(64, np.float32), {"top_p": 0.5}, Noise(1), 0) is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_an_honest_choice(fast: CpuKernels, wrong: float, temperature: float) -> None:
    row = logits_like_a_model(500, 0)
    row[499] = wrong
    for bad in (row, np.full(20, -np.inf, np.float32)):
        with pytest.raises(NumericalError):
            twin(bad, {"temperature": temperature}, Noise(0), 0)
        assert fast_choice(fast, bad, {"temperature": temperature}, Noise(0), 0) is None


@pytest.mark.parametrize("options", ROADS, ids=str)
def test_threads_do_not_matter(fast: CpuKernels, options: dict[str, Any]) -> None:
    for threads in (1, 5):
        other = CpuKernels(threads)
        for size in (1, 31, 33, 2_000):
            row = logits_like_a_model(size, size)
            assert fast_choice(other, row, options, Noise(5), 3) == fast_choice(fast, row, options, Noise(5), 3)


def test_wrong_rows_are_refused(fast: CpuKernels) -> None:
    with pytest.raises(TypeError, match="float32"):
        fast_choice(fast, np.zeros(4), {}, Noise(0), 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="contiguous"):
        fast_choice(fast, np.zeros(8, np.float32)[::2], {}, Noise(0), 0)
