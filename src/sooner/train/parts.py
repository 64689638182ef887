"""What drafts in training share: products, a gated feed-forward, rotary positions, and rates that fit each matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sooner.bench.machine import cpu_flags

NORM_RATE = 0.02
FLOOR = 0.3  # the least output that a matrix is taken to have where rates are set


@cache
def multiplies_bf16() -> bool:
    """Whether the processor has instructions for products of bfloat16 numbers, which are several times as fast."""
    return not cpu_flags().isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x [R, in] times weight [out, in] transposed, float32 [R, out].

    Where gradients are wanted, factors are rounded to bfloat16 if that is faster, and so are their gradients'. Weights,
    sums and all between products stay float32 (Micikevicius et al. 2018, arXiv 1710.03740, whose loss scaling
    bfloat16's range makes needless). Measurements are not rounded.
    """
    if torch.is_grad_enabled() and multiplies_bf16():
        return F.linear(x.bfloat16(), weight.bfloat16()).float()
    return F.linear(x, weight)


class Linear(nn.Linear):
    """A matrix without bias, applied by `product`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return product(x, self.weight)


class Mlp(nn.Module):
    """down(SiLU(gate x) * up x)."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden, width)
        self.up_proj = Linear(hidden, width)
        self.down_proj = Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [heads, R, size], cos and sin [R, size / 2]: pairs (i, i + size / 2)."""
    a, b = x.chunk(2, dim=2)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=2)


@torch.no_grad()
def rates(module: nn.Module, run: Callable[[], object]) -> dict[str, float]:
    """For each trained parameter, the rate at which one update of AdamW moves its output by at most that output's size.

    Inputs differ in size by a factor of 100 (raw hidden states, outlying neurons), so that no common rate would do.
    run: a pass over some rows.
    """
    found: dict[str, float] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            reach = inputs[0].abs().mean() * inputs[0].shape[-1]
            found.setdefault(f"{name}.weight", float(output.square().mean().sqrt().clamp(min=FLOOR) / reach))

        return note

    linears = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    hooks = [part.register_forward_hook(watch(name)) for name, part in linears]
    run()
    for hook in hooks:
        hook.remove()
    return {name: found.get(name, NORM_RATE) for name, p in module.named_parameters() if p.requires_grad}
