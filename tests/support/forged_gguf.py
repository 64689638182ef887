"""GGUF files byte by byte, so that a test can lie in any field."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A string with its length, or with the length that it claims."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def array(name: str, kind: int, count: int, elements: bytes) -> bytes:
    return key(name, ARRAY, struct.pack("<IQ", kind, count) + elements)


def tensor(name: str, dimensions: Sequence[int], kind: int = 0, offset: int = 0, rank: int | None = None) -> bytes:
    """One tensor's entry; dimensions innermost first, as the file has them."""
    rank = len(dimensions) if rank is None else rank
    return text(name) + struct.pack(f"<I{len(dimensions)}QIQ", rank, *dimensions, kind, offset)


def forge(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: int = 0,
    *,
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
) -> bytes:
    """A whole file with `data` zero bytes of tensors, aligned to 32."""
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    header = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + bytes(data)
