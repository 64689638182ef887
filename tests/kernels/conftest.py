from __future__ import annotations

from collections.abc import Iterator

import pytest

from sooner.kernels import cpu
from sooner.kernels.cpu import CpuKernels, library
from sooner.kernels.reference import TorchKernels


@pytest.fixture(scope="session")
def fast() -> CpuKernels:
    reason = cpu.unavailable()
    if reason:
        pytest.skip(reason)
    return CpuKernels(2)


@pytest.fixture(scope="session")
def twin() -> TorchKernels:
    return TorchKernels()


@pytest.fixture
def restore_isa(fast: CpuKernels) -> Iterator[None]:
    chosen = cpu.isa()
    yield
    library.use_isa(library.load(), chosen)
