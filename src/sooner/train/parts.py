"""What drafts in training share: a gated feed-forward, rotary positions, and rates that fit each matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NORM_RATE = 0.02
FLOOR = 0.3  # the least output that a matrix is taken to have where rates are set


class Mlp(nn.Module):
    """down(SiLU(gate x) * up x)."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

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
