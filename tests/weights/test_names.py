"""Name maps and the row order of query and key."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sooner.errors import ModelError
from sooner.kernels.formats import Stored, dequantise, store
from sooner.weights.names import GGUF_FUSED_NAMES, GGUF_NAMES, HF_FUSED_NAMES, HF_NAMES, NameMap, half_split, rename

SHAPES = {"embed": (4, 2), "norm": (2,), "layers.0.q": (2, 2), "layers.11.q": (2, 2)}


def tensors(names: NameMap) -> dict[str, Stored]:
    return {names.theirs(name): store(torch.zeros(shape)) for name, shape in SHAPES.items()}


def test_layers_are_numbered_in_their_names() -> None:
    assert GGUF_NAMES.theirs("layers.11.q") == "blk.11.attn_q.weight"
    assert HF_NAMES.theirs("layers.11.down") == "model.layers.11.mlp.down_proj.weight"
    assert HF_NAMES.theirs("embed") == "model.embed_tokens.weight"


@pytest.mark.parametrize("names", [GGUF_NAMES, HF_NAMES])
def test_each_of_our_names_has_one_of_theirs(names: NameMap) -> None:
    theirs = [names.theirs(name) for name in SHAPES]
    assert len(set(theirs)) == len(theirs)
    assert rename(tensors(names), names, SHAPES).keys() == SHAPES.keys()


@pytest.mark.parametrize("names", [GGUF_FUSED_NAMES, HF_FUSED_NAMES])
def test_a_fused_tensor_is_split_by_its_rows(names: NameMap) -> None:
    parts = {"layers.3.q": (4, 32), "layers.3.k": (2, 32), "layers.3.v": (2, 32)}
    whole = Stored("q8_0", (8, 32), torch.arange(8 * 34, dtype=torch.uint8))
    split = rename({names.theirs("layers.3.q"): whole}, names, parts)
    assert [stored.shape for stored in split.values()] == list(parts.values())
    assert torch.equal(torch.cat([stored.data for stored in split.values()]), whole.data)
    assert split["layers.3.k"].data.data_ptr() == whole.data[4 * 34 :].data_ptr()


def test_experts_are_stacked_in_one_tensor_of_a_gguf_file() -> None:
    names = [f"layers.7.experts.{e}.gate" for e in range(3)]
    stack = torch.arange(24.0).view(3, 2, 4)
    split = rename({"blk.7.ffn_gate_exps.weight": store(stack)}, GGUF_NAMES, dict.fromkeys(names, (2, 4)))
    assert all(torch.equal(dequantise(split[name]), stack[e]) for e, name in enumerate(names))
    wrong = r"'blk.7.ffn_gate_exps.weight' has shape \(2, 2, 4\), the configuration wants \(3, 2, 4\) or \(6, 4\)"
    with pytest.raises(ModelError, match=wrong):
        rename({"blk.7.ffn_gate_exps.weight": store(stack[:2])}, GGUF_NAMES, dict.fromkeys(names, (2, 4)))


def test_a_missing_tensor_is_named_with_its_shape() -> None:
    found = tensors(GGUF_NAMES)
    del found["blk.11.attn_q.weight"]
    with pytest.raises(ModelError, match=r"'blk.11.attn_q.weight' of shape \(2, 2\) is missing \(1 in all\)"):
        rename(found, GGUF_NAMES, SHAPES)


@pytest.mark.parametrize(
    "name", ["rope_thing.weight", "blk.0.attn_q.bias", "blk.12.attn_q.weight", "blk.٣.attn_q.weight"]
)
def test_a_leftover_tensor_is_named_with_its_shape(name: str) -> None:
    found = tensors(GGUF_NAMES) | {name: store(torch.zeros(3))}
    with pytest.raises(ModelError, match=rf"'{name}' of shape \(3,\) has no place in this model \(1 such\)"):
        rename(found, GGUF_NAMES, SHAPES)


def test_a_misshapen_tensor_is_named_with_both_shapes() -> None:
    found = tensors(GGUF_NAMES) | {"blk.0.attn_q.weight": store(torch.zeros(2, 3))}
    with pytest.raises(ModelError, match=r"'blk.0.attn_q.weight' has shape \(2, 3\), the configuration wants \(2, 2\)"):
        rename(found, GGUF_NAMES, SHAPES)


def test_computed_rotary_tables_of_old_files_are_ignored() -> None:
    found = tensors(HF_NAMES) | {"model.layers.7.self_attn.rotary_emb.inv_freq": store(torch.ones(4))}
    assert rename(found, HF_NAMES, SHAPES).keys() == SHAPES.keys()


@pytest.mark.parametrize("heads", [1, 3])
def test_query_rows_come_back_from_llama_cpps_order(heads: int) -> None:
    """The order as llama.cpp's conversion makes it: [heads, 2, half] rows become [heads, half, 2]."""
    rows = np.random.default_rng(0).standard_normal((heads * 8, 5), np.float32)
    there = rows.reshape(heads, 2, 4, 5).swapaxes(1, 2).reshape(rows.shape)
    assert np.array_equal(dequantise(half_split(store(torch.tensor(there)), heads)).numpy(), rows)


def test_quantised_rows_move_as_they_are() -> None:
    data = torch.arange(4 * 34, dtype=torch.uint8)
    moved = half_split(Stored("q8_0", (4, 32), data), heads=1)
    assert torch.equal(moved.data.view(4, 34), data.view(4, 34)[[0, 2, 1, 3]])
