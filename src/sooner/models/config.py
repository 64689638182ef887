"""What distinguishes one model from another, as data: the shape of a decoder, and the tensors that it wants.

models/families.py says what the families are, models/sources.py reads a configuration from a model's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sooner.kernels.interface import Activation
from sooner.models.rope import Rope
from sooner.models.settings import require

QkNorm = Literal["none", "head", "width"]  # of queries and keys: each head by itself, or all heads together


@dataclass(frozen=True, slots=True)
class Attention:
    """How one layer sees: `rope` None has no rotary positions; `window` counts the row itself."""

    rope: Rope | None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of `count` feed-forwards, `used` of them for each row, by softmax over the router's scores.

    renormalise: the weights of those in use are scaled to sum to 1.
    """

    count: int
    used: int
    renormalise: bool

    def __post_init__(self) -> None:
        require(1 <= self.used <= self.count, f"{self.used} of {self.count} experts are in use")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's shape. Widths in elements. Checks itself; raises ModelError.

    attention: of each layer. mlp: inner width of a feed-forward, or of one expert. norms: which of attn_norm,
    attn_post_norm, mlp_norm and mlp_post_norm a layer has. biases: which of q, k, v and o have one.
    attention_scale: of scores, head_size^-1/2 where it is None. Soft caps: x becomes cap * tanh(x / cap).
    """

    architecture: str
    attention: tuple[Attention, ...]
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    context: int
    norm_eps: float
    tied: bool
    activation: Activation = "silu"
    norms: tuple[str, ...] = ("attn_norm", "mlp_norm")
    qk_norm: QkNorm = "none"
    biases: tuple[str, ...] = ()
    experts: Experts | None = None
    attention_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embed_scale: float = 1.0
    eos: frozenset[int] = frozenset()
    bos: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value: float | None = getattr(self, name)
            if value is not None:
                require(low <= value <= high, f"{name} is {value}, must be between {low:g} and {high:g}")
        require(self.heads % self.kv_heads == 0, f"{self.heads} heads do not share {self.kv_heads} kv_heads evenly")
        require(self.head_size % 2 == 0, f"head_size is {self.head_size}, must be even for rotary positions")
        matrices = self.layers * (self.experts.count if self.experts else 1)
        require(matrices <= 1 << 15, f"{self.layers} layers of {self.experts} have {matrices} experts, at most 32768")
        for window in {attention.window for attention in self.attention} - {None}:
            require(window is not None and window > 0, f"the sliding window is {window}, must be above 0")
        for token in self.eos if self.bos is None else self.eos | {self.bos}:
            require(0 <= token < self.vocabulary, f"eos or bos {token} is outside the vocabulary of {self.vocabulary}")

    @property
    def layers(self) -> int:
        return len(self.attention)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that the decoder wants, by our names, with its shape (outputs, inputs)."""
        layer = self._attention_shapes() | self._mlp_shapes() | dict.fromkeys(self.norms, (self.hidden,))
        ends = {"embed": (self.vocabulary, self.hidden), "norm": (self.hidden,), "head": (self.vocabulary, self.hidden)}
        if self.tied:
            del ends["head"]
        return ends | {f"layers.{i}.{name}": shape for i in range(self.layers) for name, shape in layer.items()}

    def _attention_shapes(self) -> dict[str, tuple[int, ...]]:
        query, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        matrices = {
            "q": (query, self.hidden),
            "k": (kv, self.hidden),
            "v": (kv, self.hidden),
            "o": (self.hidden, query),
        }
        norms: Mapping[QkNorm, dict[str, tuple[int, ...]]] = {
            "none": {},
            "head": {"q_norm": (self.head_size,), "k_norm": (self.head_size,)},
            "width": {"q_norm": (query,), "k_norm": (kv,)},
        }
        return matrices | norms[self.qk_norm] | {f"{name}_bias": matrices[name][:1] for name in self.biases}

    def _mlp_shapes(self) -> dict[str, tuple[int, ...]]:
        inner, outer = (self.mlp, self.hidden), (self.hidden, self.mlp)
        dense: dict[str, tuple[int, ...]] = {"gate": inner, "up": inner, "down": outer}
        if self.experts is None:
            return dense
        router: dict[str, tuple[int, ...]] = {"router": (self.experts.count, self.hidden)}
        experts = range(self.experts.count)
        return router | {f"experts.{e}.{name}": shape for e in experts for name, shape in dense.items()}


LIMITS: dict[str, tuple[float, float]] = {
    "layers": (1, 1024),
    "hidden": (1, 1 << 17),
    "heads": (1, 1 << 12),
    "kv_heads": (1, 1 << 12),
    "head_size": (2, 1 << 12),
    "mlp": (1, 1 << 20),
    "vocabulary": (1, 1 << 21),
    "context": (1, 1 << 24),
    "norm_eps": (0.0, 1.0),
    "attention_scale": (1e-9, 1e9),
    "attention_softcap": (1e-9, 1e9),
    "logit_softcap": (1e-9, 1e9),
}
