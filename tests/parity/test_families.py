"""Every family against transformers: logits in float32, however the text is cut; the same from its GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.draft.model import load_model_drafter
from sooner.draft.protocol import Drafter
from sooner.draft.suffix import SuffixDrafter
from sooner.kernels import make_kernels
from sooner.models.build import build_decoder
from sooner.models.checkpoint import Checkpoint, open_checkpoint
from sooner.models.config import Attention, Experts, ModelConfig
from sooner.models.decoder import Decoder
from sooner.models.rope import plain_rope
from sooner.types import SamplingParams
from tests.parity.test_logits import BACKENDS, assert_all_ways, in_chunks
from tests.support.drafters import RandomDrafter
from tests.support.engines import engine, request, run
from tests.support.families import FAMILIES, IN_GGUF, WINDOW, logits, text_ids, write_family, write_family_gguf

Folders = Callable[[str], Path]
MATRIX_TYPES = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")  # K blocks are wider than these models
KEPT_AS = {"Q5_0": "q8_0", "Q5_1": "g32q8"}  # what holds the same numbers


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The folder of a family's tiny checkpoint, written when it is first asked for."""
    return cache(lambda name: write_family(name, tmp_path_factory.mktemp("family")))


def decoder(opened: Checkpoint, backend: str, config: ModelConfig | None = None, weights: str = "f32") -> Decoder:
    kernels = make_kernels("cpu", weights, 1, backend)
    return build_decoder(config or opened.config, dict(opened.tensors), kernels, "cpu", weights)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_logits(name: str, backend: str, folders: Folders) -> None:
    """The text is several windows long."""
    ids = text_ids(5 * WINDOW)
    assert_all_ways(decoder(open_checkpoint(folders(name)), backend), ids, logits(name, ids))


@pytest.mark.parametrize("name", FAMILIES)
def test_on_the_cpu_kernels_rows_are_exact(name: str, folders: Folders) -> None:
    """A row's logits have the same bits whatever rows share its pass, mixtures of experts and soft caps included."""
    ids = text_ids(5 * WINDOW)
    target = decoder(open_checkpoint(folders(name)), "cpu")
    whole = in_chunks(target, ids, len(ids))
    assert all(np.array_equal(in_chunks(target, ids, chunk), whole) for chunk in (1, 7))


@pytest.mark.parametrize("name", IN_GGUF)
def test_a_gguf_file_holds_the_same_model(name: str, folders: Folders, tmp_path: Path) -> None:
    ours = open_checkpoint(folders(name))
    theirs = open_checkpoint(write_family_gguf(name, folders(name), tmp_path / "m.gguf"))
    assert ours.tensors.keys() == theirs.tensors.keys()
    for key, stored in ours.tensors.items():
        assert stored.shape == theirs.tensors[key].shape
        assert torch.equal(stored.data, theirs.tensors[key].data), key
    ids = text_ids(3 * WINDOW, seed=1)
    assert_all_ways(decoder(theirs, "torch"), ids, logits(name, ids))


@pytest.mark.parametrize("kind", MATRIX_TYPES)
@pytest.mark.parametrize("name", IN_GGUF)
def test_matrices_of_a_format_are_used_as_they_are(name: str, kind: str, folders: Folders, tmp_path: Path) -> None:
    """Fused, stacked and interleaved ones too: the logits have the bits of the same numbers in float32."""
    rounded = write_family_gguf(name, folders(name), tmp_path / "rounded.gguf", kind)
    spelt = write_family_gguf(name, folders(name), tmp_path / "spelt.gguf", numbers_of=rounded)
    kept, plain = (decoder(open_checkpoint(path), "cpu", weights="auto") for path in (rounded, spelt))
    assert {matrix.format for layer in plain.layers for matrix in layer.matrices} == {"f32"}
    assert kept.embed.format == (kind.lower() if kind.lower() in kept.kernels.formats else KEPT_AS[kind])
    ids = text_ids(2 * WINDOW, seed=2)
    assert np.array_equal(in_chunks(kept, ids, len(ids)), in_chunks(plain, ids, len(ids)))


def without_windows(config: ModelConfig) -> ModelConfig:
    return replace(config, attention=tuple(replace(each, window=None) for each in config.attention))


def with_plain_rope(config: ModelConfig) -> ModelConfig:
    rope = plain_rope(10000.0, config.head_size)
    return replace(config, attention=tuple(Attention(rope, each.window) for each in config.attention))


