"""How a matrix lies in a file or in memory, and what its numbers are.

Every kernel multiplies by the float32 value that `dequantise` returns, so a format changes bytes, never results.
Block layouts are those of GGUF (ggml-quants): blocks of 32 along the input dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sooner.errors import InputError


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    block: int  # elements in a block
    block_bytes: int


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("f32", 1, 4),
        Format("f16", 1, 2),
        Format("bf16", 1, 2),
        Format("q8_0", 32, 34),  # f16 scale, 32 x int8
        Format("q4_0", 32, 18),  # f16 scale, 32 x 4 bits, value = scale * (q - 8)
        Format("q4_1", 32, 20),  # f16 scale, f16 minimum, 32 x 4 bits, value = scale * q + minimum
    )
}
KINDS = ("auto", "f32", "f16", "bf16", "q8", "q4")  # what the user may ask the weights to be kept in
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor exactly as its file holds it: `data` is the raw bytes [nbytes] (uint8), rows one after another."""

    format: str
    shape: tuple[int, ...]
    data: Tensor

    @property
    def nbytes(self) -> int:
        return self.data.numel()

    def rows(self, index: Tensor) -> Stored:
        """The same matrix with its rows taken in the order of `index` (blocks never cross rows)."""
        picked = self.data.view(self.shape[0], -1)[index].contiguous()
        return Stored(self.format, (len(index), *self.shape[1:]), picked.view(-1))


def store(values: Tensor) -> Stored:
    """Wraps a float32, float16 or bfloat16 tensor, without a copy where it is contiguous."""
    name = next(name for name, dtype in DTYPES.items() if dtype == values.dtype)
    return Stored(name, tuple(values.shape), values.contiguous().view(-1).view(torch.uint8))


def concatenate(parts: list[Stored]) -> Stored:
    """Stacks matrices of one format and one input size along their output rows."""
    first = parts[0]
    if any(p.format != first.format or p.shape[1:] != first.shape[1:] for p in parts):
        raise ValueError(f"cannot stack {[(p.format, p.shape) for p in parts]}")
    rows = sum(p.shape[0] for p in parts)
    return Stored(first.format, (rows, *first.shape[1:]), torch.cat([p.data for p in parts]))


def dequantise(stored: Stored) -> Tensor:
    """The float32 numbers that `stored` stands for, in its shape; equal bit for bit to the `gguf` package's."""
    if stored.format in DTYPES:
        return stored.data.view(DTYPES[stored.format]).to(torch.float32).view(stored.shape)
    blocks = stored.data.view(-1, FORMATS[stored.format].block_bytes)
    return _DEQUANTISERS[stored.format](blocks).reshape(stored.shape)


def _f16(columns: Tensor) -> Tensor:
    return columns.contiguous().view(torch.float16).to(torch.float32)


def _nibbles(packed: Tensor) -> Tensor:
    """[blocks, 16] bytes -> [blocks, 32]: low nibbles are elements 0..15, high nibbles 16..31."""
    return torch.cat([packed & 15, packed >> 4], dim=1).to(torch.float32)


def _q8_0(blocks: Tensor) -> Tensor:
    return _f16(blocks[:, :2]) * blocks[:, 2:].contiguous().view(torch.int8).to(torch.float32)


def _q4_0(blocks: Tensor) -> Tensor:
    return _f16(blocks[:, :2]) * (_nibbles(blocks[:, 2:]) - 8.0)


def _q4_1(blocks: Tensor) -> Tensor:
    return _f16(blocks[:, :2]) * _nibbles(blocks[:, 4:]) + _f16(blocks[:, 2:4])


_DEQUANTISERS = {"q8_0": _q8_0, "q4_0": _q4_0, "q4_1": _q4_1}


def convert(stored: Stored, kind: str, sensitive: bool = False) -> Stored:
    """A matrix in the format that the user asked for; `auto` keeps what the file has, to the bit.

    q8 and q4 round to blocks of Q8_0 and Q4_1 unless the matrix is in such blocks already. sensitive: the embedding
    and the head, which stay at 8 bits under q4.
    """
    if kind == "auto":
        return stored
    wanted = {"q8": ("q8_0",), "q4": ("q8_0",) if sensitive else ("q4_1", "q4_0")}.get(kind, (kind,))
    if stored.format in wanted:
        return stored
    values = dequantise(stored)
    if kind in DTYPES:
        return store(values.to(DTYPES[kind]))
    if values.shape[-1] % 32:
        raise InputError(f"a matrix of shape {stored.shape} has no whole blocks of 32 inputs; use weights f32 or bf16")
    blocks = values.view(-1, 32)
    packed = _pack_q8_0(blocks) if wanted[0] == "q8_0" else _pack_q4_1(blocks)
    return Stored(wanted[0], stored.shape, packed.view(-1))


def _pack_q8_0(blocks: Tensor) -> Tensor:
    scale = blocks.abs().amax(dim=1, keepdim=True) / 127.0
    q = torch.where(scale > 0, blocks / scale, 0.0).round().clamp(-127, 127).to(torch.int8)
    return torch.cat([_bytes_f16(scale), q.view(torch.uint8)], dim=1)


def _pack_q4_1(blocks: Tensor) -> Tensor:
    low, high = blocks.amin(dim=1, keepdim=True), blocks.amax(dim=1, keepdim=True)
    scale = (high - low) / 15.0
    q = torch.where(scale > 0, (blocks - low) / scale, 0.0).round().clamp(0, 15).to(torch.uint8)
    return torch.cat([_bytes_f16(scale), _bytes_f16(low), q[:, :16] | (q[:, 16:] << 4)], dim=1)


def _bytes_f16(column: Tensor) -> Tensor:
    return column.to(torch.float16).view(torch.uint8)
