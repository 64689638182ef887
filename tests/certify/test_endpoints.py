"""Part 6 over loopback: two servers that fake OpenAI's from a tiny engine, as they should be and as they should not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sooner.certify.checks import Check, run_part
from sooner.certify.client import NEUTRAL, Server
from sooner.certify.endpoints import CUTS, NEAR_TIE, ONE_SEED, _homogeneous, endpoints
from sooner.draft.model import ModelDrafter
from sooner.errors import InputError
from sooner.types import Logprob
from tests.certify.servers import FakeServer, Form, llama_cpp_form, openai_form, serving
from tests.support.engines import VOCABULARY, Answer, engine, tiny_decoder

PROMPTS = ["abcabcabc", "hello there"]


def server(drafter: str | None = None, **options: Any) -> FakeServer:
    drafters = {"m": ModelDrafter("m", tiny_decoder(9, 1), VOCABULARY, 64)}
    return FakeServer(engine(drafters, tiny_decoder(layers=1))[0], drafter, **options)


def compare(tested: FakeServer, plain: FakeServer, requests: int = 60) -> dict[str, Check]:
    with serving(tested), serving(plain):
        part = endpoints(Server.at(tested.url), Server.at(plain.url + "/v1/"), PROMPTS, requests)
        return {check.name: check for check in run_part(part, lambda job: None).checks}


@pytest.mark.parametrize("form", [openai_form, llama_cpp_form])
def test_speculation_that_is_exact_passes(form: Form) -> None:
    checks = compare(server("m", form=form), server(form=form, first_seed=10_000))
    assert all(check.ok for check in checks.values()), [check.text for check in checks.values()]
    assert checks.keys() == {"greedy, prompt 1", "greedy, prompt 2", *(f"temperature 1, {name}" for name in CUTS)}
    assert checks["greedy, prompt 1"].figures["logprob_difference"] < 1e-4
    joint = checks["temperature 1, first three tokens"].figures
    assert joint["n"] == 120 and 0 < joint["visible"] <= 1


def other_token(at: int, rank: int) -> Callable[[Answer], None]:
    """Puts the rank-th likeliest token to position `at`."""

    def spoil(answer: Answer) -> None:
        if len(answer.tokens) > at:
            score = answer.pieces[at].logprob
            assert score is not None
            answer.tokens[at] = score.top[rank][0]

    return spoil


def test_a_greedy_divergence_carries_place_texts_and_margin() -> None:
    checks = compare(server(spoil=other_token(7, 1)), server(), requests=1)
    found = checks["greedy, prompt 2"]
    assert found.figures["position"] == 7
    assert found.figures["kind"] == ("near-tie" if found.figures["margins"][0] <= NEAR_TIE else "bug")
    assert found.ok == (found.figures["kind"] == "near-tie")
    assert "top-2 margin" in found.text and "became" in found.text
    assert not checks["greedy, prompt 1"].ok or checks["greedy, prompt 1"].figures["kind"] == "near-tie"


def with_margin(margin: float) -> Callable[[Answer], None]:
    """Makes every place look as if its two likeliest tokens were so near."""

    def spoil(answer: Answer) -> None:
        for i, piece in enumerate(answer.pieces):
            assert piece.logprob is not None
            (first, value), (second, _), *rest = piece.logprob.top
            top = ((first, value), (second, value - margin), *rest)
            answer.pieces[i] = replace(piece, logprob=Logprob(piece.token, piece.logprob.logprob, top))

    return spoil


@pytest.mark.parametrize(("margin", "kind"), [(0.01, "near-tie"), (3.0, "bug")])
def test_near_ties_are_told_from_bugs_by_the_plain_servers_margin(margin: float, kind: str) -> None:
    def turned(answer: Answer) -> None:
        answer.tokens[5:] = [(token + 1) % VOCABULARY for token in answer.tokens[5:]]

    with serving(server(spoil=turned)) as tested, serving(server(spoil=with_margin(margin))) as plain:
        part = endpoints(Server.at(tested.url), Server.at(plain.url), PROMPTS[:1], 1)
        [check] = part.jobs[0].run()
    assert (check.figures["kind"], check.figures["position"], check.ok) == (kind, 5, kind == "near-tie")


def test_samples_of_one_seed_are_told() -> None:
    """Servers that draw the same numbers agree whatever they do with them."""
    drawn = [("a", "b", "c")] * 30 + [("a", "c", "b")] * 20
    assert ONE_SEED in _homogeneous("x", slice(0, 3), drawn, drawn[::-1]).text
    assert ONE_SEED not in _homogeneous("x", slice(0, 3), drawn, drawn[1:] + drawn[-1:]).text
    assert ONE_SEED not in _homogeneous("x", slice(0, 1), drawn, drawn).text  # a certain token


def test_biased_sampling_is_caught() -> None:
    """A server that at temperature 1 begins with the likeliest token."""

    def greedier(answer: Answer) -> None:
        score = answer.pieces[0].logprob
        assert score is not None
        if len(answer.tokens) <= 3:
            answer.tokens[0] = score.top[0][0]

    checks = compare(server(spoil=greedier), server(first_seed=10_000))
    assert not checks["temperature 1, first token"].ok
    assert checks["temperature 1, second token"].ok


def test_a_penalty_that_a_server_adds_is_switched_off_where_it_takes_the_option() -> None:
    with serving(server()) as lenient, serving(server(strict=True)) as strict:
        assert Server.at(lenient.url).extra == NEUTRAL and Server.at(strict.url).extra == {}
        [answers] = {
            tuple(Server.at(s.url).complete("ab", max_tokens=3, temperature=0.0, logprobs=1).tokens)
            for s in (lenient, strict)
        }
    assert len(answers) == 3


def test_servers_that_cannot_be_compared_are_bad_input() -> None:
    with pytest.raises(InputError, match="cannot be asked"):
        Server.at("http://127.0.0.1:9")
    with pytest.raises(InputError, match="is not a URL"):
        Server.at("localhost:8000")
    with serving(server(form=None)) as silent:
        with pytest.raises(InputError, match="without log-probabilities"):
            Server.at(silent.url).complete("a", max_tokens=1, temperature=0.0, logprobs=2)
        with pytest.raises(InputError, match="answered 404"):
            Server(silent.url, "another").complete("a", max_tokens=1, temperature=0.0, logprobs=2)
