from __future__ import annotations

import time
from pathlib import Path

import pytest

from sooner.bench.turns import Side, filling, play_pair, race
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.types import SamplingParams

PARAMS = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


class Clocked:
    """A side whose rounds take `took` seconds each, `rounds` of them."""

    def __init__(self, name: str, took: float, rounds: int, log: list[str]) -> None:
        self.seconds, self._name, self._took, self._left, self._log = 0.0, name, took, rounds, log

    @property
    def busy(self) -> bool:
        return self._left > 0

    def step(self) -> None:
        self._log.append(self._name)
        self.seconds += self._took
        self._left -= 1


def test_whoever_has_used_less_time_comes_next_and_the_slower_plays_on_alone() -> None:
    log: list[str] = []
    fast, slow = Clocked("f", 1.0, 6, log), Clocked("s", 3.0, 3, log)
    race(fast, slow)  # type: ignore[arg-type]
    assert "".join(log) == "fsfffsffs"
    assert (fast.seconds, slow.seconds) == (6.0, 9.0)


def test_clients_ask_in_a_closed_loop_and_get_the_same_tokens(tiny_file: Path) -> None:
    tiny = LLM(str(tiny_file), draft="ngram", threads=2, max_sequences=2)
    prompts = [[5, 6, 7, 5, 6], [9, 8], [3, 3, 3], [4, 5, 4, 5]]
    plain, drafted = play_pair(tiny, tiny.plain_engine(), prompts, PARAMS, level=2)
    assert [one.token_ids for one in plain.done] == [one.token_ids for one in drafted.done]
    assert [one.prompt for one in plain.done] == [0, 1, 2, 3]
    for side in (plain, drafted):
        assert all(one.sent < side.seconds and 0 < one.first_s <= one.total_s for one in side.done)
        assert all(one.decode_tokens == 8 - one.first_tokens for one in side.done)
        assert side.done[0].sent < side.done[2].sent
        # First tokens come in rounds that read prompts.
        assert 0 < side.full_tokens <= 4 * 8 - 4 and 0 < side.full_s < side.seconds
    assert sum(one.stats.drafted for one in plain.done) == 0


def test_a_side_stands_still_while_the_other_plays(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    side = Side(tiny, tiny.plain_engine(), [[5, 6]], PARAMS)
    real = side._engine.step

    def step() -> object:
        now[0] += 2.0
        return real()

    monkeypatch.setattr(side._engine, "step", step)
    side.step()
    now[0] += 100.0
    side.step()
    assert side.seconds == pytest.approx(4.0)
    while side.busy:
        side.step()
    [one] = side.done
    assert one.first_s == pytest.approx(2.0) and one.total_s == pytest.approx(16.0) and one.decode_tokens == 7


def test_prompts_come_over_again_until_the_places_are_full() -> None:
    assert filling("abc", places=4, times=2) == [*"abcabcab"]
    assert filling("abc", places=1, times=2) == [*"abc"], "none is left out"


def test_an_answer_that_failed_is_no_measurement(tiny: LLM) -> None:
    side = Side(tiny, tiny.plain_engine(), [[10**9]], PARAMS)
    with pytest.raises(InputError, match="1000000000"):
        side.step()
