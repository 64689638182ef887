"""An n-gram model of the target's own answers: `ngram:FOLDER`, counted by `sooner train ngram`.

Where `ngram` copies from the request's own text, this one knows what the target tends to write anywhere. After each
context of up to `order` tokens it keeps the likeliest next token with its chance; the longest known context decides
(back-off, Katz 1987). Sources: REST (He et al. 2024) drafts from a store of answers, ANPD (Ou et al. 2024) from
n-grams. It reads no weights and keeps no state for a sequence, so that a token costs some microseconds.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from sooner.draft.lookup import until_stop
from sooner.draft.protocol import Ask
from sooner.errors import ModelError
from sooner.types import Draft, Ledger

KIND = "sooner_ngram"
FILE = "model.safetensors"
LONGEST = 8  # tokens of a context
MIX = 0x9E3779B97F4A7C15  # odd, so that a context's key depends on all of its tokens
MASK = (1 << 64) - 1
SHIFT = 47  # leaves a key's first 17 bits: contexts that share them stand together, and are few


def context_keys(tokens: Sequence[int], order: int) -> list[int]:
    """The keys of the last 1, 2, ... tokens, at most `order` of them."""
    keys, key = [], 0
    for token in islice(reversed(tokens), order):
        key = (key * MIX + token + 1) & MASK
        keys.append(key)
    return keys


def fingerprint(tokens: Sequence[str | None]) -> str:
    """Of a vocabulary: whose ids mean the same has the same one."""
    digest = hashlib.sha256()
    for token in tokens:
        digest.update(b"\0" if token is None else token.encode() + b"\1")
    return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class NgramModel:
    """Contexts in ascending order of their keys: of each the likeliest next token, and its chance in 255ths.

    starts: by a key's first bits, where such keys begin. After a pass of the target nothing of this is in the caches,
    and a bisection of all keys waits for the memory ten times, one of some neighbours twice.
    """

    order: int
    keys: array[int]
    tokens: array[int]
    chances: bytes
    starts: array[int]

    @classmethod
    def of(
        cls, order: int, keys: NDArray[np.uint64], tokens: NDArray[np.uint32], chances: NDArray[np.uint8]
    ) -> NgramModel:
        starts = np.searchsorted(keys >> np.uint64(SHIFT), np.arange((1 << (64 - SHIFT)) + 1)).astype(np.uint32)
        words = array("Q", keys.tobytes()), array("I", tokens.tobytes()), chances.tobytes()
        return cls(order, *words, array("I", starts.tobytes()))

    @property
    def nbytes(self) -> int:
        return len(self.keys) * (self.keys.itemsize + self.tokens.itemsize + 1)

    def next(self, tokens: Sequence[int]) -> tuple[int, float] | None:
        """What most likely follows the longest known context that ends the tokens, and its chance."""
        for key in reversed(context_keys(tokens, self.order)):
            first = key >> SHIFT
            end = self.starts[first + 1]
            place = bisect_left(self.keys, key, self.starts[first], end)
            if place < end and self.keys[place] == key:
                return self.tokens[place], self.chances[place] / 255
        return None

    def walk(self, tokens: Sequence[int]) -> Iterator[tuple[int, float]]:
        """The likeliest continuation, token by token; ends where no context is known."""
        window = list(tokens[-self.order :])
        while found := self.next(window):
            yield found
            window = [*window[1 - self.order :], found[0]] if self.order > 1 else [found[0]]


class NgramModelDrafter:
    """Implements `protocol.Drafter`. The draft ends before the first token whose chance of being right together with
    all before it is below min_confidence; where the policy has weighed the chances it decides."""

    samples = False
    token_bytes = 0

    def __init__(self, name: str, model: NgramModel, min_confidence: float = 0.3) -> None:
        self.name, self._model, self._least = name, model, min_confidence
        self.weight_bytes = model.nbytes

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft.chain(until_stop(self._tokens(ask), ask)) for ask in asks]

    def _tokens(self, ask: Ask) -> list[int]:
        least = 0.0 if ask.weighed else self._least
        return [token for token, _ in takewhile(lambda rated: rated[1] >= least, self._rated(ask))]

    def estimate(self, ask: Ask) -> Iterator[float]:
        """For each token that could be proposed: the estimated chance that it and all before it are accepted."""
        return (confidence for _, confidence in self._rated(ask))

    def _rated(self, ask: Ask) -> Iterator[tuple[int, float]]:
        confidence = 1.0
        for token, chance in islice(self._model.walk(ask.ledger.tokens), ask.limit):
            confidence *= chance
            yield token, confidence

    def commit(self, key: int, ledger: Ledger) -> None:
        """There is nothing to cut back."""

    def cached(self, key: int) -> int:  # noqa: ARG002
        return 0

    def forget(self, key: int) -> None:
        """There is nothing to drop."""


def read_ngram(folder: Path, vocabulary: Sequence[str | None]) -> NgramModel:
    """vocabulary: the target's tokens by id. Raises ModelError where the folder holds no n-gram model for it."""
    config = _config(folder)
    if config.get("tokenizer") != fingerprint(vocabulary):
        raise ModelError(
            f"{folder.name} counts tokens of another vocabulary ({config.get('vocab_size')} tokens, fingerprint "
            f"{config.get('tokenizer')}; the target's is {fingerprint(vocabulary)}); train one for this target"
        )
    try:
        tensors = load_file(folder / FILE)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{FILE} in {folder.name} cannot be read: {error}; train it again") from None
    return _checked(folder, config, tensors, len(vocabulary))


def _config(folder: Path) -> dict[str, object]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{folder.name} has no readable config.json ({error}); give a folder of sooner train ngram"
        ) from None
    if not isinstance(config, dict) or config.get("model_type") != KIND:
        raise ModelError(f"{folder.name} holds no n-gram model; give a folder of sooner train ngram")
    return config


def _checked(folder: Path, config: dict[str, object], tensors: dict[str, NDArray[np.generic]], size: int) -> NgramModel:
    order = config.get("order")
    if not isinstance(order, int) or not 1 <= order <= LONGEST:
        raise ModelError(f"{folder.name} has order {order!r}, must be 1 to {LONGEST}; train it again")
    kinds = {name: (tensor.dtype.name, tensor.shape) for name, tensor in tensors.items()}
    count = len(tensors["keys"]) if "keys" in tensors else 0
    if kinds != {"keys": ("uint64", (count,)), "tokens": ("uint32", (count,)), "chances": ("uint8", (count,))}:
        raise ModelError(f"{FILE} in {folder.name} holds {kinds}, wanted are keys, tokens and chances; train it again")
    keys, tokens = tensors["keys"].view(np.uint64), tensors["tokens"].view(np.uint32)
    if count and (int(tokens.max()) >= size or not bool((keys[1:] > keys[:-1]).all())):
        raise ModelError(
            f"{FILE} in {folder.name} is damaged: its keys do not ascend or name unknown tokens; train it again"
        )
    return NgramModel.of(order, keys, tokens, tensors["chances"].view(np.uint8))
