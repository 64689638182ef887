"""Reads GGUF files, versions 2 and 3: metadata, and tensors as maps of the file.

The layout is that of the GGUF specification (ggml, docs/gguf.md). Nothing in the file is believed: every count, length
and offset is checked against the bytes that are there before anything is taken from it, so a hostile header costs a
bounded time and memory and ends in one ModelError.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sooner.errors import ModelError
from sooner.kernels.formats import FORMATS, Stored
from sooner.weights.files import map_bytes, shorten

Buffer = mmap.mmap | bytes
Value = bool | int | float | str | list[str] | NDArray[np.generic]

HEADER_BYTES = 24 << 20  # the largest vocabularies in use, with their merges, take about 14 MiB and 776,000 strings
HEADER_STRINGS = 3 << 18
STRING_BYTES = 1 << 20
NAME_BYTES = 1 << 10  # of keys and tensors
ENTRIES = 1 << 14  # metadata keys, and tensors
DIMENSIONS = 4
ALIGNMENTS = [1 << power for power in range(3, 17)]

# The types that GGML has named, by number; what `FORMATS` lacks is refused by this name.
_TYPES = """
    F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL
    IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 Q4_0_4_4 Q4_0_4_8 Q4_0_8_8 TQ1_0 TQ2_0 IQ4_NL_4_4 IQ4_NL_4_8
    IQ4_NL_8_8 MXFP4 NVFP4 Q1_0
"""
TYPES: dict[int, str] = dict(enumerate(_TYPES.split()))

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS = {
    number: np.dtype(code)
    for number, code in enumerate(("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?", "", "", "<u8", "<i8", "<f8"))
    if code
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufFile:
    """Metadata by key (numbers in numpy arrays); tensors by the file's own names, with shapes (outputs, inputs)."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, Stored]


def read_gguf(path: Path) -> GgufFile:
    """Maps `path`; the file must stay as it is while its tensors are in use. Raises ModelError."""
    with path.open("rb") as file:
        if path.stat().st_size < len(b"GGUF"):
            raise ModelError(f"the file has {path.stat().st_size} bytes, a GGUF file at least 24; download it again")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            return parse_gguf(whole, partial(map_bytes, file))


def parse_gguf(buffer: Buffer, take: Callable[[int, int], torch.Tensor]) -> GgufFile:
    """As `read_gguf`, on a whole file in memory; `take(start, count)` returns the bytes of a tensor."""
    cursor = _Cursor(buffer)
    tensors, keys = _preamble(cursor)
    metadata = _metadata(cursor, keys)
    entries = _entries(cursor, tensors)
    base = _aligned(cursor.at, _alignment(metadata))
    _check_places(base, _alignment(metadata), entries, len(buffer))
    return GgufFile(metadata, {e.name: Stored(e.format, e.shape, take(base + e.offset, e.nbytes)) for e in entries})


