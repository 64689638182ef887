"""Products in training: rounded where gradients are wanted and that is faster, exact where something is measured."""

from __future__ import annotations

import pytest
import torch

from sooner.bench import machine
from sooner.train import parts


@pytest.mark.parametrize("rounds", [True, False])
def test_only_what_learns_is_rounded(monkeypatch: pytest.MonkeyPatch, rounds: bool) -> None:
    monkeypatch.setattr(parts, "multiplies_bf16", lambda: rounds)
    torch.manual_seed(0)
    x, weight = torch.randn(5, 64), torch.randn(7, 64, requires_grad=True)
    learning = parts.product(x, weight)
    with torch.no_grad():
        measured, exact = parts.product(x, weight), x @ weight.T
    torch.testing.assert_close(measured, exact)
    close = torch.allclose(learning, exact, atol=1e-5)
    assert close is not rounds
    torch.testing.assert_close(learning, exact, atol=0.2, rtol=0.02)
    torch.autograd.backward(learning.square().sum())
    assert weight.grad is not None and weight.grad.dtype == learning.dtype == torch.float32
    torch.testing.assert_close(weight.grad, 2 * exact.T @ x, atol=1.0, rtol=0.05)


@pytest.mark.parametrize(
    ("entry", "has"),
    [
        ({"flags": "fma avx512_bf16"}, True),
        ({"Features": "asimd bf16"}, True),
        ({"flags": "avx512f"}, False),
        ({}, False),
    ],
)
def test_what_the_processor_says_decides(monkeypatch: pytest.MonkeyPatch, entry: dict[str, str], has: bool) -> None:
    monkeypatch.setattr(machine, "_cpuinfo", lambda: entry)
    parts.multiplies_bf16.cache_clear()
    assert parts.multiplies_bf16() is has
    parts.multiplies_bf16.cache_clear()
