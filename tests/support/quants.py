"""Quantised matrices of random blocks: every quant, every sign and every scale of groups occurs."""

from __future__ import annotations

import torch

from sooner.kernels.formats import DTYPES, FORMATS, Stored, store

# Where a block keeps float16 numbers: first word, and how many.
_HALVES = {"q4_1": (0, 2), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (104, 1)}


def random_quants(name: str, rows: int, columns: int, seed: int = 0, scale: float = 0.01) -> Stored:
    """[rows, columns] in the format `name`; `scale` is the size of the float16 numbers of a block."""
    g = torch.Generator().manual_seed(seed)
    if name in DTYPES:
        return store((scale * torch.randn(rows, columns, generator=g)).to(DTYPES[name]))
    layout = FORMATS[name]
    count = rows * columns // layout.block
    blocks = torch.randint(0, 256, (count, layout.block_bytes), dtype=torch.uint8, generator=g)
    first, halves = _HALVES.get(name, (0, 1))
    numbers = (scale * torch.randn(count, halves, generator=g)).to(torch.float16)
    blocks[:, 2 * first : 2 * (first + halves)] = numbers.view(torch.uint8)
    return Stored(name, (rows, columns), blocks.view(-1))