class _Cursor:
    """A position in the header that cannot leave the file or the header's limit."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.end = min(len(buffer), HEADER_BYTES)
        self.at = 0
        self.strings_left = HEADER_STRINGS

    def take(self, count: int, what: str) -> int:
        """Moves on by `count` bytes and returns where they begin."""
        start = self.at
        if count > self.end - start:
            limit = "end of the file" if self.end == len(self.buffer) else "header limit"
            raise ModelError(
                f"{what} takes {count} bytes at byte {start}, past the {limit} at {self.end}; "
                "the file is truncated or damaged, download it again"
            )
        self.at = start + count
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.buffer, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.buffer, self.take(8, what))[0])

    def string(self, what: str, limit: int = STRING_BYTES) -> str:
        length = self.u64(what)
        if length > limit:
            raise ModelError(f"{what} has {length} bytes, at most {limit} are read; the header is damaged")
        start = self.take(length, what)
        try:
            return self.buffer[start : self.at].decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{what} is not UTF-8 ({error.reason} at byte {start + error.start})") from None

    def strings(self, count: int, what: str) -> list[str]:
        """`count` strings. Vocabularies are long: the usual case has no call of ours in its loop."""
        found: list[str] = []
        buffer, at, end, add = self.buffer, self.at, self.end, found.append
        with suppress(UnicodeDecodeError):
            for _ in range(count):
                start = at + 8
                stop = start + int.from_bytes(buffer[at:start], "little")
                if stop > end or stop - start > STRING_BYTES:
                    break
                add(buffer[start:stop].decode())
                at = stop
        self.at = at
        return found + [self.string(what) for _ in range(count - len(found))]  # one that is wrong says how

    def count(self, what: str, smallest: int, limit: int) -> int:
        """How many things follow: at most `limit`, and what fits when each takes `smallest` bytes at least."""
        number = self.u64(what)
        room = min((self.end - self.at) // smallest, limit)
        if number > room:
            raise ModelError(f"{what} is {number}, but there is room for {room}; the header is damaged")
        return number


def _preamble(cursor: _Cursor) -> tuple[int, int]:
    start = cursor.take(4, "the magic number")
    if cursor.buffer[start : cursor.at] != b"GGUF":
        raise ModelError(f"begins with {cursor.buffer[:4]!r}, not with b'GGUF'; this is no GGUF file")
    version = cursor.u32("the version")
    if version not in (2, 3):
        big = version and version & 0xFFFF == 0
        what = "big-endian" if big else f"version {version}"
        raise ModelError(f"GGUF {what} is not supported; supported are versions 2 and 3, little-endian")
    tensors = cursor.count("the number of tensors", 24, ENTRIES)
    return tensors, cursor.count("the number of metadata keys", 13, ENTRIES)


def _metadata(cursor: _Cursor, keys: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(keys):
        key = cursor.string(f"metadata key {index}", NAME_BYTES)
        if key in metadata:
            raise ModelError(f"metadata key {key!r} comes twice; the header is damaged")
        metadata[key] = _value(cursor, key)
    return metadata


def _value(cursor: _Cursor, key: str) -> Value:
    kind = cursor.u32(f"the type of {key!r}")
    if kind == _STRING:
        return cursor.string(f"the value of {key!r}")
    if kind == _ARRAY:
        return _array(cursor, key)
    scalar: Value = _numbers(cursor, key, kind, 1)[0].item()
    return scalar


def _array(cursor: _Cursor, key: str) -> Value:
    kind = cursor.u32(f"the element type of {key!r}")
    if kind == _ARRAY:
        raise ModelError(f"metadata key {key!r} is an array of arrays; supported are arrays of numbers and strings")
    if kind == _STRING:
        count = cursor.count(f"the length of {key!r}", 8, cursor.strings_left)
        cursor.strings_left -= count
        return cursor.strings(count, f"an element of {key!r}")
    return _numbers(cursor, key, kind, cursor.count(f"the length of {key!r}", 1, HEADER_BYTES))


def _numbers(cursor: _Cursor, key: str, kind: int, count: int) -> NDArray[np.generic]:
    if kind not in _SCALARS:
        raise ModelError(f"metadata key {key!r} has the unknown type {kind}; the types end at {max(_SCALARS)}")
    dtype = _SCALARS[kind]
    start = cursor.take(count * dtype.itemsize, f"the value of {key!r}")
    return np.frombuffer(cursor.buffer[start : cursor.at], dtype=dtype)


def _alignment(metadata: Mapping[str, Value]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or value not in ALIGNMENTS:
        limit = f"a power of two from {ALIGNMENTS[0]} to {ALIGNMENTS[-1]}"
        raise ModelError(f"general.alignment is {shorten(value)}, must be {limit}; the header is damaged")
    return value


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the header says of one tensor; `offset` counts from the start of the tensor data."""

    name: str
    shape: tuple[int, ...]
    offset: int
    format: str
    nbytes: int


def _entries(cursor: _Cursor, count: int) -> list[_Entry]:
    entries = [_entry(cursor, index) for index in range(count)]
    names: set[str] = set()
    for entry in entries:
        if entry.name in names:
            raise ModelError(f"tensor {entry.name!r} comes twice; the header is damaged")
        names.add(entry.name)
    return entries


def _entry(cursor: _Cursor, index: int) -> _Entry:
    name = cursor.string(f"the name of tensor {index}", NAME_BYTES)
    dimensions = cursor.u32(f"the rank of tensor {name!r}")
    if not 1 <= dimensions <= DIMENSIONS:
        raise ModelError(f"tensor {name!r} has {dimensions} dimensions, must have 1 to {DIMENSIONS}")
    shape = tuple(cursor.u64(f"the shape of tensor {name!r}") for _ in range(dimensions))[::-1]
    kind = cursor.u32(f"the type of tensor {name!r}")
    offset = cursor.u64(f"the offset of tensor {name!r}")
    return _Entry(name, shape, offset, *_sized(name, shape, kind, len(cursor.buffer)))


def _sized(name: str, shape: tuple[int, ...], kind: int, file_bytes: int) -> tuple[str, int]:
    """Format and bytes of a tensor."""
    kind_name = TYPES.get(kind, f"number {kind}")
    form = FORMATS.get(kind_name.lower())
    if form is None:
        supported = ", ".join(each.upper() for each in FORMATS)
        raise ModelError(f"tensor {name!r} has the type {kind_name}, which is not supported; supported are {supported}")
    if min(shape) < 1 or shape[-1] % form.block:
        raise ModelError(
            f"tensor {name!r} has shape {shape}; its rows must be whole {kind_name} blocks of {form.block}"
        )
    nbytes = prod(shape) // form.block * form.block_bytes
    if nbytes > file_bytes:
        raise ModelError(f"tensor {name!r} has shape {shape}, {nbytes} bytes, but the file has {file_bytes} in all")
    return form.name, nbytes


def _check_places(base: int, alignment: int, entries: list[_Entry], file_bytes: int) -> None:
    """The tensors lie in the file, aligned, and none over another."""
    free, before = 0, ""
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset % alignment:
            raise ModelError(f"tensor {entry.name!r} lies at offset {entry.offset}, no multiple of {alignment}")
        if entry.offset < free:
            raise ModelError(
                f"tensor {entry.name!r} at offset {entry.offset} lies over {before!r}, which ends at {free}"
            )
        free, before = entry.offset + entry.nbytes, entry.name
        if base + free > file_bytes:
            raise ModelError(
                f"tensor {entry.name!r} ends at byte {base + free}, but the file has {file_bytes}; "
                "the file is truncated, download it again"
            )
