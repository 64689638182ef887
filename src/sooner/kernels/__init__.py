"""Backends for the target pass: `cpu` (C++), or `reference` (torch) on any device."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import torch

from sooner.errors import InputError
from sooner.kernels import cpu
from sooner.kernels.formats import DTYPES, KINDS, PRECISIONS
from sooner.kernels.interface import Kernels
from sooner.kernels.reference import TorchKernels

BACKENDS = ("auto", "cpu", "torch")


def make_kernels(
    device: str, weights: str, threads: int | None = None, backend: str = "auto", activations: str = "float32"
) -> Kernels[Any]:
    """The backend for a device and a weight format.

    `auto` takes the C++ kernels on the CPU where they could be built, else torch, and says so. Torch multiplies in
    float32 or bfloat16: weights "auto" there are float32 on the CPU and bfloat16 on a GPU. Activations
    "int8" are for the C++ kernels.
    """
    check_device(device)
    if weights not in KINDS:
        raise InputError(f"weights {weights!r} is not known; choose one of {', '.join(KINDS)}")
    if activations not in PRECISIONS:
        raise InputError(f"activations {activations!r} is not known; choose one of {', '.join(PRECISIONS)}")
    if activations == "int8" and weights in DTYPES:
        raise InputError(f"activations int8 are for weights of 4 or 8 bits, not {weights}; use weights q8, q4 or auto")
    if backend not in BACKENDS:
        raise InputError(f"kernels {backend!r} is not known; choose one of {', '.join(BACKENDS)}")
    on_gpu = torch.device(device).type == "cuda"
    if backend == "cpu" and on_gpu:
        raise InputError(f"kernels 'cpu' cannot run on device {device!r}; use torch")
    missing = cpu.unavailable()
    if backend == "cpu" and missing:
        raise InputError(f"the C++ kernels are not available: {missing}")
    if on_gpu or backend == "torch" or missing:
        if not on_gpu and backend == "auto":
            warnings.warn(f"running on torch, which is slower: {missing}", RuntimeWarning, stacklevel=2)
        if activations != "float32":
            raise InputError(f"activations {activations} need the C++ kernels; with torch use float32")
        return _torch_kernels(device, weights, threads, on_gpu)
    return cpu.CpuKernels(threads or usable_cores(), activations)


def _torch_kernels(device: str, weights: str, threads: int | None, on_gpu: bool) -> TorchKernels:
    kind = ("bf16" if on_gpu else "f32") if weights == "auto" else weights
    if kind not in DTYPES:
        raise InputError(f"weights {weights!r} need the C++ kernels; with torch use f32, f16 or bf16")
    if threads:
        torch.set_num_threads(threads)
    return TorchKernels(device, DTYPES[kind])


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise InputError(f"device {device!r} is not known; use cpu or cuda") from error
    if kind not in ("cpu", "cuda"):
        raise InputError(f"device {device!r} is not supported; use cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {device!r}: torch finds no CUDA device; use cpu")
