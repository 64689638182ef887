"""Feed-forwards: dense, or a mixture of experts. Each adds its output to the residual stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sooner.kernels.interface import Activation, Kernels, Norm, Packed


def residual(k: Kernels[Any], x: Tensor, y: Tensor, weight: Packed, post: Norm | None) -> Tensor:
    """x + y @ weight.T, the product normed before it is added where the family does so."""
    return k.linear(y, weight, add=x) if post is None else k.rmsnorm(k.linear(y, weight), post, add=x)


@dataclass(frozen=True, slots=True)
class Dense:
    """down(activation(gate x) * up x)."""

    gate_up: Packed
    down: Packed

    def add(self, k: Kernels[Any], x: Tensor, norm: Norm | None, post: Norm | None, activation: Activation) -> Tensor:
        return residual(k, x, k.gated(x, self.gate_up, norm=norm, activation=activation), self.down, post)

    @property
    def matrices(self) -> list[Packed]:
        return [self.gate_up, self.down]


@dataclass(frozen=True, slots=True)
class Mixture:
    """The `used` experts that the router likes best, weighted by the softmax of its scores (Jiang et al. 2024).

    A row's sum goes over its experts in the order of their numbers, whichever rows are beside it: on kernels whose rows
    are exact, so is the mixture's.
    """

    router: Packed
    experts: tuple[Dense, ...]
    used: int
    renormalise: bool

    def add(self, k: Kernels[Any], x: Tensor, norm: Norm | None, post: Norm | None, activation: Activation) -> Tensor:
        inner = x if norm is None else k.rmsnorm(x, norm)
        weights, chosen = self.route(k.linear(inner, self.router))
        out = torch.zeros_like(x)
        for number in sorted(set(chosen.flatten().tolist())):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            expert = self.experts[number]
            y = k.linear(k.gated(inner[rows], expert.gate_up, activation=activation), expert.down)
            out[rows] += weights[rows, place, None] * y
        return x + out if post is None else k.rmsnorm(out, post, add=x)

    def route(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """scores [R, experts] -> weights and experts [R, used], the best first, of equals the lower number."""
        ranked, order = scores.softmax(dim=1).sort(dim=1, descending=True, stable=True)
        weights, chosen = ranked[:, : self.used], order[:, : self.used]
        if self.renormalise:
            total = weights[:, :1]
            for place in range(1, self.used):  # one chain of sums: the same bits for a row wherever it lies
                total = total + weights[:, place : place + 1]
            weights = weights / total
        return weights, chosen

    @property
    def matrices(self) -> list[Packed]:
        return [self.router, *(matrix for expert in self.experts for matrix in expert.matrices)]
