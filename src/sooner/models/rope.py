"""Rotary positions (Su et al. 2021) and the ways in which families stretch them. All of them end in frequencies.

linear: Chen et al. 2023. llama3: the smooth division of Llama 3.1. yarn: Peng et al. 2023. longrope: Ding et al. 2024.
The settings have the words of a Hugging Face config.json.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sooner.errors import ModelError
from sooner.models.settings import Settings, require
from sooner.weights.files import shorten


@dataclass(frozen=True, slots=True)
class Rope:
    """Pair i of a head turns by position * frequencies[i]; cos and sin are multiplied by `amplitude`.

    LongRoPE has other frequencies, `far`, for contexts of more than `near` positions. Which apply is decided once for
    the context that a model serves, not for each sequence: a key in a cache keeps its meaning as the text grows.
    """

    frequencies: tuple[float, ...]
    amplitude: float = 1.0
    far: tuple[float, ...] | None = None
    near: int = 0

    def tables(self, context: int) -> tuple[Tensor, Tensor]:
        """cos and sin, float32 [context, pairs], computed in float64."""
        turns = self.far if self.far is not None and context > self.near else self.frequencies
        positions = torch.arange(context, dtype=torch.float64)
        angles = positions[:, None] * torch.tensor(turns, dtype=torch.float64)
        return (angles.cos() * self.amplitude).float(), (angles.sin() * self.amplitude).float()


def plain_rope(theta: float, size: int) -> Rope:
    """theta^(-2 i / size) for each pair of `size` elements."""
    return Rope(tuple(theta ** (-2.0 * i / size) for i in range(size // 2)))


@dataclass(frozen=True, slots=True)
class _Plain:
    """What the kinds start from: the settings, and the frequencies without any scaling."""

    settings: Settings
    theta: float
    size: int
    context: int
    frequencies: tuple[float, ...]

    def positive(self, name: str, default: float | None = None) -> float:
        value = self.settings.real(name, default)
        require(0 < value <= 1e9, f"{name} of the rope settings is {value}, must be above 0 and at most 1e9")
        return value

    @property
    def original(self) -> float:
        """Positions that the model was first trained on."""
        return self.positive("original_max_position_embeddings", self.context)

    def amplitude(self, default: float) -> float:
        return default if self.settings.get("attention_factor") is None else self.positive("attention_factor")


def _default(plain: _Plain) -> Rope:
    return Rope(plain.frequencies)


def _linear(plain: _Plain) -> Rope:
    factor = plain.positive("factor")
    return Rope(tuple(f / factor for f in plain.frequencies))


def _llama3(plain: _Plain) -> Rope:
    """Long waves are divided by the factor, short ones kept, with a smooth passage between."""
    factor, original = plain.positive("factor"), plain.original
    low, high = plain.positive("low_freq_factor"), plain.positive("high_freq_factor")
    require(low < high, f"low_freq_factor {low} must be below high_freq_factor {high}")

    def scaled(f: float) -> float:
        kept = (original * f / (2 * math.pi) - low) / (high - low)
        kept = min(max(kept, 0.0), 1.0)
        return (1 - kept) * f / factor + kept * f

    return Rope(tuple(scaled(f) for f in plain.frequencies))


def _yarn(plain: _Plain) -> Rope:
    factor, original = plain.positive("factor"), plain.original
    last = plain.size - 1

    def pair(rotations: float) -> float:
        """The (fractional) pair that turns so often over the original context."""
        return plain.size * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(plain.theta))

    require(plain.theta > 1, f"rope_theta is {plain.theta}, yarn needs it above 1")
    low = max(math.floor(pair(plain.positive("beta_fast", 32.0))), 0)
    high = min(math.ceil(pair(plain.positive("beta_slow", 1.0))), last)
    span = high - low or 0.001

    def scaled(i: int, f: float) -> float:
        divided = min(max((i - low) / span, 0.0), 1.0)
        return f / factor * divided + f * (1 - divided)

    amplitude = plain.amplitude(0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
    return Rope(tuple(scaled(i, f) for i, f in enumerate(plain.frequencies)), amplitude)


def _longrope(plain: _Plain) -> Rope:
    near, far = (plain.settings.reals(name, plain.size // 2) for name in ("short_factor", "long_factor"))
    original = plain.original
    factor = plain.positive("factor", plain.context / original)
    amplitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0

    def divided(factors: list[float]) -> tuple[float, ...]:
        return tuple(f / by for f, by in zip(plain.frequencies, factors, strict=True))

    return Rope(divided(near), plain.amplitude(amplitude), divided(far), int(original))


_COMMON = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
_ORIGINAL = "original_max_position_embeddings"
_KINDS: dict[str, tuple[Callable[[_Plain], Rope], tuple[str, ...]]] = {
    "default": (_default, ()),
    "linear": (_linear, ("factor",)),
    "llama3": (_llama3, ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL)),
    "yarn": (_yarn, ("factor", "attention_factor", "beta_fast", "beta_slow", _ORIGINAL)),
    "longrope": (_longrope, ("factor", "attention_factor", "short_factor", "long_factor", _ORIGINAL)),
}
_ALIASES = {"su": "longrope"}


def read_rope(settings: Mapping[str, Any], head_size: int, context: int) -> Rope:
    """`context`: the positions that the model takes. Raises ModelError, naming what is not supported."""
    kind = settings.get("rope_type") or settings.get("type") or "default"
    kind = _ALIASES.get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ModelError(f"rope scaling {shorten(kind)} is not supported; supported: {', '.join(_KINDS)}")
    scale, known = _KINDS[kind]
    unknown = sorted(key for key, value in settings.items() if key not in (*_COMMON, *known) and value is not None)
    if unknown:
        raise ModelError(f"rope scaling {kind!r} with {', '.join(map(shorten, unknown))} is not supported")
    values = Settings(settings)
    theta = values.real("rope_theta", 10000.0)
    require(1 <= theta <= 1e12, f"rope_theta is {theta}, must be between 1 and 1e+12")
    size = int(head_size * values.real("partial_rotary_factor", 1.0) + 1e-6)
    require(
        2 <= size <= head_size and size % 2 == 0, f"{size} of {head_size} elements of a head are rotary, must be even"
    )
    return scale(_Plain(values, theta, size, context, plain_rope(theta, size).frequencies))
