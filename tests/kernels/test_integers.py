"""Products whose inputs are rounded to 8 bits: against the torch twin, and bit for bit against themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sooner.errors import InputError
from sooner.kernels.cpu import CpuKernels
from sooner.kernels.formats import LAYOUTS, Stored, dequantise
from sooner.kernels.interface import Activation
from sooner.kernels.reference import TorchKernels, rounded
from tests.kernels.test_isas import OTHERS, on, products
from tests.kernels.test_products import GROUPED, ROWS, a_norm, close, inputs
from tests.support.passes import random_weight

SHAPES = [(name, n, k) for name in GROUPED for n, k in ((1, 32), (33, 96), (104, 288))]


@pytest.fixture(scope="module")
def fast(fast: CpuKernels) -> CpuKernels:
    return CpuKernels(fast.threads, "int8")


@pytest.fixture(scope="module")
def twin() -> TorchKernels:
    return TorchKernels(activations="int8")


@pytest.mark.parametrize(("name", "n", "k"), SHAPES)
def test_linear_equals_the_twin(fast: CpuKernels, twin: TorchKernels, name: str, n: int, k: int) -> None:
    weight, bias, norm = random_weight(n, k, name), inputs(1, n, 2)[0], a_norm(k)
    packed, reference = fast.pack(weight, bias), twin.pack(weight, bias)
    assert packed.nbytes == -(-n // 16) * 16 * k // LAYOUTS[name].block * LAYOUTS[name].block_bytes
    for rows in ROWS:
        x, add = inputs(rows, k), inputs(rows, n, 3)
        close(fast.linear(x, packed, add=add), twin.linear(x, reference, add=add))
        # The two sum a norm's squares in other orders, which may move an input to the next whole number.
        normed = fast.rmsnorm(x, norm)
        assert torch.equal(fast.linear(x, packed, norm=norm), fast.linear(normed, packed))


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize(("name", "n", "k"), SHAPES)
def test_gated_equals_the_twin(
    fast: CpuKernels, twin: TorchKernels, name: str, n: int, k: int, activation: Activation
) -> None:
    gate, up = random_weight(n, k, name), random_weight(n, k, name, seed=9)
    packed, reference = fast.pack_gated(gate, up), twin.pack_gated(gate, up)
    for rows in ROWS:
        x = 3 * inputs(rows, k)
        close(fast.gated(x, packed, activation=activation), twin.gated(x, reference, activation=activation))


@pytest.mark.parametrize(("name", "n", "k"), SHAPES)
def test_embed_takes_the_very_rows(fast: CpuKernels, name: str, n: int, k: int) -> None:
    weight = random_weight(n, k, name)
    tokens = torch.tensor([0, n - 1, n // 2, 0])
    assert torch.equal(fast.embed(fast.pack(weight), tokens), dequantise(weight)[tokens])


@pytest.mark.parametrize("name", GROUPED)
def test_a_row_ignores_its_neighbours(fast: CpuKernels, name: str) -> None:
    """One row alone = the row in passes of 2..64 rows = in a prefill chunk, to the last bit, on any threads."""
    weight, norm = random_weight(72, 544, name), a_norm(544)
    packed, paired = fast.pack(weight), fast.pack_gated(weight, random_weight(72, 544, name, seed=2))
    other = CpuKernels(3, "int8")
    x, add = inputs(300, 544), inputs(300, 72, 3)

    def both(kernels: CpuKernels, rows: slice) -> Tensor:
        plain = kernels.linear(x[rows], packed, norm=norm, add=add[rows])
        return torch.cat([plain, kernels.gated(x[rows], paired, norm=norm, activation="silu")], dim=1)

    alone = torch.cat([both(fast, slice(i, i + 1)) for i in range(300)])
    for rows in (*range(2, 65), 300):
        assert torch.equal(both(fast, slice(300 - rows, 300)), alone[300 - rows :]), rows
    assert torch.equal(both(other, slice(0, 300)), alone)


@pytest.mark.usefixtures("restore_isa")
@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("other", OTHERS)
def test_every_isa_gives_the_bits_of_the_generic_one(fast: CpuKernels, other: str, name: str) -> None:
    on("generic")
    expected = products(fast, name)
    on(other)
    for got, wanted in zip(products(fast, name), expected, strict=True):
        assert torch.equal(got.view(torch.int32), wanted.view(torch.int32))


@pytest.mark.usefixtures("restore_isa")
@pytest.mark.parametrize("isa", [*OTHERS, "generic"])
@pytest.mark.parametrize(
    ("name", "quants", "value"),
    [("q8_0", 0x80, -128), ("q8_0", 0x7F, 127), ("q4_0", 0x00, -8), ("q4_0", 0xFF, 7), ("q4_1", 0xFF, 15)],
)
def test_the_greatest_products_do_not_overflow(fast: CpuKernels, isa: str, name: str, quants: int, value: int) -> None:
    on(isa)
    layout, k = LAYOUTS[name], 96
    blocks = torch.full((20 * k // 32, layout.block_bytes), quants, dtype=torch.uint8)
    blocks[:, : 4 if name == "q4_1" else 2] = torch.tensor([0, 0x3C, 0, 0][: 4 if name == "q4_1" else 2])  # 1.0, 0.0
    packed = fast.pack(Stored(name, (20, k), blocks.view(-1)))
    for sign in (1.0, -1.0):
        x = torch.full((5, k), 127.0 * sign)
        assert torch.equal(fast.linear(x, packed), torch.full((5, 20), 127.0 * sign * value * k))


def identity(k: int) -> Stored:
    """Of q8_0: a product with it gives what became of the inputs."""
    blocks = torch.zeros(k, k // 32, 34, dtype=torch.uint8)
    blocks[..., 1] = 0x3C  # the scale 1.0
    each = torch.arange(k)
    blocks[each, each // 32, 2 + each % 32] = 1
    return Stored("q8_0", (k, k), blocks.view(-1))


@pytest.mark.usefixtures("restore_isa")
@pytest.mark.parametrize("isa", [*OTHERS, "generic"])
def test_inputs_are_rounded_like_the_twins_to_the_bit(fast: CpuKernels, isa: str) -> None:
    on(isa)
    g = torch.Generator().manual_seed(1)
    sizes = 10.0 ** torch.randint(-37, 30, (400, 1), generator=g)
    x = torch.cat(
        [
            torch.randn(400, 96, generator=g) * sizes,
            (torch.randint(-254, 255, (50, 96), generator=g) / 2).index_fill(1, torch.arange(0, 96, 32), 127.0),  # ties
            torch.zeros(1, 96),
            torch.full((1, 96), 1e-45),
        ]
    )
    eye = fast.pack(identity(96))
    assert torch.equal(fast.linear(x, eye), rounded(x))
    assert (rounded(x) - x).abs().max() <= x.abs().max() / 254 * 1.001


def test_a_row_that_is_not_finite_ends_as_nan_and_alone(fast: CpuKernels) -> None:
    eye = fast.pack(identity(64))
    for bad in (torch.nan, torch.inf, -torch.inf):
        x = inputs(5, 64)
        x[2, 40] = bad
        got = fast.linear(x, eye)
        assert got[2].isnan().all()
        assert got[[0, 1, 3, 4]].isfinite().all()


def test_floating_weights_keep_float32_inputs(fast: CpuKernels) -> None:
    exact, x = CpuKernels(2), inputs(7, 64)
    for name in ("f32", "bf16", "f16"):
        weight = random_weight(40, 64, name)
        assert torch.equal(fast.linear(x, fast.pack(weight)), exact.linear(x, exact.pack(weight)))


def test_half_a_group_is_refused(fast: CpuKernels) -> None:
    with pytest.raises(InputError, match="multiple of 32"):
        fast.pack(random_weight(16, 48, "g16q8"))
