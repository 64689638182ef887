"""Refuses weights that are no numbers, before they turn every answer into noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sooner.errors import ModelError
from sooner.kernels.formats import FORMATS, Stored


@dataclass(frozen=True, slots=True)
class _Bits:
    """Where a format keeps floats: `count` words a block from `first` on. All exponent bits set: infinite or NaN."""

    word: type[np.unsignedinteger[Any]]
    exponent: int
    first: int = 0
    count: int = 1


_HALF = 0x7C00
_FLOATS = {
    "f32": _Bits(np.uint32, 0x7F800000),
    "bf16": _Bits(np.uint16, 0x7F80),
    "f16": _Bits(np.uint16, _HALF),
    "q8_0": _Bits(np.uint16, _HALF),
    "q4_0": _Bits(np.uint16, _HALF),
    "q4_1": _Bits(np.uint16, _HALF, count=2),
    "q5_0": _Bits(np.uint16, _HALF),
    "q5_1": _Bits(np.uint16, _HALF, count=2),
    "q4_k": _Bits(np.uint16, _HALF, count=2),
    "q5_k": _Bits(np.uint16, _HALF, count=2),
    "q6_k": _Bits(np.uint16, _HALF, first=104),
}
_CHUNK = 1 << 20  # blocks looked at in one go, to keep the copy small


def check_finite(name: str, stored: Stored) -> None:
    """Raises ModelError when a number of `stored`, or a scale of its blocks, is NaN or infinite."""
    bits = _FLOATS[stored.format]
    words = _words(stored, bits)
    for start in range(0, len(words), _CHUNK):
        if (words[start : start + _CHUNK] & bits.exponent).max() == bits.exponent:
            raise ModelError(f"tensor {name!r} holds NaN or infinite numbers; the file is damaged, download it again")


def _words(stored: Stored, bits: _Bits) -> NDArray[np.unsignedinteger[Any]]:
    """The floats' bit patterns [blocks, floats]."""
    words = stored.data.numpy().view(bits.word)
    block = FORMATS[stored.format].block_bytes // words.itemsize
    return words.reshape(-1, block)[:, bits.first : bits.first + bits.count]
