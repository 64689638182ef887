"""Log-probabilities are the target's own, one a committed token, whatever was drafted (CASES.md 9 and 26)."""

from dataclasses import replace

import numpy as np
import pytest

from sooner.cache.paged import Table
from sooner.draft.model import ModelDrafter
from sooner.models.runner import Span, forward
from sooner.sampling.logprobs import logprob
from sooner.types import SamplingParams
from tests.support.engines import VOCABULARY, engine, request, run, tiny_decoder

PARAMS = SamplingParams(temperature=0.7, seed=2, top_k=9, max_tokens=40, logprobs=3, prompt_logprobs=2)


@pytest.mark.parametrize("k", [0, 1, 4, 8])
@pytest.mark.parametrize("max_rows", [9, 512])
def test_scores_equal_a_pass_over_the_whole_text(k: int, max_rows: int) -> None:
    """Up to the last token before the context limit."""
    decoder = tiny_decoder(context=64)
    machine, _ = engine({"m": ModelDrafter("m", decoder.first_layers(1), VOCABULARY, 64)}, decoder, max_rows=max_rows)
    prompt = [i * 5 % VOCABULARY for i in range(24)]
    [done] = run(machine, [request(prompt, PARAMS, "m", k)])
    text = prompt + done.tokens
    assert len(text) == 64
    cache = decoder.new_cache(8)
    [rows] = forward(decoder, cache, [Span(Table(), text, wants=len(text))])
    wanted = [None, *(logprob(rows[i], text[i + 1], 3) for i in range(len(text) - 1))]
    scores = [piece.logprob for piece in done.pieces]
    assert len(scores) == len(done.tokens)
    for got, want in zip(scores, wanted[len(prompt) :]):
        assert got is not None and want is not None
        assert (got.token, [t for t, _ in got.top]) == (want.token, [t for t, _ in want.top])
        assert got.logprob == pytest.approx(want.logprob, abs=1e-4)
    assert done.prompt_logprobs[0] is None and len(done.prompt_logprobs) == len(prompt)
    for got, want in zip(done.prompt_logprobs[1:], wanted[1:]):
        assert got is not None and want is not None
        assert got.logprob == pytest.approx(want.logprob, abs=1e-4)


def test_a_prompt_is_scored_without_an_answer() -> None:
    prompt = [i * 5 % VOCABULARY for i in range(24)]
    asks = [request(prompt, replace(PARAMS, max_tokens=n)) for n in (0, 3)]
    nothing, some = run(engine(max_rows=9)[0], asks)
    assert (nothing.tokens, nothing.reason) == ([], "length")
    assert len(nothing.prompt_logprobs) == len(some.prompt_logprobs) == 24
    for got, want in zip(nothing.prompt_logprobs[1:], some.prompt_logprobs[1:]):
        assert got is not None and want is not None
        assert got.token == want.token
        assert got.logprob == pytest.approx(want.logprob, abs=1e-4)  # chunks of other shapes


def test_top_tokens_come_best_first_with_ties_by_lowest_id() -> None:
    row = np.array([1.0, 3.0, 3.0, -2.0], np.float32)
    score = logprob(row, 3, 3)
    assert [token for token, _ in score.top] == [1, 2, 0]
    assert score.logprob == pytest.approx(-2.0 - np.log(np.exp(row.astype(float)).sum()), abs=1e-12)
    assert logprob(row, 0, 0).top == ()
