"""What a pass of a model reads and multiplies: the two numbers that bound its speed on any machine."""

from __future__ import annotations

from sooner.kernels.interface import Packed
from sooner.models.decoder import Decoder


def weight_bytes(decoder: Decoder) -> int:
    """Bytes that one pass reads: the layers and the head. A separate embedding is only looked up."""
    return sum(matrix.nbytes for matrix in [*_layer_matrices(decoder), decoder.head])


def formats(decoder: Decoder) -> list[str]:
    """What the weights are kept in: the layers' formats, then the head's."""
    return list(dict.fromkeys(matrix.format for matrix in [*_layer_matrices(decoder), decoder.head]))


def multiply_adds(decoder: Decoder, rows: int, logits: int) -> int:
    """Of the weight products: all rows through the layers, `logits` of them through the head."""
    layers = sum(_size(matrix) for matrix in _layer_matrices(decoder))
    return layers * rows + _size(decoder.head) * logits


def _layer_matrices(decoder: Decoder) -> list[Packed]:
    return [matrix for layer in decoder.layers for matrix in layer.matrices]


def _size(matrix: Packed) -> int:
    return matrix.shape[0] * matrix.shape[1]
