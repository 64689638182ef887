"""One request's trouble stays its own."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.soak import Soak
from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.engine import step
from sooner.engine.engine import Engine
from sooner.models import runner
from sooner.models.runner import Span
from sooner.types import SamplingParams
from tests.support.engines import VOCABULARY, engine, plain, request, run, tiny_decoder


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_logits_end_that_request_alone(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def tapped(decoder: object, cache: object, spans: Sequence[Span], taps: Sequence[int]) -> object:
        rows, features = runner.tapped(decoder, cache, spans, taps)  # type: ignore[arg-type]
        for span, logits in zip(spans, rows):
            if span.table.length > 20 and span.tail[0] != 0 and len(spans) > 1:
                poisoned.append(span)
                logits[-1, 5] = value
        return rows, features

    poisoned: list[Span] = []
    requests = [request([1, 2, 3]), request(range(18))]
    wanted = plain(requests[0]).tokens
    monkeypatch.setattr(step, "tapped", tapped)
    machine, _ = engine()
    good, bad = run(machine, requests)
    assert poisoned
    assert (bad.reason, len(bad.tokens) < 24) == ("error", True)
    assert "logits hold" in bad.error
    assert good.reason == "length" and good.tokens[:3] == wanted[:3]


def test_options_that_leave_no_token_end_the_request_with_a_reason() -> None:
    params = SamplingParams(temperature=0.0, max_tokens=5, bad_words=("unused",))
    one = request([1, 2], params, bad_words=tuple((token,) for token in range(VOCABULARY)))
    machine, _ = engine()
    [done] = run(machine, [one])
    assert (done.reason, done.error) == ("error", "the sampling options leave no token")


@pytest.mark.slow
def test_a_short_soak() -> None:
    """Random load over few pages; `make soak` runs it for ten minutes."""
    small = ModelDrafter("small", tiny_decoder(4, 1), VOCABULARY, 64)
    machine = Engine(tiny_decoder(), {"small": small, "suffix": load_lookup("suffix")}, cache_tokens=384, max_rows=48)
    soak = Soak(random.Random(5), machine)
    for _ in range(300):
        soak.step()
    assert not soak.failures
    assert soak.finished > 20 and soak.aborted > 0
