"""Drafters that were trained for a target, by the folder that holds them.

Heads on its hidden states: `eagle:PATH`, `medusa:PATH`, and `mtp` for a module in the target's own folder or `mtp:PATH`
for one elsewhere. Counts of its answers: `ngram:PATH`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sooner.cache.paged import pages_for
from sooner.draft.eagle import Eagle3
from sooner.draft.eagle_files import read_eagle
from sooner.draft.heads import Head, HeadDrafter
from sooner.draft.medusa import MedusaDrafter, read_medusa
from sooner.draft.mtp import read_mtp
from sooner.draft.ngram_model import NgramModelDrafter, read_ngram
from sooner.draft.numbering import TEXT, checked_numbering
from sooner.draft.protocol import Drafter
from sooner.errors import InputError, ModelError
from sooner.models.decoder import Decoder
from sooner.models.locate import find_model
from sooner.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Wanted:
    """A drafter's name, the folder with its heads, and what it is to draft for."""

    spec: str
    folder: Path
    target: Decoder
    tokenizer: Tokenizer
    cache_tokens: int
    weights: str

    def drafter(self, head: Head) -> Drafter:
        shared = {id(self.target.embed), id(self.target.head)}
        own = sum(matrix.nbytes for matrix in head.matrices if id(matrix) not in shared)
        return HeadDrafter(self.spec, head, self.target.config.vocabulary, pages_for(self.cache_tokens), own)


def _eagle(wanted: Wanted) -> Drafter:
    head = read_eagle(wanted.folder, wanted.target, wanted.weights)
    if isinstance(head, Eagle3):
        head = checked_numbering(wanted.spec, wanted.target, head, wanted.tokenizer.encode(TEXT))
    return wanted.drafter(head)


def _medusa(wanted: Wanted) -> Drafter:
    return MedusaDrafter(wanted.spec, read_medusa(wanted.folder, wanted.target, wanted.weights), wanted.target)


def _mtp(wanted: Wanted) -> Drafter:
    return wanted.drafter(read_mtp(wanted.folder, wanted.target, wanted.weights))


def _ngram(wanted: Wanted) -> Drafter:
    return NgramModelDrafter(wanted.spec, read_ngram(wanted.folder, wanted.tokenizer.tokens))


TRAINED: dict[str, Callable[[Wanted], Drafter]] = {"eagle": _eagle, "medusa": _medusa, "mtp": _mtp, "ngram": _ngram}

# Trained by `sooner train`, and part of the package.
DRAFTS = Path(__file__).parents[1] / "drafts"
SHIPPED = {"eagle:smollm2": DRAFTS / "smollm2-eagle3", "ngram:smollm2": DRAFTS / "smollm2-ngram"}


def is_trained(spec: str) -> bool:
    """`ngram` alone needs no training: it copies from the request's own text."""
    return spec.partition(":")[0] in TRAINED and spec != "ngram"


def load_trained(
    spec: str, target: Decoder, tokenizer: Tokenizer, model: Path, cache_tokens: int, weights: str = "auto"
) -> Drafter:
    """One of SHIPPED, or `kind:` and what `find_model` takes; `mtp` alone looks into the target's files, at `model`.

    Raises ModelError that begins with the drafter.
    """
    kind, _, place = spec.partition(":")
    own = kind == "mtp" and place in ("", "self")
    if not own and not place:
        raise InputError(f"drafter {spec!r} needs the folder of what was trained; write {kind}:PATH")
    folder = model if own else SHIPPED.get(spec) or find_model(place)
    if not folder.is_dir():
        raise ModelError(
            f"drafter {spec!r}: {folder.name} is a file, what was trained is read from folders; write {kind}:PATH"
        )
    try:
        return TRAINED[kind](Wanted(spec, folder, target, tokenizer, cache_tokens, weights))
    except (ModelError, OSError) as error:
        raise ModelError(f"drafter {spec!r}: {error}") from None
