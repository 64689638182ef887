from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sooner.bench import speed
from sooner.bench.speed import Comparison, divergences, measure_speed, report
from sooner.bench.turns import Asked, Side, play_pair
from sooner.bench.workloads import Prompt, load_prompts, select
from sooner.engine.engine import Engine, Progress
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.types import SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=12)


def answer_of(tokens: Sequence[int], decode_s: float, prefill_s: float = 1.0) -> Asked:
    return Asked(0, 0.0, prefill_s, 1, prefill_s + decode_s, list(tokens))


def comparison_of(name: str, category: str, plain: Sequence[Asked], speculative: Sequence[Asked]) -> Comparison:
    prompt = Prompt(name, category, ({"role": "user", "content": "?"},))
    return Comparison(prompt, 5, list(plain), list(speculative))


def test_rates_come_from_the_median_time_of_each_prompt() -> None:
    ten, twenty = range(11), range(21)
    done = [
        comparison_of("a", "chat", [answer_of(ten, 2), answer_of(ten, 9), answer_of(ten, 2)], [answer_of(ten, 1)] * 3),
        comparison_of("b", "chat", [answer_of(twenty, 4)] * 3, [answer_of(twenty, 2)] * 3),
        comparison_of("c", "edit", [answer_of(ten, 4)], [answer_of(ten, 1)]),
    ]
    result = report(done, exact=True, seed=0)
    chat, edit = result["categories"]["chat"], result["categories"]["edit"]
    assert (chat["plain_tok_s"], chat["spec_tok_s"], chat["speedup"]) == pytest.approx((5.0, 10.0, 2.0))
    assert chat["end_to_end_speedup"] == pytest.approx(8 / 5)  # 3 + 5 seconds against 2 + 3
    assert chat["speedup_interval"] == pytest.approx((2.0, 2.0)) and edit["speedup_interval"] is None
    assert result["geomean_speedup"] == pytest.approx(8**0.5) and result["identical"] is True


def test_answers_of_one_token_have_no_decoding_time() -> None:
    done = [comparison_of("a", "chat", [answer_of([3], 0)], [answer_of([3], 0)])]
    result = report(done, exact=True, seed=0)
    assert result["categories"]["chat"]["speedup"] is None and result["geomean_speedup"] is None
    assert result["categories"]["chat"]["end_to_end_speedup"] == pytest.approx(1.0)


def test_a_divergence_names_prompt_place_and_tokens(tiny: LLM) -> None:
    done = [
        comparison_of("same", "chat", [answer_of([5, 6], 1)], [answer_of([5, 6], 1)]),
        comparison_of("wrong", "chat", [answer_of([5, 6, 7], 1)] * 2, [answer_of([5, 6, 7], 1), answer_of([5, 9], 1)]),
        comparison_of("short", "edit", [answer_of([5, 6], 1)], [answer_of([5], 1)]),
    ]
    lines = divergences(tiny, done)
    assert len(lines) == 2
    assert "wrong: output token 1 is 6 " in lines[0] and " 9 " in lines[0]
    assert "short: output token 1" in lines[1] and "the end" in lines[1]
    result = report(done, exact=True, seed=0)
    assert result["identical"] is False and result["categories"]["edit"]["identical"] is False
    assert report(done, exact=False, seed=0)["identical"] is None


def test_the_whole_run_on_a_tiny_model(tiny: LLM) -> None:
    prompts = select(load_prompts(None), ["chat", "lists"], 2)
    said: list[str] = []
    result = measure_speed(tiny, prompts, GREEDY, pairs=2, seed=0, progress=said.append)
    json.dumps(result)
    assert list(result["categories"]) == ["chat", "lists"] and result["divergences"] == []
    wanted = {"plain_tok_s", "spec_tok_s", "speedup", "speedup_interval", "end_to_end_speedup", "tokens_per_round"}
    assert wanted | {"acceptance_by_position", "identical"} <= result["categories"]["chat"].keys()
    assert len(said) == 4 and len(result["samples"]) == 4
    for entry in result["samples"]:
        assert len(entry["plain"]) == len(entry["speculative"]) == 2
        for run in entry["plain"] + entry["speculative"]:
            assert 0 < run["decode_s"] < run["total_s"] and run["decode_tokens"] == run["tokens"] - 1
    share = result["categories"]["chat"]["time_share"]
    assert sum(share.values()) == pytest.approx(1.0) and share["rest"] > 0


def test_sampling_with_a_seed_is_compared_too(tiny: LLM) -> None:
    params = SamplingParams(temperature=0.8, seed=5, max_tokens=10)
    result = measure_speed(tiny, select(load_prompts(None), ["code"], 2), params, 1, 0, lambda _: None)
    assert result["identical"] is True


def test_the_first_turn_goes_to_each_by_turns(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[bool] = []

    def noted(
        llm: LLM, plain_engine: Engine, prompts: list[list[int]], params: SamplingParams, *, plain_first: bool
    ) -> tuple[Side, Side]:
        order.append(plain_first)
        return play_pair(llm, plain_engine, prompts, params, plain_first=plain_first)

    monkeypatch.setattr(speed, "play_pair", noted)
    measure_speed(tiny, select(load_prompts(None), ["chat"], 2), GREEDY, 2, 0, lambda _: None)
    assert order == [True, False, False, True]


def test_a_lost_token_is_found(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tiny.engine.step

    def changed(news: Progress) -> Progress:
        last = replace(news.pieces[-1], token=news.pieces[-1].token ^ 1)
        return replace(news, pieces=(*news.pieces[:-1], last))

    def lying() -> list[Progress]:
        return [changed(news) if news.finish_reason else news for news in real()]

    monkeypatch.setattr(tiny.engine, "step", lying)
    result = measure_speed(tiny, select(load_prompts(None), ["chat"], 1), GREEDY, 1, 0, lambda _: None)
    assert result["identical"] is False and result["divergences"][0].startswith("prompt chat-1: output token 11 ")


def test_no_pairs_are_refused(tiny: LLM) -> None:
    with pytest.raises(InputError, match="--pairs is 0"):
        measure_speed(tiny, load_prompts(None), GREEDY, 0, 0, lambda _: None)