def renormalising(config: ModelConfig) -> ModelConfig:
    assert config.experts is not None
    return replace(config, experts=Experts(config.experts.count, config.experts.used, not config.experts.renormalise))


SPOILT: dict[str, tuple[str, Callable[[ModelConfig], ModelConfig]]] = {
    "windows of mistral": ("mistral", without_windows),
    "upper windows of qwen2": ("qwen2, upper windows", without_windows),
    "windows of phi3": ("phi3", without_windows),
    "windows of gemma2": ("gemma2", without_windows),
    "windows of gemma3": ("gemma3", without_windows),
    "layers without rotary of smollm3": ("smollm3", with_plain_rope),
    "llama3 scaling": ("llama 3.1", with_plain_rope),
    "linear scaling": ("llama, linear", with_plain_rope),
    "yarn": ("qwen2", with_plain_rope),
    "local rope of gemma3": ("gemma3", with_plain_rope),
    "partial rotary and longrope, far": ("phi3, far", with_plain_rope),
    "partial rotary and longrope, near": ("phi3, near", with_plain_rope),
    "attention soft cap": ("gemma2", lambda config: replace(config, attention_softcap=None)),
    "logit soft cap": ("gemma2", lambda config: replace(config, logit_softcap=None)),
    "embedding scale": ("gemma2", lambda config: replace(config, embed_scale=1.0)),
    "score scale": ("gemma3", lambda config: replace(config, attention_scale=1.0)),
    "activation": ("gemma2", lambda config: replace(config, activation="silu")),
    "weights of mixtral's experts": ("mixtral", renormalising),
    "weights of olmoe's experts": ("olmoe", renormalising),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_a_family_is_known_for_shows_in_its_logits(what: str, folders: Folders) -> None:
    """So that the parity above would notice its loss."""
    name, spoil = SPOILT[what]
    ids = text_ids(5 * WINDOW)
    opened = open_checkpoint(folders(name))
    spoilt = decoder(opened, "torch", spoil(opened.config))
    assert np.abs(in_chunks(spoilt, ids, len(ids)) - logits(name, ids)).max() > 1e-3


def answers(target: Decoder, drafter: Drafter | None, params: SamplingParams, prompt: int) -> list[list[int]]:
    machine, _ = engine({drafter.name: drafter} if drafter else {}, target, cache_tokens=512)
    name = drafter.name if drafter else None
    return [a.tokens for a in run(machine, [request(text_ids(prompt, seed), params, name) for seed in range(3)])]


@pytest.mark.parametrize("name", FAMILIES)
def test_match_with_suffix_gives_plain_tokens(name: str, folders: Folders) -> None:
    target = decoder(open_checkpoint(folders(name)), "cpu")
    params = SamplingParams(temperature=0.7, seed=3, max_tokens=24)
    assert answers(target, SuffixDrafter(), params, 40) == answers(target, None, params, 40)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["mistral", "gemma2"])
def test_a_window_rolls_back(name: str, backend: str, folders: Folders) -> None:
    """CASES 19: drafts that are nearly always wrong, cut back again and again long after the window has wrapped."""
    opened = open_checkpoint(folders(name))
    target = decoder(opened, backend)
    params = SamplingParams(temperature=0.0, max_tokens=100)
    plain = answers(target, None, params, 20)
    assert answers(target, RandomDrafter(opened.config.vocabulary), params, 20) == plain
    assert [len(tokens) for tokens in plain] == [100] * 3


@pytest.mark.parametrize(("padding", "draft_padding"), [(0, 5), (7, 0), (3, 9)])
def test_target_and_draft_of_different_families_and_formats(
    padding: int, draft_padding: int, folders: Folders, tmp_path: Path
) -> None:
    """A Qwen 2 target in float32, a Gemma 2 draft in Q8_0, their embeddings padded to different sizes (CASES 24)."""
    opened = open_checkpoint(write_family_gguf("qwen2", folders("qwen2"), tmp_path / "target.gguf", padding=padding))
    target = decoder(opened, "cpu")
    draft = write_family_gguf("gemma2", folders("gemma2"), tmp_path / "draft.gguf", "Q8_0", padding=draft_padding)
    drafter = load_model_drafter(f"model:{draft}", target, opened.tokenizer, 512)
    for params in (
        SamplingParams(temperature=0.5, seed=5, max_tokens=24),
        SamplingParams(temperature=0, max_tokens=24),
    ):
        assert answers(target, drafter, params, 20) == answers(target, None, params, 20)
