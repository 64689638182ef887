"""How a matrix lies in a file or in memory, and what its numbers are.

Every kernel multiplies by the float32 value that `dequantise` returns, so a format changes bytes, never results (but
for the rounding of activations, where that was asked for).
Block layouts are those of GGUF (ggml-quants): blocks of 32 or 256 along the input dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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
        Format("q5_0", 32, 22),  # f16 scale, 32 x 1 high bit, 32 x 4 bits, value = scale * (q - 16)
        Format("q5_1", 32, 24),  # f16 scale, f16 minimum, 32 x 1 high bit, 32 x 4 bits, value = scale * q + minimum
        # Groups of 32 with scales and minima of 6 bits, themselves in units of two f16: value = scale * q - minimum.
        Format("q4_k", 256, 144),  # f16, f16, 8 x (6 + 6 bits), 256 x 4 bits
        Format("q5_k", 256, 176),  # f16, f16, 8 x (6 + 6 bits), 256 x 1 high bit, 256 x 4 bits
        Format("q6_k", 256, 210),  # 256 x 4 bits, 256 x 2 high bits, int8 scales of groups of 16, f16 unit of these
    )
}
# In memory only: what other blocks mean, to the bit. A product of two of their numbers, a scale, may need all of
# float32's bits. g32q4 and g32q8 have a float32 scale and minimum for 32 inputs, value = scale * q + minimum; g16q8 a
# scale for 16 inputs, value = scale * q. Quants lie as in Q4_1 and Q8_0.
REPACKED: dict[str, Format] = {
    f.name: f for f in (Format("g32q4", 32, 24), Format("g32q8", 32, 40), Format("g16q8", 16, 20))
}
LAYOUTS = FORMATS | REPACKED
KINDS = ("auto", "f32", "f16", "bf16", "q8", "q4")  # what the user may ask the weights to be kept in
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# What inputs of products with weights in groups are rounded to, in groups of ROUNDED along a row.
PRECISIONS = ("float32", "int8")
ROUNDED = 32


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
    layout = LAYOUTS[stored.format]
    blocks = stored.data.view(-1, layout.block_bytes)
    values, step = torch.empty(len(blocks), layout.block), max(_CHUNK // layout.block, 1)
    for part, some in zip(torch.split(values, step), torch.split(blocks, step)):
        part.copy_(_DEQUANTISERS[stored.format](some).view(part.shape))
    return values.view(stored.shape)


_CHUNK = 1 << 18  # elements looked at in one go: what is in between takes several times the room, and fits in a cache


def _f16(columns: Tensor) -> Tensor:
    return columns.contiguous().view(torch.float16).to(torch.float32)


def _nibbles(packed: Tensor) -> Tensor:
    """[blocks, 16] bytes -> [blocks, 32]: low nibbles are elements 0..15, high nibbles 16..31."""
    return torch.cat([packed & 15, packed >> 4], dim=1).to(torch.float32)


def _f32(columns: Tensor) -> Tensor:
    return columns.contiguous().view(torch.float32)


def _int8(columns: Tensor) -> Tensor:
    return columns.contiguous().view(torch.int8).to(torch.float32)


def _q8_0(blocks: Tensor) -> Tensor:
    return _f16(blocks[:, :2]) * _int8(blocks[:, 2:])


def _q4_0(blocks: Tensor) -> Tensor:
    return _f16(blocks[:, :2]) * (_nibbles(blocks[:, 2:]) - 8.0)


def _q4_1(blocks: Tensor) -> Tensor:
    return _f16(blocks[:, :2]) * _nibbles(blocks[:, 4:]) + _f16(blocks[:, 2:4])


def _five_bits(high: Tensor, low: Tensor) -> Tensor:
    """[blocks, 4] bytes of high bits, element 0 lowest, and [blocks, 16] bytes of nibbles -> [blocks, 32]."""
    bits = (high[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    return _nibbles(low) + 16.0 * bits.flatten(1)


def _q5_0(blocks: Tensor) -> Tensor:
    return _f16(blocks[:, :2]) * (_five_bits(blocks[:, 2:6], blocks[:, 6:]) - 16.0)


def _q5_1(blocks: Tensor) -> Tensor:
    return _f16(blocks[:, :2]) * _five_bits(blocks[:, 4:8], blocks[:, 8:]) + _f16(blocks[:, 2:4])


def _group_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minima [blocks, 8, 1] of Q4_K and Q5_K. Twelve bytes hold them: four scales and four minima in the low
    six bits of the first eight, the low nibbles of the other four of each kind in the last, their high bits on top."""
    a, b, c = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    scales = torch.cat([a & 63, (c & 15) | ((a >> 2) & 48)], dim=1).to(torch.float32)
    minima = torch.cat([b & 63, (c >> 4) | ((b >> 2) & 48)], dim=1).to(torch.float32)
    return (_f16(blocks[:, :2]) * scales)[:, :, None], (_f16(blocks[:, 2:4]) * minima)[:, :, None]


