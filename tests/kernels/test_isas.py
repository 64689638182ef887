"""Every instruction set gives the same bits; and what the pool does around forks and threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from sooner.errors import InputError, SoonerError
from sooner.kernels import cpu
from sooner.kernels.cpu import CpuKernels, library
from sooner.kernels.formats import store
from sooner.kernels.interface import Norm
from sooner.sampling.noise import Noise
from tests.kernels.test_choose import ROADS, fast_choice, logits_like_a_model
from tests.support.passes import Branch, copy_cache, make_cache, make_heads, make_rows, random_weight


def products(kernels: CpuKernels, name: str) -> list[Tensor]:
    g = torch.Generator().manual_seed(1)
    first, second = (random_weight(56, 160, name, seed) for seed in range(2))
    packed, paired = kernels.pack(first, torch.randn(56, generator=g)), kernels.pack_gated(first, second)
    norm = Norm(torch.randn(160, generator=g), 1e-5)
    outputs = [kernels.embed(packed, torch.arange(56))]
    for rows in (1, 2, 3, 4, 5, 6, 7, 40):
        x = 2 * torch.randn(rows, 160, generator=g)
        outputs += [kernels.linear(x, packed, norm=norm, add=torch.randn(rows, 56, generator=g))]
        outputs += [kernels.gated(x, paired, norm=norm, activation=a) for a in ("silu", "gelu_tanh")]
        outputs += [kernels.rmsnorm(x, norm, x)]
    return outputs


def attention(kernels: CpuKernels) -> list[Tensor]:
    rows, pages = make_rows([Branch.chain(130, 4), Branch.chain(0, 40), Branch(30, (-1, 0, 0, 1, 1, 2))])
    outputs = []
    for heads in (
        make_heads(9, 3, 64),
        make_heads(4, 4, 32, window=20, softcap=5.0, norms=True),
        make_heads(8, 1, 80, rotary=16),
    ):
        qkv = torch.randn(
            len(rows.positions), (heads.query + 2 * heads.kv) * heads.size, generator=torch.Generator().manual_seed(1)
        )
        cache = copy_cache(make_cache(pages, heads.kv, heads.size))
        outputs += [kernels.attend(qkv, cache, rows, heads), cache.keys, cache.values]
    return outputs


def choices(kernels: CpuKernels) -> list[int | None]:
    row = logits_like_a_model(3_001, 4)
    return [fast_choice(kernels, row, options, Noise(seed), seed) for options in ROADS for seed in range(20)]


def on(name: str) -> None:
    assert library.use_isa(library.load(), name) == name


KNOWN = ("avx2", "avxvnni", "avx512", "avx512vnni", "neon", "neondot")
OTHERS = [name for name in KNOWN if not cpu.unavailable() and library.supports(name)]


@pytest.mark.usefixtures("restore_isa")
@pytest.mark.parametrize("other", OTHERS)
def test_every_isa_gives_the_bits_of_the_generic_one(fast: CpuKernels, other: str) -> None:
    work = [partial(products, fast, name) for name in CpuKernels.formats]
    for outputs in (*work, partial(attention, fast)):
        on("generic")
        expected = outputs()
        on(other)
        for got, wanted in zip(outputs(), expected, strict=True):
            assert torch.equal(got.view(torch.int32), wanted.view(torch.int32))


@pytest.mark.usefixtures("restore_isa")
@pytest.mark.parametrize("other", OTHERS)
def test_every_isa_chooses_the_same_tokens(fast: CpuKernels, other: str) -> None:
    on("generic")
    expected = choices(fast)
    on(other)
    assert choices(fast) == expected


@pytest.mark.usefixtures("restore_isa")
def test_generic_multiply_adds_round_once(fast: CpuKernels) -> None:
    """Against exact rational arithmetic: x * w + previous product, over cancellation, underflow and overflow."""
    on("generic")
    g = torch.Generator().manual_seed(3)
    x, w = (torch.randn(400, 2, generator=g) * 10.0 ** torch.randint(-22, 19, (400, 2), generator=g) for _ in range(2))
    x[::3, 1], w[::3, 1] = x[::3, 0] * 1.0000001, -w[::3, 0]
    got = torch.stack([fast.linear(x[i : i + 1], fast.pack(store(w[i : i + 1])))[0, 0] for i in range(400)])
    for i in range(400):
        first = torch.tensor(float(x[i, 0]) * float(w[i, 0])).float()  # exact in double, rounded once
        if not first.isfinite():
            continue
        exact = Fraction(float(x[i, 1])) * Fraction(float(w[i, 1])) + Fraction(float(first))
        assert float(got[i]) == nearest_float32(exact), i


def nearest_float32(exact: Fraction) -> float:
    """The float32 next to a rational number: the best of the neighbours of its float64 rounding."""
    with np.errstate(over="ignore"):
        guess = np.float32(float(exact))
    if not np.isfinite(guess):
        return float(guess)
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    distance = [abs(Fraction(float(f)) - exact) if np.isfinite(f) else None for f in near]
    best = min(d for d in distance if d is not None)
    ties = [f for f, d in zip(near, distance, strict=True) if d == best]
    return float(next((f for f in ties if not int(f.view(np.uint32)) & 1), ties[0]))


def test_an_unknown_isa_is_refused_by_name(fast: CpuKernels) -> None:
    with pytest.raises(InputError, match="'sse9'"):
        library.use_isa(library.load(), "sse9")


def test_the_environment_chooses(fast: CpuKernels) -> None:
    code = "from sooner.kernels import cpu; print(cpu.isa())"
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"SOONER_ISA": "generic"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert run.stdout.strip() == "generic"


def test_threads_take_turns(fast: CpuKernels) -> None:
    packed = fast.pack(random_weight(64, 64, "f32"))
    x = torch.randn(7, 64)
    expected = fast.linear(x, packed)
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(i for i in range(300) if not torch.equal(fast.linear(x, packed), expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(fast: CpuKernels) -> None:
    packed, x = fast.pack(random_weight(64, 64, "f32")), torch.ones(3, 64)
    expected = fast.linear(x, packed)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(fast.linear(x, packed), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_pools_come_and_go(fast: CpuKernels) -> None:
    packed, x = fast.pack(random_weight(64, 64, "f32")), torch.ones(3, 64)
    for threads in range(1, 20):
        assert torch.equal(CpuKernels(threads).linear(x, packed), fast.linear(x, packed))


def test_a_library_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would misunderstand its arguments in silence: an older one computes int8 activations as float32."""
    built = library.load()
    library.check_interface(built)
    monkeypatch.setattr(library, "INTERFACE", library.INTERFACE + 1)
    with pytest.raises(SoonerError, match="install sooner again"):
        library.check_interface(built)
