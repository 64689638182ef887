"""The n-gram model against counting by hand, and its files against what may be wrong with them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from sooner.draft.ngram_model import FILE, NgramModel, NgramModelDrafter, context_keys, fingerprint, read_ngram
from sooner.errors import ModelError
from sooner.testing import check_drafter
from sooner.train.ngram import DOUBT, SAME, count, export_ngram, measure
from sooner.train.store import Answer
from tests.draft.asks import ask

ORDER = 3
VOCABULARY = [f"t{i}" for i in range(60)]
texts = st.lists(st.integers(0, 4), min_size=2, max_size=30)


def answers_of(lists: Sequence[list[int]], temperature: float = 0.0) -> list[Answer]:
    return [Answer(tuple(tokens[:1]), tuple(tokens[1:]), temperature) for tokens in lists]


class ByHand:
    """Every context's next tokens in a dictionary; chances by the definition."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.next: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for answer in answers:
            text = answer.prompt + answer.answer
            for at in range(len(answer.prompt), len(text)):
                for length in range(min(ORDER, at) + 1):
                    self.next[text[at - length : at]][text[at]] += 1

    def chance(self, context: tuple[int, ...], token: int) -> float:
        times = self.next[context]
        if not context:
            return times[token] / times.total()
        doubt = DOUBT[len(context)]
        return (times[token] + doubt * self.chance(context[1:], token)) / (times.total() + doubt)


@given(st.lists(texts, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_chances_are_those_counted_by_hand(lists: list[list[int]]) -> None:
    answers = answers_of(lists)
    model, hand = count(answers, ORDER), ByHand(answers)
    for context in [context for context in hand.next if context]:
        told = model.next(context)
        assert told is not None or hand.chance(context, most(hand, context)) - hand.chance((), most(hand, ())) < SAME
        if told is not None:
            token, chance = told
            best = hand.chance(context, most(hand, context))
            assert hand.chance(context, token) == pytest.approx(best, abs=1e-9)
            assert chance == pytest.approx(best, abs=SAME + 1 / 255)


def most(hand: ByHand, context: tuple[int, ...]) -> int:
    return max(range(5), key=lambda token: hand.chance(context, token))


def test_the_longest_known_context_decides() -> None:
    model = count(answers_of([[0, 1, 2, 3], [0, 1, 2, 3], [9, 8, 2, 4], [7, 6, 2, 4], [5, 6, 2, 4]]), ORDER)
    assert [model.next(context)[0] for context in ((1, 2), (8, 2), (33, 2))] == [3, 4, 4]  # type: ignore[index]
    assert model.next((50,)) is None or model.next((50,)) == model.next((51,))
    assert next(model.walk([0, 1]))[0] == 2


def test_keys_depend_on_order_and_length() -> None:
    assert len({*context_keys([0, 0, 0], 3), *context_keys([1, 2, 3], 3), *context_keys([3, 2, 1], 3)}) == 9
    assert context_keys([7, 1, 2], 2) == context_keys([8, 1, 2], 2)


LOOP = count(answers_of([[1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3] * 3]), ORDER)


def test_a_sure_draft_is_long_and_an_unsure_one_short() -> None:
    drafter = NgramModelDrafter("ngram:x", LOOP)
    assert drafter.propose([ask([1, 2], 5)])[0].tokens == (3, 1, 2, 3, 1)
    doubtful = NgramModelDrafter("ngram:x", count(answers_of([[1, 2, 3], [1, 2, 4], [1, 2, 5], [1, 2, 6]]), ORDER))
    assert doubtful.propose([ask([1, 2], 5)])[0].tokens == ()
    assert len(doubtful.propose([replace(ask([1, 2], 5), weighed=True)])[0].tokens) >= 1


def test_estimates_fall_and_belong_to_the_tokens() -> None:
    drafter, asked = NgramModelDrafter("ngram:x", LOOP, min_confidence=0.0), ask([1, 2], 6)
    chances = list(drafter.estimate(asked))
    assert len(chances) == len(drafter.propose([asked])[0].tokens) == 6
    assert chances == sorted(chances, reverse=True)


def test_it_keeps_the_contract() -> None:
    check_drafter(lambda target: NgramModelDrafter("ngram:x", LOOP))


def test_what_is_measured_is_what_a_round_accepts() -> None:
    figures = measure(LOOP, answers_of([[1, 2, 3, 1, 2, 3, 1, 2, 3]]))
    assert figures == {"acceptance": [1.0, 1.0, 1.0], "tokens_a_round": 4.0}
    assert measure(LOOP, answers_of([[1, 2, 3, 1]], temperature=0.8))["tokens_a_round"] == 1.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export_ngram(LOOP, VOCABULARY, tmp_path)
    return tmp_path


def test_files_come_back(folder: Path) -> None:
    model = read_ngram(folder, VOCABULARY)
    assert (model.keys, model.tokens, model.chances) == (LOOP.keys, LOOP.tokens, LOOP.chances)
    assert model.nbytes == 13 * len(LOOP.keys)


def test_another_vocabulary_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"counts tokens of another vocabulary \(60 tokens"):
        read_ngram(folder, [*VOCABULARY[:-1], "other"])
    assert fingerprint(["a", None]) != fingerprint([None, "a"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "llama"}, "holds no n-gram model; give a folder of sooner train ngram"),
        ({"order": 0}, "has order 0, must be 1 to 8"),
        ({"order": "4"}, "has order '4'"),
    ],
)
def test_wrong_settings_are_refused(folder: Path, change: dict[str, object], says: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=says):
        read_ngram(folder, VOCABULARY)


def test_damaged_files_are_refused(folder: Path) -> None:
    path = folder / FILE
    whole = load_file(path)
    for name, tensor, says in (
        ("keys", whole["keys"][::-1].copy(), "its keys do not ascend"),
        ("tokens", whole["tokens"] + np.uint32(60), "name unknown tokens"),
        ("chances", whole["chances"].astype(np.uint32), "wanted are keys, tokens and chances"),
        ("extra", whole["keys"], "wanted are keys, tokens and chances"),
    ):
        save_file(whole | {name: tensor}, path)
        with pytest.raises(ModelError, match=says):
            read_ngram(folder, VOCABULARY)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ModelError, match="cannot be read"):
        read_ngram(folder, VOCABULARY)
    path.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        read_ngram(folder, VOCABULARY)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"no readable config\.json"):
        read_ngram(folder, VOCABULARY)


def test_an_empty_model_proposes_nothing() -> None:
    empty = NgramModel.of(2, np.zeros(0, np.uint64), np.zeros(0, np.uint32), np.zeros(0, np.uint8))
    assert NgramModelDrafter("ngram:x", empty).propose([ask([1, 2])])[0].tokens == ()