def _nibbles_of_32(packed: Tensor) -> Tensor:
    """[blocks, 128] bytes -> [blocks, 8, 32]: each 32 bytes hold a group in their low nibbles and the next above."""
    runs = packed.reshape(-1, 4, 1, 32)
    return torch.cat([runs & 15, runs >> 4], dim=2).view(-1, 8, 32)


def _quants_q5_k(blocks: Tensor) -> Tensor:
    """[blocks, 8, 32] uint8."""
    high = (blocks[:, 16:48].reshape(-1, 1, 32) >> torch.arange(8, dtype=torch.uint8)[:, None]) & 1
    return _nibbles_of_32(blocks[:, 48:]) | (high << 4)


def _quants_q6_k(blocks: Tensor) -> Tensor:
    """[blocks, 16, 16] uint8, 32 more than what they stand for."""
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = torch.cat([low & 15, low >> 4], dim=2).view(-1, 8, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    return (low | (high.view(-1, 8, 32) << 4)).view(-1, 16, 16)


def _scales_q6_k(blocks: Tensor) -> Tensor:
    """[blocks, 16, 1]."""
    return (_f16(blocks[:, 208:]) * _int8(blocks[:, 192:208]))[:, :, None]


def _q4_k(blocks: Tensor) -> Tensor:
    scales, minima = _group_scales(blocks)
    return scales * _nibbles_of_32(blocks[:, 16:]).to(torch.float32) - minima


def _q5_k(blocks: Tensor) -> Tensor:
    scales, minima = _group_scales(blocks)
    return scales * _quants_q5_k(blocks).to(torch.float32) - minima


def _q6_k(blocks: Tensor) -> Tensor:
    return _scales_q6_k(blocks) * (_quants_q6_k(blocks).to(torch.float32) - 32.0)


def _g32q4(blocks: Tensor) -> Tensor:
    return _f32(blocks[:, :4]) * _nibbles(blocks[:, 8:]) + _f32(blocks[:, 4:8])


def _g32q8(blocks: Tensor) -> Tensor:
    return _f32(blocks[:, :4]) * _int8(blocks[:, 8:]) + _f32(blocks[:, 4:8])


def _g16q8(blocks: Tensor) -> Tensor:
    return _f32(blocks[:, :4]) * _int8(blocks[:, 4:])


_DEQUANTISERS: dict[str, Callable[[Tensor], Tensor]] = {
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "g32q4": _g32q4,
    "g32q8": _g32q8,
    "g16q8": _g16q8,
}


def kept_as(name: str, known: Collection[str]) -> str:
    """The format in `known` that holds the numbers of format `name` to the bit; float32 where no other does."""
    repacked = _REPACKERS[name][0] if name in _REPACKERS else name
    return next((candidate for candidate in (name, repacked) if candidate in known), "f32")


def exactly(stored: Stored, known: Collection[str]) -> Stored:
    """The same numbers in one of the formats in `known`, to the bit: in `kept_as`."""
    name = kept_as(stored.format, known)
    if name == stored.format:
        return stored
    if name == "f32":
        return store(dequantise(stored))
    layout = FORMATS[stored.format]
    blocks = stored.data.view(-1, layout.block_bytes)
    wide = layout.block // LAYOUTS[name].block * LAYOUTS[name].block_bytes
    packed = torch.empty(len(blocks), wide, dtype=torch.uint8)
    step, (_, repack) = max(_CHUNK // layout.block, 1), _REPACKERS[stored.format]
    for part, some in zip(torch.split(packed, step), torch.split(blocks, step)):
        part.copy_(repack(some).view(part.shape))
    return Stored(name, stored.shape, packed.view(-1))


def _q8_0_of_q5_0(blocks: Tensor) -> Tensor:
    q = (_five_bits(blocks[:, 2:6], blocks[:, 6:]) - 16.0).to(torch.int8)
    return torch.cat([blocks[:, :2], q.view(torch.uint8)], dim=1)


def _g32q8_of_q5_1(blocks: Tensor) -> Tensor:
    scale, minimum = (_bytes(_f16(blocks[:, i : i + 2]), torch.float32) for i in (0, 2))
    return torch.cat([scale, minimum, _five_bits(blocks[:, 4:8], blocks[:, 8:]).to(torch.uint8)], dim=1)


def _with_scales(blocks: Tensor, quants: Tensor) -> Tensor:
    """quants [blocks, 8, bytes] behind each group's float32 scale and minimum."""
    scales, minima = _group_scales(blocks)
    return torch.cat([_bytes(scales, torch.float32), _bytes(-minima, torch.float32), quants], dim=2)


def _g32q4_of_q4_k(blocks: Tensor) -> Tensor:
    q = _nibbles_of_32(blocks[:, 16:])
    return _with_scales(blocks, q[:, :, :16] | (q[:, :, 16:] << 4))


def _g32q8_of_q5_k(blocks: Tensor) -> Tensor:
    return _with_scales(blocks, _quants_q5_k(blocks))


def _g16q8_of_q6_k(blocks: Tensor) -> Tensor:
    q = (_quants_q6_k(blocks).to(torch.int8) - 32).view(torch.uint8)
    return torch.cat([_bytes(_scales_q6_k(blocks), torch.float32), q], dim=2)


_REPACKERS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "q5_0": ("q8_0", _q8_0_of_q5_0),
    "q5_1": ("g32q8", _g32q8_of_q5_1),
    "q4_k": ("g32q4", _g32q4_of_q4_k),
    "q5_k": ("g32q8", _g32q8_of_q5_k),
    "q6_k": ("g16q8", _g16q8_of_q6_k),
}


def convert(stored: Stored, kind: str, sensitive: bool = False) -> Stored:
    """A matrix in the format that the user asked for; `auto` keeps what the file has, to the bit.

    q8 and q4 round to blocks of Q8_0 and Q4_1 unless the matrix is in such blocks already. sensitive: the embedding
    and the head, which stay at 8 bits under q4.
    """
    if kind == "auto":
        return stored
    wanted = {"q8": ("q8_0",), "q4": ("q8_0",) if sensitive else ("q4_1", "q4_0", "q4_k")}.get(kind, (kind,))
    if stored.format in wanted:
        return stored
    if stored.format == "q5_0" and "q8_0" in wanted:
        return exactly(stored, wanted)
    name, columns = wanted[0], stored.shape[-1]
    if columns % FORMATS[name].block:
        raise InputError(f"a matrix of shape {stored.shape} has no whole blocks of 32 inputs; use weights f32 or bf16")
    return Stored(name, stored.shape, _rounded(stored, name, max(_CHUNK // columns, 1)).view(-1))


def _rounded(stored: Stored, name: str, step: int) -> Tensor:
    """The bytes of the same numbers in another format, `step` rows at a time."""
    columns, layout = stored.shape[-1], FORMATS[name]
    rows = stored.data.view(stored.nbytes // _row_bytes(stored), -1)
    packed = torch.empty(len(rows), columns // layout.block * layout.block_bytes, dtype=torch.uint8)
    for part, some in zip(torch.split(packed, step), torch.split(rows, step)):
        values = dequantise(Stored(stored.format, (len(some), columns), some.reshape(-1)))
        blocks = values.view(-1, layout.block)
        part.copy_((_PACKERS[name](blocks) if name in _PACKERS else _bytes(blocks, DTYPES[name])).view(part.shape))
    return packed


def _row_bytes(stored: Stored) -> int:
    layout = FORMATS[stored.format]
    return stored.shape[-1] // layout.block * layout.block_bytes


def _pack_q8_0(blocks: Tensor) -> Tensor:
    scale = blocks.abs().amax(dim=1, keepdim=True) / 127.0
    q = torch.where(scale > 0, blocks / scale, 0.0).round().clamp(-127, 127).to(torch.int8)
    return torch.cat([_bytes(scale, torch.float16), q.view(torch.uint8)], dim=1)


def _pack_q4_1(blocks: Tensor) -> Tensor:
    low, high = blocks.amin(dim=1, keepdim=True), blocks.amax(dim=1, keepdim=True)
    scale = (high - low) / 15.0
    q = torch.where(scale > 0, (blocks - low) / scale, 0.0).round().clamp(0, 15).to(torch.uint8)
    return torch.cat([_bytes(scale, torch.float16), _bytes(low, torch.float16), q[:, :16] | (q[:, 16:] << 4)], dim=1)


_PACKERS = {"q8_0": _pack_q8_0, "q4_1": _pack_q4_1}


def _bytes(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype).view(torch.uint8)
