"""What is said of the first place where two answers part."""

import numpy as np
import pytest

from sooner.certify.divergence import Divergence, choice_values, first_divergence
from sooner.certify.subject import Subject
from sooner.sampling.noise import Noise
from sooner.sampling.road import Road
from sooner.types import RoundRecord, SamplingParams
from tests.support.engines import engine, run, tiny_decoder

GREEDY = SamplingParams(temperature=0.0, max_tokens=12)


def divergence(margin: float, difference: float, bound: float) -> Divergence:
    return Divergence(3, 5, " yes", 6, " no", margin, difference, bound)


def test_near_ties_are_below_the_bound_in_margin_and_difference() -> None:
    assert divergence(4e-4, 2e-4, 1e-3).kind == "near-tie"
    assert divergence(2e-2, 2e-4, 1e-3).kind == "bug"  # the choice was clear
    assert divergence(4e-4, 2e-2, 1e-3).kind == "bug"  # the passes disagree by more than rounding
    assert "output token 3: 5 ' yes' became 6 ' no', top-2 margin 0.0004" in str(divergence(4e-4, 2e-4, 1e-3))


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0.7, top_k=9, seed=4, max_tokens=12)])
def test_the_margin_is_that_of_the_targets_choice(params: SamplingParams) -> None:
    decoder = tiny_decoder(torch_kernels=True)
    subject = Subject(decoder, {}, [(1, 2, 3)])
    request = subject.request((1, 2, 3), params)
    machine, records = engine(None, decoder)
    [plain] = run(machine, [request])
    other = [*plain.tokens[:6], (plain.tokens[6] + 1) % 41, 0]
    found = first_divergence(subject, request, plain.tokens, other, records)
    assert found is not None
    assert (found.position, found.plain, found.speculative) == (6, plain.tokens[6], other[6])
    assert found.difference < 1e-4  # torch: not the same bits
    assert found.kind == "bug" and found.margin > found.bound > 0
    assert first_divergence(subject, request, plain.tokens, plain.tokens, records) is None


def test_it_reads_the_very_pass_that_verified() -> None:
    """With records of a round that drafted three tokens from position 4 on, the row of position 6 is its third."""
    subject = Subject(tiny_decoder(), {}, [(1, 2, 3)])
    request = subject.request((1, 2, 3), GREEDY)
    machine, _ = engine()
    [plain] = run(machine, [request])
    start = 3 + 4
    drafted = tuple(plain.tokens[4:7])
    record = RoundRecord("r", start, "d", "match", "", drafted, (-1, 0, 1), 3, (*drafted, 9), "bonus", 0, 0, 0, 0)
    found = first_divergence(subject, request, plain.tokens, [*plain.tokens[:6], 40], [record])
    assert found is not None and (found.position, found.difference < 1e-4) == (6, True)


def test_an_answer_that_ends_early_parts_there() -> None:
    subject = Subject(tiny_decoder(), {}, [(1, 2, 3)])
    request = subject.request((1, 2, 3), GREEDY)
    [plain] = run(engine()[0], [request])
    found = first_divergence(subject, request, plain.tokens, plain.tokens[:5], [])
    assert found is not None
    assert (found.position, found.speculative, found.speculative_text) == (5, -1, "the end")


def test_choice_values_are_maximised_by_the_choice() -> None:
    rng = np.random.default_rng(0)
    for params in (SamplingParams(temperature=0.0), SamplingParams(temperature=0.4, top_p=0.8, frequency_penalty=1.0)):
        road = Road(params, 1)
        for seed in range(20):
            row = rng.normal(size=30).astype(np.float32)
            values = choice_values(road, row, [3, 4, 4], Noise(seed))
            assert int(values.argmax()) == road.choose(row, [3, 4, 4], Noise(seed))
