"""What every test runs under."""

import os
from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pytest
import torch

_CACHE = TemporaryDirectory()  # measured costs of this session, for commands in other processes too
os.environ["SOONER_CACHE"] = _CACHE.name


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny tensors on one thread: a pool that waits for itself costs more than it gives."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
