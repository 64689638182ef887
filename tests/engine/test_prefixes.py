"""Prompts start from pages that others left; several samples share their prompt (CASES.md 20)."""

from typing import Any

import pytest

from sooner.draft.model import ModelDrafter
from sooner.engine.engine import Engine
from sooner.types import SamplingParams
from tests.support.engines import VOCABULARY, engine, plain, request, run, tiny_decoder

SAMPLED = SamplingParams(temperature=0.9, seed=8, max_tokens=20)
LONG = [i * 7 % VOCABULARY for i in range(70)]


def speculative(**options: Any) -> Engine:
    drafter = ModelDrafter("m", tiny_decoder(4, 1), VOCABULARY, 64)
    return engine({"m": drafter}, **options)[0]


@pytest.mark.parametrize("drafter", [None, "m"])
def test_a_cached_prefix_gives_the_same_tokens_and_the_hit_rate_of_plain_decoding(drafter: str | None) -> None:
    machine = speculative()
    first = request(LONG, SAMPLED, drafter)
    [a] = run(machine, [first])
    assert a.stats.cached_tokens == 0
    [b] = run(machine, [request(LONG, SAMPLED, drafter)])
    assert b.tokens == a.tokens == plain(first).tokens
    assert b.stats.cached_tokens == 64  # every whole page before the last token
    whole = LONG + a.tokens + [1]
    [c] = run(machine, [request(whole, SAMPLED, drafter)])
    assert c.stats.cached_tokens == (len(whole) - 2) // 16 * 16  # the answer's pages too
    assert c.tokens == plain(request(whole, SAMPLED)).tokens


def test_without_the_prefix_cache_nothing_is_reused() -> None:
    machine = speculative(prefix_cache=False)
    for _ in range(2):
        [done] = run(machine, [request(LONG, SAMPLED)])
        assert done.stats.cached_tokens == 0


@pytest.mark.parametrize("drafter", [None, "m"])
def test_samples_share_their_prompt_and_sample_0_is_the_answer_of_n_1(drafter: str | None) -> None:
    machine = speculative()
    answers = run(machine, [request(LONG, SAMPLED, drafter, sample=i) for i in range(4)])
    assert answers[0].tokens == plain(request(LONG, SAMPLED)).tokens
    assert len({tuple(a.tokens) for a in answers}) == 4
    assert [a.stats.cached_tokens for a in answers] == [0, 64, 64, 64]


def test_samples_of_a_cached_or_short_prompt_start_together() -> None:
    machine = speculative()
    run(machine, [request(LONG, SAMPLED)])
    for prompt in (LONG, LONG[:5]):
        for i in range(4):
            machine.add(request(prompt, SAMPLED, sample=i))
        machine.step()
        assert len(machine.scheduler.running) == 4
        while machine.busy:
            machine.step()


def test_prefixes_are_given_up_when_pages_are_needed() -> None:
    machine = speculative(cache_tokens=16 * 9)
    for start in range(6):
        prompt = [(start + i * (start + 3)) % VOCABULARY for i in range(60)]
        one = request(prompt, SAMPLED, "m")
        assert run(machine, [one])[0].tokens == plain(one).tokens
