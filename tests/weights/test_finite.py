"""Weights that are no numbers."""

from __future__ import annotations

import math

import pytest
import torch

from sooner.errors import ModelError
from sooner.kernels.formats import DTYPES, FORMATS, Stored, dequantise, store
from sooner.weights.finite import check_finite
from tests.support.quants import random_quants

BLOCKS = [name for name in FORMATS if name not in DTYPES]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_floats(dtype: torch.dtype, bad: float) -> None:
    values = torch.full((3, 50), torch.finfo(dtype).max, dtype=dtype)
    values[0] = torch.finfo(dtype).min
    check_finite("w", store(values))
    for place in ((0, 0), (1, 7), (2, 49)):
        spoilt = values.clone()
        spoilt[place] = bad
        with pytest.raises(ModelError, match="tensor 'w' holds NaN or infinite numbers"):
            check_finite("w", store(spoilt))


@pytest.mark.parametrize("name", BLOCKS)
def test_exactly_the_scales_of_blocks_are_looked_at(name: str) -> None:
    """Whether the numbers become infinite decides, for every pair of bytes of a block."""
    stored = random_quants(name, 3, 512)
    check_finite("w", stored)
    for at in range(0, FORMATS[name].block_bytes, 2):
        data = stored.data.clone()
        data[at : at + 2] = torch.tensor([0x00, 0x7C], dtype=torch.uint8)  # infinity, were it a float16
        spoilt = Stored(name, stored.shape, data)
        if bool(torch.isfinite(dequantise(spoilt)).all()):
            check_finite("w", spoilt)
        else:
            with pytest.raises(ModelError, match="tensor 'w'"):
                check_finite("w", spoilt)


def test_the_last_chunk_is_looked_at_too() -> None:
    values = torch.zeros((1 << 20) + 5)
    values[-1] = math.nan
    with pytest.raises(ModelError):
        check_finite("w", store(values))


def test_every_format_is_checked() -> None:
    from sooner.weights.finite import _FLOATS

    assert _FLOATS.keys() == FORMATS.keys()
