"""Stopping rules act on committed tokens, in order (CASES.md 1 to 9). Scripted targets make each case exact."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sooner.engine import step
from sooner.errors import InputError
from sooner.models import runner
from sooner.models.runner import Span
from sooner.types import SamplingParams, Speculation
from tests.support.drafters import ConstantDrafter, OracleDrafter
from tests.support.engines import VOCABULARY, Answer, engine, plain, request, run, tiny_decoder

STOP, EOS = 30, 31


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes the target want a given answer: what follows position i of prompt + answer is the next of the answer."""
    wanted: list[int] = []
    real = runner.tapped

    def tapped(decoder: object, cache: object, spans: Sequence[Span], taps: Sequence[int]) -> object:
        starts = [span.table.length for span in spans]
        rows, features = real(decoder, cache, spans, taps)  # type: ignore[arg-type]
        for span, start, logits in zip(spans, starts, rows):
            for i in range(len(logits)):
                position = start + len(span.tail) - 1 + i - (PROMPT - 1)
                logits[i] = np.where(np.arange(VOCABULARY) == wanted[min(position, len(wanted) - 1)], 9.0, 0.0)
        return rows, features

    monkeypatch.setattr(step, "tapped", tapped)
    return wanted


PROMPT = 3


def scripted(script: list[int], answer: list[int], params: SamplingParams, k: int, **fields: Any) -> Answer:
    """The answer under a drafter that proposes exactly what the target wants."""
    script[:] = answer
    machine, _ = engine({"oracle": OracleDrafter({(1, 2, 3): answer})})
    return run(machine, [request([1, 2, 3], params, "oracle", k, **fields)])[0]


