"""Products of the CPU kernels: against the torch twin, and bit for bit against themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sooner.errors import InputError
from sooner.kernels.cpu import CpuKernels
from sooner.kernels.formats import LAYOUTS, Stored, dequantise, store
from sooner.kernels.interface import Activation, Norm
from sooner.kernels.reference import TorchKernels
from tests.support.passes import random_weight

PLAIN = ("f32", "bf16", "f16")
GROUPED = ("q8_0", "q4_0", "q4_1", "g32q4", "g32q8", "g16q8")
SHAPES = [(name, n, k) for name in PLAIN for n, k in ((1, 1), (16, 7), (17, 64), (100, 300))] + [
    (name, n, k) for name in GROUPED for n, k in ((1, 32), (33, 96), (104, 288))
]
ROWS = (0, 1, 2, 3, 4, 5, 6, 7, 16, 65, 300)


def inputs(rows: int, width: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def a_norm(width: int) -> Norm:
    return Norm(1 + 0.1 * inputs(1, width, 5)[0], 1e-5)


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "n", "k"), SHAPES)
def test_linear_equals_the_twin(fast: CpuKernels, twin: TorchKernels, name: str, n: int, k: int) -> None:
    weight, bias, norm = random_weight(n, k, name), inputs(1, n, 2)[0], a_norm(k)
    packed, reference = fast.pack(weight, bias), twin.pack(weight, bias)
    bare, bare_reference = fast.pack(weight), twin.pack(weight)
    assert packed.shape == (n, k)
    assert packed.format == name
    for rows in ROWS:
        x, add = inputs(rows, k), inputs(rows, n, 3)
        close(fast.linear(x, packed, norm=norm, add=add), twin.linear(x, reference, norm=norm, add=add))
        close(fast.linear(x, bare), twin.linear(x, bare_reference))


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize(("name", "n", "k"), SHAPES)
def test_gated_equals_the_twin(
    fast: CpuKernels, twin: TorchKernels, name: str, n: int, k: int, activation: Activation
) -> None:
    gate, up, norm = random_weight(n, k, name), random_weight(n, k, name, seed=9), a_norm(k)
    packed, reference = fast.pack_gated(gate, up), twin.pack_gated(gate, up)
    assert packed.shape == (2 * n, k)
    for rows in ROWS:
        x = 3 * inputs(rows, k)
        expected = twin.gated(x, reference, norm=norm, activation=activation)
        close(fast.gated(x, packed, norm=norm, activation=activation), expected)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_activations_far_from_zero(fast: CpuKernels, twin: TorchKernels, activation: Activation) -> None:
    x = torch.cat([torch.linspace(-200, 200, 4001), torch.tensor([0.0, -1e30, 1e30, 1e-30])])[:, None]
    one = store(torch.ones(1, 1))
    got = fast.gated(x, fast.pack_gated(one, one), activation=activation)
    expected = twin.gated(x, twin.pack_gated(one, one), activation=activation)
    torch.testing.assert_close(got, expected, rtol=3e-6, atol=1e-34 if activation == "silu" else 1e-5)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 576])
def test_rmsnorm_equals_the_twin(fast: CpuKernels, twin: TorchKernels, width: int) -> None:
    for rows in (0, 1, 3, 65):
        x, add, norm = 10 * inputs(rows, width), inputs(rows, width, 2), a_norm(width)
        close(fast.rmsnorm(x, norm), twin.rmsnorm(x, norm))
        close(fast.rmsnorm(x, norm, add), twin.rmsnorm(x, norm, add))


@pytest.mark.parametrize(("name", "n", "k"), SHAPES)
def test_embed_takes_the_very_rows(fast: CpuKernels, name: str, n: int, k: int) -> None:
    weight = random_weight(n, k, name)
    tokens = torch.tensor([0, n - 1, n // 2, 0])
    assert torch.equal(fast.embed(fast.pack(weight), tokens), dequantise(weight)[tokens])
    assert fast.embed(fast.pack(weight), tokens[:0]).shape == (0, k)


@pytest.mark.parametrize("name", CpuKernels.formats)
def test_a_row_ignores_its_neighbours(fast: CpuKernels, name: str) -> None:
    """One row alone = the row in passes of 2..64 rows = in a prefill chunk, to the last bit."""
    weight, norm = random_weight(72, 544, name), a_norm(544)
    packed, paired = fast.pack(weight), fast.pack_gated(weight, random_weight(72, 544, name, seed=2))
    x, add = inputs(300, 544), inputs(300, 72, 3)

    def both(rows: slice) -> Tensor:
        plain = fast.linear(x[rows], packed, norm=norm, add=add[rows])
        return torch.cat([plain, fast.gated(x[rows], paired, norm=norm, activation="silu")], dim=1)

    alone = torch.cat([both(slice(i, i + 1)) for i in range(300)])
    for rows in (*range(2, 65), 200, 300):
        assert torch.equal(both(slice(300 - rows, 300)), alone[300 - rows :]), rows


@pytest.mark.parametrize("name", CpuKernels.formats)
def test_a_format_changes_memory_and_never_bits(fast: CpuKernels, name: str) -> None:
    weight = random_weight(40, 320, name)
    packed, wide = fast.pack(weight), fast.pack(store(dequantise(weight)))
    assert packed.nbytes == -(-40 // 16) * 16 * 320 // LAYOUTS[name].block * LAYOUTS[name].block_bytes
    for rows in ROWS:
        x = inputs(rows, 320)
        assert torch.equal(fast.linear(x, packed), fast.linear(x, wide)), rows


def test_infinite_and_subnormal_halves_are_read_as_they_are(fast: CpuKernels) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
        every = every[~every.isnan()][:, None]
        assert torch.equal(fast.embed(fast.pack(store(every)), torch.arange(len(every))), every.float())


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_bits_do_not_depend_on_threads(fast: CpuKernels, threads: int) -> None:
    other = CpuKernels(threads)
    weight, norm = random_weight(200, 96, "q8_0"), a_norm(96)
    for rows in ROWS:
        x = inputs(rows, 96)
        assert torch.equal(other.linear(x, other.pack(weight), norm=norm), fast.linear(x, fast.pack(weight), norm=norm))


def test_views_and_other_dtypes_are_refused(fast: CpuKernels) -> None:
    packed = fast.pack(random_weight(16, 32, "f32"))
    with pytest.raises(TypeError, match="contiguous"):
        fast.linear(inputs(32, 4).t(), packed)
    with pytest.raises(TypeError, match="float64"):
        fast.linear(inputs(4, 32).double(), packed)
    with pytest.raises(TypeError, match="32"):
        fast.linear(inputs(4, 31), packed)
    with pytest.raises(ValueError, match="outside the table of 16"):
        fast.embed(packed, torch.tensor([16]))


def test_a_ragged_group_is_refused(fast: CpuKernels) -> None:
    with pytest.raises(InputError, match="multiple of 32"):
        fast.pack(Stored("q8_0", (4, 40), torch.zeros(170, dtype=torch.uint8)))
