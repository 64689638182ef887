"""Backends for the target pass: `cpu` (C++), or `reference` (torch) on any device."""

from __future__ import annotations

from typing import Any

import torch

from sooner.errors import InputError
from sooner.kernels.formats import DTYPES
from sooner.kernels.interface import Kernels
from sooner.kernels.reference import TorchKernels

WEIGHTS = ("auto", "f32", "bf16")


def make_kernels(device: str, weights: str, threads: int | None = None) -> Kernels[Any]:
    """The backend for a device and a weight format. `auto`: float32 on the CPU, bfloat16 on a GPU."""
    if weights not in WEIGHTS:
        raise InputError(f"weights {weights!r} is not known; choose one of {', '.join(WEIGHTS)}")
    check_device(device)
    if threads:
        torch.set_num_threads(threads)
    chosen = weights if weights != "auto" else ("bf16" if device.startswith("cuda") else "f32")
    return TorchKernels(device, DTYPES[chosen])


def check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise InputError(f"device {device!r} is not known; use cpu or cuda") from error
    if kind not in ("cpu", "cuda"):
        raise InputError(f"device {device!r} is not supported; use cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {device!r}: torch finds no CUDA device; use cpu")
