"""Loads the compiled kernels and mirrors the structs of native/api.h."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path

from sooner.errors import InputError, SoonerError

PATH = Path(os.environ.get("SOONER_KERNELS", Path(__file__).parent / "_kernels.so"))  # set to test a sanitized build
FORMATS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "g32q4", "g32q8", "g16q8")  # in the order of enum Format
ACTIVATIONS = ("silu", "gelu_tanh")
INTERFACE = 3  # that of native/api.cpp


class MatrixStruct(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("bias", c_void_p),
        *((name, c_int32) for name in ("n", "k", "format", "paired", "integer", "unused")),
    )


class RowsStruct(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("rows", "sequences", "table_width", "extra_width")),
        *((name, c_void_p) for name in ("positions", "slots", "sequence", "context", "tables", "extra")),
        ("last_position", c_int32),  # filled in by check_rows
    )


class HeadsStruct(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("query", "kv", "size", "rotary_half", "window", "unused")),
        *((name, c_float) for name in ("scale", "softcap", "query_eps", "key_eps")),
        *((name, c_void_p) for name in ("cos", "sin", "query_norm", "key_norm")),
    )


class CacheStruct(Structure):
    _fields_ = (("keys", c_void_p), ("values", c_void_p), ("page", c_int64))


class BlockStruct(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("qkv", "out", "gated", "down", "heads", "attn_norm", "mlp_norm")),
        *((name, c_float) for name in ("attn_eps", "mlp_eps")),
        *((name, c_int32) for name in ("activation", "unused")),
    )


_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "use": (c_char_p, (c_char_p,)),
    "supports": (c_int, (c_char_p,)),
    "isa": (c_char_p, ()),
    "pool": (c_void_p, (c_int,)),
    "pool_free": (None, (c_void_p,)),
    "packed_bytes": (c_size_t, (c_int, c_int, c_int)),
    "pack": (None, (c_void_p, c_void_p, *[c_int] * 5, c_void_p, c_int)),
    "linear": (None, (c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p, c_float, c_void_p, c_void_p)),
    "rmsnorm": (None, (c_void_p, c_void_p, c_int, c_int, c_void_p, c_float, c_void_p, c_void_p)),
    "embed": (c_int, (c_void_p, c_void_p, c_void_p, c_int, c_void_p)),
    "check_rows": (c_char_p, (POINTER(RowsStruct), c_int)),
    "choose": (
        c_int,
        (c_void_p, c_void_p, c_int, c_double, c_int, c_double, c_double, c_uint64, c_uint32, c_uint32),
    ),
    "blocks": (None, (c_void_p, c_void_p, c_int, *[c_void_p] * 4)),
    "attend": (None, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)),
}


@cache
def load() -> ctypes.CDLL:
    """The library, on the best ISA of this processor or the one that SOONER_ISA names."""
    try:
        library = ctypes.CDLL(str(PATH))
    except OSError as error:
        raise SoonerError(f"the CPU kernels cannot be loaded: {error}; install sooner again") from error
    check_interface(library)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, f"sooner_{name}")
        function.restype, function.argtypes = result, arguments
    use_isa(library, os.environ.get("SOONER_ISA", ""))
    return library


def check_interface(library: ctypes.CDLL) -> None:
    """Raises SoonerError where the library was built from other sources than these."""
    built: int = library.sooner_interface() if hasattr(library, "sooner_interface") else 1
    if built != INTERFACE:
        raise SoonerError(f"the CPU kernels were built for interface {built}, not {INTERFACE}; install sooner again")


def use_isa(library: ctypes.CDLL, name: str) -> str:
    """Switches all later calls to an ISA by name, "" for the best; returns its name."""
    chosen: bytes | None = library.sooner_use(name.encode())
    if chosen is None:
        raise InputError(f"SOONER_ISA is {name!r}, which this build or processor lacks; unset it, or use generic")
    return chosen.decode()


def supports(name: str) -> bool:
    """Whether this build and processor have an ISA."""
    return bool(load().sooner_supports(name.encode()))


def reason_missing() -> str | None:
    """Why the kernels cannot be used, or None when they can."""
    if not PATH.exists():
        return f"{PATH.name} was not built; install a C++17 compiler and install sooner again"
    try:
        load()
    except SoonerError as error:
        return str(error)
    return None
