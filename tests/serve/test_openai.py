"""The `openai` package as a client: what it asks for comes back in the types that it knows."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from sooner.llm import LLM
from sooner.outputs import Completion
from sooner.types import SamplingParams
from tests.support.server import twin

ASK: dict[str, Any] = {"model": "tiny", "max_tokens": 12, "seed": 5}
HELLO: list[Any] = [{"role": "user", "content": "the the the"}]


def test_completion_equals_the_engine(openai: OpenAI, llm: LLM) -> None:
    answer = openai.completions.create(prompt="the the", **ASK)
    expected = alone(llm, "the the", SamplingParams(max_tokens=12, seed=5))
    assert answer.choices[0].text == expected.text
    assert answer.choices[0].finish_reason == expected.finish_reason
    assert answer.usage and answer.usage.completion_tokens == len(expected.token_ids)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def alone(llm: LLM, prompt: str, params: SamplingParams) -> Completion:
    """The answer of an engine that no server drives."""
    [output] = twin(llm).generate(prompt, params, speculative=False)
    return output.outputs[0]


def test_chat_streams_the_same_text(openai: OpenAI) -> None:
    whole = openai.chat.completions.create(messages=HELLO, **ASK)
    stream = openai.chat.completions.create(messages=HELLO, stream=True, stream_options={"include_usage": True}, **ASK)
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage and whole.usage and chunks[-1].usage.total_tokens == whole.usage.total_tokens
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == whole.choices[0].finish_reason and set(reasons[:-1]) == {None}


def test_samples(openai: OpenAI) -> None:
    three = openai.chat.completions.create(messages=HELLO, n=3, **ASK)
    one = openai.chat.completions.create(messages=HELLO, **ASK)
    texts = [choice.message.content for choice in three.choices]
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert texts[0] == one.choices[0].message.content and len(set(texts)) == 3
    assert three.usage and one.usage and three.usage.prompt_tokens == one.usage.prompt_tokens


def test_several_prompts_are_answered_in_order(openai: OpenAI) -> None:
    prompts: Any = ["the", [5, 6, 7], "in"]
    with pytest.raises(BadRequestError):
        openai.completions.create(prompt=prompts, **ASK)
    both = openai.completions.create(prompt=["the", "in"], n=2, **ASK)
    alone = openai.completions.create(prompt="in", **ASK)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert both.choices[2].text == alone.choices[0].text


def test_chat_logprobs(openai: OpenAI) -> None:
    answer = openai.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=3, **ASK)
    scores = answer.choices[0].logprobs
    assert answer.usage and scores and scores.content and len(scores.content) == answer.usage.completion_tokens
    assert all(entry.logprob < 0 and len(entry.top_logprobs) == 3 for entry in scores.content)
    stream = openai.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=3, stream=True, **ASK)
    streamed = [e for c in stream for lp in [c.choices[0].logprobs] if lp and lp.content for e in lp.content]
    assert [entry.token for entry in streamed] == [entry.token for entry in scores.content]
    for got, want in zip(
        streamed, scores.content
    ):  # the rounds of the two may draft otherwise: torch's passes round by shape
        assert [got.logprob, *(top.logprob for top in got.top_logprobs)] == pytest.approx(
            [want.logprob, *(top.logprob for top in want.top_logprobs)], abs=1e-4
        )


def test_echo_scores_the_prompt(openai: OpenAI) -> None:
    answer = openai.completions.create(model="tiny", prompt="the in", max_tokens=0, echo=True, logprobs=2)
    scores = answer.choices[0].logprobs
    assert answer.choices[0].text == "the in"
    assert scores and scores.tokens and scores.token_logprobs and scores.text_offset
    assert "".join(scores.tokens) == "the in" and scores.token_logprobs[0] is None
    assert all(value is not None and value < 0 for value in scores.token_logprobs[1:])
    assert [("the in")[at:][: len(token)] for at, token in zip(scores.text_offset, scores.tokens)] == scores.tokens


@pytest.mark.parametrize("stream", [False, True])
def test_echo_goes_before_the_answer(openai: OpenAI, stream: bool) -> None:
    plain = openai.completions.create(prompt="the in", logprobs=1, **ASK)
    if stream:
        chunks = list(openai.completions.create(prompt="the in", echo=True, logprobs=1, stream=True, **ASK))
        text = "".join(chunk.choices[0].text for chunk in chunks)
        offsets = [at for c in chunks if c.choices[0].logprobs for at in c.choices[0].logprobs.text_offset or []]
    else:
        choice = openai.completions.create(prompt="the in", echo=True, logprobs=1, **ASK).choices[0]
        assert choice.logprobs and choice.logprobs.text_offset
        text, offsets = choice.text, choice.logprobs.text_offset
    assert text == "the in" + plain.choices[0].text
    assert offsets == sorted(offsets) and len(offsets) > 12


def test_stop_strings_and_limits(openai: OpenAI) -> None:
    whole = openai.completions.create(prompt="the", temperature=0, model="tiny", max_tokens=12).choices[0]
    stop = whole.text[2:4]
    cut = openai.completions.create(prompt="the", temperature=0, model="tiny", max_tokens=12, stop=[stop]).choices[0]
    assert cut.text == whole.text[: whole.text.index(stop)] and cut.finish_reason == "stop"
    short = openai.chat.completions.create(messages=HELLO, model="tiny", temperature=0, max_completion_tokens=3)
    assert short.usage and short.usage.completion_tokens == 3


def test_models_and_errors(openai: OpenAI) -> None:
    assert [model.id for model in openai.models.list()] == ["tiny"]
    assert openai.models.retrieve("tiny").owned_by == "sooner"
    with pytest.raises(NotFoundError) as missing:
        openai.completions.create(model="other", prompt="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(BadRequestError) as refused:
        openai.completions.create(model="tiny", prompt="a", suffix="b")
    assert refused.value.param == "suffix" and "not supported" in refused.value.message


@pytest.mark.parametrize(
    ("wanted", "drafters"),
    [
        (False, []),
        (True, ["suffix", "ngram"]),
        ({"drafter": "ngram", "draft_tokens": 2}, ["ngram"]),
        ({"drafter": "suffix", "draft_tokens": 6, "draft_branches": 3}, ["suffix"]),
        ({"verify": "match"}, ["suffix", "ngram"]),
    ],
)
def test_speculation_of_one_request(openai: OpenAI, wanted: Any, drafters: list[str]) -> None:
    """The same tokens whatever is drafted, and the answer says what was used."""
    usual = openai.completions.create(prompt="the the the the", **ASK)
    answer = openai.completions.create(prompt="the the the the", extra_body={"speculative": wanted}, **ASK)
    assert answer.choices[0].text == usual.choices[0].text
    timings = (answer.model_extra or {})["timings"]
    assert timings["drafters"] == drafters
    assert drafters or timings["drafting_off"] == "no drafter was asked for"
    details = answer.usage and answer.usage.completion_tokens_details
    assert details and details.accepted_prediction_tokens is not None and details.rejected_prediction_tokens is not None


def test_vllm_extras(openai: OpenAI) -> None:
    extras = {
        "top_k": 5, "min_p": 0.01, "repetition_penalty": 1.1, "stop_token_ids": [7], "ignore_eos": True,
        "min_tokens": 12, "include_stop_str_in_output": True,
    }  # fmt: skip
    answer = openai.chat.completions.create(
        messages=HELLO, logit_bias={"9": 5}, presence_penalty=0.5, frequency_penalty=0.5, extra_body=extras, **ASK
    )
    assert answer.usage and answer.usage.completion_tokens == 12
