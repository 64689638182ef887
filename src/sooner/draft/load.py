"""From what the user writes after `draft=` to a drafter."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from sooner.draft.grammar import GrammarDrafter
from sooner.draft.ngram import NgramDrafter
from sooner.draft.prediction import PredictionDrafter
from sooner.draft.protocol import Drafter, Target
from sooner.draft.suffix import SuffixDrafter
from sooner.errors import InputError

LOOKUPS: dict[str, Callable[[], Drafter]] = {
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
    "prediction": PredictionDrafter,
    "grammar": GrammarDrafter,
}
KNOWN = (
    *LOOKUPS,
    "ngram:PATH",
    "model:PATH",
    "model:self/N",
    "eagle:PATH",
    "medusa:PATH",
    "mtp",
    "mtp:PATH",
    "package.module:Class",
)
METHODS = ("propose", "commit", "cached", "forget")


def load_drafter(spec: str, target: Target) -> Drafter:
    """A drafter by name, or a user's class as `package.module:Class`."""
    return load_class(spec, target) if ":" in spec else load_lookup(spec)


def load_lookup(name: str) -> Drafter:
    """A drafter that needs no model: one of LOOKUPS."""
    if name not in LOOKUPS:
        raise InputError(f"unknown drafter {name!r}; known are {', '.join(KNOWN)}")
    return LOOKUPS[name]()


def load_class(spec: str, target: Target) -> Drafter:
    """Imports `package.module:Class` and calls it with the target. What its constructor raises is passed on."""
    module, _, name = spec.partition(":")
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise InputError(f"drafter {spec!r}: {error}; install the package or put its folder on PYTHONPATH") from error
    except (AttributeError, ValueError) as error:
        raise InputError(f"drafter {spec!r}: {error}; known are {', '.join(KNOWN)}") from error
    drafter: Drafter = found(target)
    check_protocol(spec, drafter)
    return drafter


def check_protocol(spec: str, drafter: object) -> None:
    """Raises InputError that names the first member of `protocol.Drafter` that is missing or of another kind."""
    for method in METHODS:
        if not callable(getattr(drafter, method, None)):
            raise InputError(f"drafter {spec!r} has no method {method}; sooner.draft.protocol says what it must do")
    for attribute, kind in (("name", str), ("samples", bool)):
        if not isinstance(getattr(drafter, attribute, None), kind):
            raise InputError(f"drafter {spec!r} has no {attribute} of type {kind.__name__}; see sooner.draft.protocol")
