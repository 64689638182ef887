"""SmolLM2 with activations rounded to 8 bits: the same bits in every pass, the same tokens with and without drafts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Drafter
from sooner.engine.calibrate import identity
from sooner.errors import InputError
from sooner.kernels import cpu, make_kernels
from sooner.kernels.formats import store
from sooner.models.build import check_grouped
from sooner.models.decoder import Decoder
from sooner.types import SamplingParams
from tests.parity.test_logits import in_chunks
from tests.support import smollm2
from tests.support.engines import engine, request, run

pytestmark = pytest.mark.skipif(cpu.unavailable() is not None, reason="the C++ kernels are missing")


def target(weights: str = "auto") -> Decoder:
    return smollm2.decoder("auto", weights, "int8")


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "passes"), [("auto", (2, 3, 5, 16, 64)), ("q8", (4, 33))])
def test_a_rows_logits_are_the_same_alone_and_among_others(weights: str, passes: tuple[int, ...]) -> None:
    ids = (list(smollm2.chat_ids(smollm2.PROMPTS[7])) + list(range(1000, 1064)))[:64]
    alone = in_chunks(target(weights), ids, 1)
    for rows in passes:
        assert np.array_equal(in_chunks(target(weights), ids, rows), alone), rows


def test_rounding_changes_logits_a_little() -> None:
    ids = list(smollm2.chat_ids(smollm2.PROMPTS[4]))
    exact, rounded = (in_chunks(smollm2.decoder("auto", "auto", kind), ids, len(ids)) for kind in ("float32", "int8"))
    error = np.abs(rounded - exact).mean() / exact.std()
    assert 0 < error < 0.05
    assert (rounded.argmax(axis=1) == exact.argmax(axis=1)).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("suffix", SamplingParams(temperature=0.0, max_tokens=32)),
        ("model:self/3", SamplingParams(temperature=0.8, seed=3, max_tokens=16)),
    ],
)
def test_match_gives_plain_tokens(name: str, params: SamplingParams) -> None:
    decoder = target()
    own = name.startswith("model:")
    drafter: Drafter = ModelDrafter(name, decoder.first_layers(3), 49152, 256) if own else load_lookup(name)
    prompts = [smollm2.chat_ids(smollm2.PROMPTS[i]) for i in (1, 3)]
    answers = []
    for drafters in ({}, {name: drafter}):
        machine, records = engine(drafters, decoder, cache_tokens=2048)
        asked = [request(prompt, params, name if drafters else None) for prompt in prompts]
        answers.append([answer.tokens for answer in run(machine, asked)])
        assert any(record.draft for record in records) == bool(drafters)
    assert answers[0] == answers[1]


def test_costs_are_not_those_of_float32() -> None:
    exact, rounded = (identity(smollm2.decoder("auto", "auto", kind)) for kind in ("float32", "int8"))
    assert {key for key in exact if exact[key] != rounded[key]} == {"activations"}


def test_floating_weights_are_refused_with_the_remedy() -> None:
    check_grouped(smollm2.checkpoint().tensors, "auto")
    floats = {"layers.0.q": store(torch.ones(4, 4))}
    check_grouped(floats, "q8")
    with pytest.raises(InputError, match="these are f32; use weights q8 or q4"):
        check_grouped(floats, "auto")
    for weights in ("f32", "bf16"):
        with pytest.raises(InputError, match=f"not {weights}; use weights q8, q4 or auto"):
            make_kernels("cpu", weights, activations="int8")
    with pytest.raises(InputError, match="'int4' is not known; choose one of float32, int8"):
        make_kernels("cpu", "auto", activations="int4")
    with pytest.raises(InputError, match="need the C\\+\\+ kernels; with torch use float32"):
        make_kernels("cpu", "auto", backend="torch", activations="int8")