def greedy(**options: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_a_stop_token_in_the_middle_of_a_round(script: list[int], k: int) -> None:
    """Case 1: three tokens and "stop", not five and "length"."""
    done = scripted(script, [10, 11, STOP, 20, 21, 22], greedy(max_tokens=5, stop_token_ids=(STOP,)), k)
    assert (done.tokens, done.reason) == ([10, 11, STOP], "stop")


@pytest.mark.parametrize("k", [3, 5, 8])
def test_an_accepted_eos_drops_the_rest_of_the_round_from_every_count(script: list[int], k: int) -> None:
    """Case 2."""
    done = scripted(script, [10, 11, EOS, 12, 13, 14], greedy(max_tokens=9), k, eos=frozenset({EOS}))
    assert (done.tokens, done.reason) == ([10, 11, EOS], "stop")
    assert (done.stats.output_tokens, done.stats.accepted) == (3, 2)
    assert len(done.pieces) == 3


def test_a_rejected_eos_ends_nothing(script: list[int]) -> None:
    """Case 3."""
    script[:] = [10, 11, 12, 13, 14, 15]
    machine, _ = engine({"eos": ConstantDrafter(EOS)})
    [done] = run(machine, [request([1, 2, 3], greedy(max_tokens=6), "eos", eos=frozenset({EOS}))])
    assert (done.tokens, done.reason) == ([10, 11, 12, 13, 14, 15], "length")


def test_eos_can_be_ignored(script: list[int]) -> None:
    done = scripted(script, [10, EOS, 12, 13], greedy(max_tokens=4, ignore_eos=True), 3, eos=frozenset({EOS}))
    assert (done.tokens, done.reason) == ([10, EOS, 12, 13], "length")


def test_minimum_length_counts_tokens_not_rounds(script: list[int]) -> None:
    """Case 13: EOS is wanted at once, and impossible before the third token."""
    done = scripted(script, [EOS] * 9, greedy(max_tokens=9, min_tokens=3), 4, eos=frozenset({EOS}))
    assert len(done.tokens) == 4
    assert (done.tokens[-1], done.reason) == (EOS, "stop")


@pytest.mark.parametrize("k", range(9))
@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_max_tokens_is_exact(script: list[int], n: int, k: int) -> None:
    """Case 5."""
    done = scripted(script, list(range(4, 30)), greedy(max_tokens=n), k)
    assert (len(done.tokens), done.reason) == (n, "length")


class Letters:
    """Token 0 is "a", 1 is "b", and so on: text enough for stop strings."""

    def push(self, token: int) -> str:
        return chr(97 + token)

    def flush(self) -> str:
        return ""


@pytest.mark.parametrize("k", [0, 1, 2, 3, 7])
@pytest.mark.parametrize(
    ("stop", "text", "count"),
    [("fgh", "cde", 6), ("e", "cd", 3), ("xyz", "cdefghij", 8), ("ij", "cdefgh", 8), ("cd", "", 2)],
)
def test_a_stop_string_ends_text_tokens_and_counts_where_plain_does(
    script: list[int], stop: str, text: str, count: int, k: int
) -> None:
    """Case 4: it may complete inside a round, straddle rounds, or span three tokens."""
    script[:] = [2, 3, 4, 5, 6, 7, 8, 9]
    machine, _ = engine({"oracle": OracleDrafter({(1, 2, 3): script})}, detokenizer=Letters)
    [done] = run(machine, [request([1, 2, 3], greedy(max_tokens=8, stop=(stop,)), "oracle", k)])
    assert (done.text, len(done.tokens), done.stats.output_tokens) == (text, count, count)
    assert done.reason == ("length" if stop == "xyz" else "stop")
    machine, _ = engine(detokenizer=Letters)
    kept = greedy(max_tokens=8, stop=(stop,), include_stop_str_in_output=True)
    assert run(machine, [request([1, 2, 3], kept)])[0].text == "cdefghij"[:count]


def test_streamed_text_never_shows_the_beginning_of_a_stop_string(script: list[int]) -> None:
    script[:] = [2, 3, 4, 5, 6, 25]
    machine, _ = engine(detokenizer=Letters)
    [done] = run(machine, [request([1, 2, 3], greedy(max_tokens=5, stop=("fgz",)))])
    assert [piece.text for piece in done.pieces] == ["c", "d", "e", "", "fg"]


def test_no_eos_at_all_and_a_prompt_that_repeats() -> None:
    """Case 6."""
    one = request([5, 6, 7, 8, 9, 10, 11, 7, 8], drafter="c")
    machine, _ = engine({"c": ConstantDrafter(9)})
    assert run(machine, [one])[0].tokens == plain(one).tokens


def test_the_context_limit_ends_a_round_cleanly() -> None:
    """Case 8: prompt and answer fill the context exactly, whatever is drafted."""
    decoder = tiny_decoder(context=48)
    for k in (0, 1, 4, 8):
        one = request(range(40), greedy(max_tokens=8), "c", k)
        machine, _ = engine({"c": ConstantDrafter(1)}, decoder)
        [done] = run(machine, [one])
        assert (len(done.tokens), done.reason) == (8, "length")
        assert done.tokens == plain(one, decoder).tokens


def test_what_can_never_run_is_refused_at_the_door() -> None:
    machine, _ = engine(decoder=tiny_decoder(context=48))
    with pytest.raises(InputError, match="limit of 48"):
        machine.add(request(range(40), greedy(max_tokens=9)))
    with pytest.raises(InputError, match="no tokens"):
        machine.add(request([]))
    with pytest.raises(InputError, match="outside the vocabulary of 41"):
        machine.add(request([41], greedy(max_tokens=4)))
    with pytest.raises(InputError, match="'nobody' is not loaded"):
        machine.add(request([1], drafter="nobody"))
    with pytest.raises(InputError, match="need a tokenizer"):
        machine.add(request([1], greedy(stop=("x",), max_tokens=4)))
    assert not machine.busy


def test_a_speculation_is_checked_where_it_is_made() -> None:
    with pytest.raises(InputError, match="draft_tokens is 65"):
        Speculation(("ngram",), 65)
    with pytest.raises(InputError, match="verify is 'exactly'"):
        Speculation(rule="exactly")  # type: ignore[arg-type]
