"""Options that look at the output so far, where a round commits several tokens of it (CASES.md 13 and 15)."""

from pathlib import Path

import pytest

from sooner.draft.model import ModelDrafter
from sooner.llm import LLM
from sooner.types import SamplingParams
from tests.support.drafters import OracleDrafter
from tests.support.engines import VOCABULARY, Answer, engine, plain, request, run, tiny_decoder
from tests.support.tiny_models import write_gguf

PROMPT = (3, 1, 4, 1, 5)


def with_oracle(params: SamplingParams) -> tuple[Answer, Answer]:
    """Plain, and with a drafter that knows the answer, so that rounds commit six tokens."""
    truth = plain(one := request(PROMPT, params, "oracle", 5))
    machine, _ = engine({"oracle": OracleDrafter({PROMPT: truth.tokens})})
    return truth, run(machine, [one])[0]


@pytest.mark.parametrize(
    "option", [{"frequency_penalty": -2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 1.3}]
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_penalties_change_the_text_and_equal_plain(option: dict[str, float], temperature: float) -> None:
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=37)
    without, _ = with_oracle(params)
    truth, done = with_oracle(SamplingParams(temperature=temperature, seed=5, max_tokens=37, **option))  # type: ignore[arg-type]
    assert done.tokens == truth.tokens != without.tokens
    assert done.stats.acceptance_rate == 1.0 and (done.stats.tokens_per_round or 0) > 5
    repeats = [len(answer.tokens) - len(set(answer.tokens)) for answer in (truth, without)]
    assert repeats[0] > repeats[1] if option.get("frequency_penalty") == -2.0 else repeats[0] < repeats[1]


def test_min_tokens_counts_tokens_and_not_rounds() -> None:
    """The likeliest token is the one that ends the text, from the start."""
    eos = plain(request(PROMPT)).tokens[0]
    params = SamplingParams(temperature=0.0, logit_bias={eos: 100.0}, min_tokens=8, max_tokens=20)
    truth = plain(one := request(PROMPT, params, "m", 5, eos=frozenset({eos})))
    done = run(engine({"m": ModelDrafter("m", tiny_decoder(), VOCABULARY, 8)})[0], [one])[0]
    assert done.tokens == truth.tokens and (len(done.tokens), done.reason) == (9, "stop")
    assert (done.stats.tokens_per_round or 0) > 3


def test_unseeded_requests_of_one_batch_differ_and_a_seed_repeats(tmp_path: Path) -> None:
    """CASES.md 15."""
    llm = LLM(str(write_gguf(tmp_path / "tiny.gguf")), draft="ngram", threads=1)

    def texts(seed: int | None) -> list[tuple[int, ...]]:
        params = SamplingParams(temperature=1.0, seed=seed, max_tokens=24, ignore_eos=True)
        return [tuple(out.outputs[0].token_ids) for out in llm.generate(["in the in the"] * 3, params)]

    first, second = texts(None), texts(None)
    assert len({*first, *second}) == 6
    assert len({*texts(4), *texts(4)}) == 1
