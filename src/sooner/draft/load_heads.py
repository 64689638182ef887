"""Drafters with a head on the target's hidden states, by the folder that holds it: `eagle:PATH`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sooner.cache.paged import pages_for
from sooner.draft.eagle import Eagle3
from sooner.draft.eagle_files import read_eagle
from sooner.draft.heads import Head, HeadDrafter
from sooner.draft.numbering import TEXT, checked_numbering
from sooner.draft.protocol import Drafter
from sooner.errors import ModelError
from sooner.models.decoder import Decoder
from sooner.models.locate import find_model
from sooner.models.tokenizer import Tokenizer


def load_eagle(
    spec: str, folder: Path, target: Decoder, tokenizer: Tokenizer, cache_tokens: int, weights: str
) -> Drafter:
    head = read_eagle(folder, target, weights)
    if isinstance(head, Eagle3):
        head = checked_numbering(spec, target, head, tokenizer.encode(TEXT))
    return drafter_of(spec, head, target, cache_tokens)


def drafter_of(spec: str, head: Head, target: Decoder, cache_tokens: int) -> Drafter:
    shared = {id(target.embed), id(target.head)}
    own = sum(matrix.nbytes for matrix in head.matrices if id(matrix) not in shared)
    return HeadDrafter(spec, head, target.config.vocabulary, pages_for(cache_tokens), own)


HEADS: dict[str, Callable[[str, Path, Decoder, Tokenizer, int, str], Drafter]] = {"eagle": load_eagle}


def load_head(spec: str, target: Decoder, tokenizer: Tokenizer, cache_tokens: int, weights: str = "auto") -> Drafter:
    """`kind:` and what `find_model` takes. Raises ModelError that begins with the drafter."""
    kind, _, place = spec.partition(":")
    folder = find_model(place)
    try:
        return HEADS[kind](spec, folder, target, tokenizer, cache_tokens, weights)
    except (ModelError, OSError) as error:
        raise ModelError(f"drafter {spec!r}: {error}") from None
