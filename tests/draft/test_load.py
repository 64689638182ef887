"""Drafters by name."""

from __future__ import annotations

from typing import Any

import pytest

from sooner.draft.load import load_drafter
from sooner.draft.ngram import NgramDrafter
from sooner.draft.protocol import Target
from sooner.draft.suffix import SuffixDrafter
from sooner.errors import InputError
from tests.support.drafters import RandomDrafter

TARGET = Target(vocabulary=41, context=99, eos=frozenset(), layers=2, width=16)
HERE = __name__


class Mine(RandomDrafter):
    def __init__(self, target: Target) -> None:
        super().__init__(target.vocabulary)
        self.target = target


class Mute(Mine):
    commit: Any = None


class Nameless(Mine):
    name: Any = None


class Failing(Mine):
    def __init__(self, target: Target) -> None:
        raise KeyError("weights")


def test_names() -> None:
    assert isinstance(load_drafter("ngram", TARGET), NgramDrafter)
    assert isinstance(load_drafter("suffix", TARGET), SuffixDrafter)


def test_a_class_of_ones_own_is_told_the_target() -> None:
    mine = load_drafter(f"{HERE}:Mine", TARGET)
    assert isinstance(mine, Mine)
    assert mine.target is TARGET


def test_what_a_constructor_raises_is_passed_on() -> None:
    with pytest.raises(KeyError, match="weights"):
        load_drafter(f"{HERE}:Failing", TARGET)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("ngrams", "unknown drafter 'ngrams'; known are ngram, suffix, prediction, grammar, ngram:PATH"),
        ("", "unknown drafter ''"),
        ("no_such_package:Class", "No module named 'no_such_package'; install the package"),
        (f"{HERE}:Nobody", "has no attribute 'Nobody'"),
        (":Class", "':Class'"),
        (f"{HERE}:Mute", "has no method commit"),
        (f"{HERE}:Nameless", "has no name of type str"),
    ],
)
def test_what_cannot_be_loaded_is_named(spec: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_drafter(spec, TARGET)
    assert said in str(caught.value)
