"""Memory for what is read as streams of many megabytes in every pass: weights, keys and values.

In pages of 4 kB such a stream runs out of the processor's page table cache, and everything that runs between two passes
must look its own pages up again. Matrices are often smaller than a huge page, so they share pieces of memory.
"""

from __future__ import annotations

import mmap

import numpy as np
import torch
from torch import Tensor

HUGE = 1 << 21  # bytes of a huge page
PIECE = 1 << 26  # what is not used of the last one is never touched, and takes no memory
NORESERVE = 0x4000  # Linux's MAP_NORESERVE: a cache may be given more than there is, and takes what it needs
LINE = 64  # of the cache: where a matrix begins


def huge(size: int) -> Tensor:
    """So many zeros, uint8, that take memory where they are written; in huge pages where the system has them."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.from_numpy(np.zeros(size, np.uint8))
    memory = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    memory.madvise(mmap.MADV_HUGEPAGE)
    data = torch.frombuffer(memory, dtype=torch.uint8)
    start = -data.data_ptr() % HUGE
    return data[start : start + size]


class Rooms:
    """Gives out memory, side by side in large pieces. A piece is freed when all that lies in it has been dropped."""

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)  # of the last piece

    def take(self, size: int) -> Tensor:
        """So many bytes, uint8."""
        whole = -(-size // LINE) * LINE
        if whole > self._free.numel():
            self._free = huge(max(whole, PIECE))
        taken, self._free = self._free[:size], self._free[whole:]
        return taken
