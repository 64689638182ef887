"""Answers of a given form, and tool calls, through the `openai` package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import BadRequestError, OpenAI

from sooner.llm import LLM
from sooner.serve.tools import FORMS, ToolReader, read_calls
from tests.support.server import serving
from tests.support.tiny_models import CHAT, tiny_metadata, write_gguf

TOOLS_IN = "{% if tools %}<tool_call> {{ tools | tojson }}\n{% endif %}"
HELLO: list[Any] = [{"role": "user", "content": "the"}]
SCHEMA = {
    "type": "object",
    "properties": {"in": {"type": "integer", "minimum": 0, "maximum": 99}, "the": {"enum": ["the", "in"]}},
    "required": ["in", "the"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": ["x", '}"']}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}


@pytest.fixture(scope="module")
def tools_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    metadata = tiny_metadata() | {"tokenizer.chat_template": TOOLS_IN + CHAT, "llama.context_length": 1024}
    return write_gguf(tmp_path_factory.mktemp("tools") / "tools.gguf", metadata)


@pytest.fixture(scope="module")
def client(tools_model: Path) -> Iterator[OpenAI]:
    llm = LLM(str(tools_model), draft="grammar,ngram", draft_tokens=4, kernels="torch", threads=1)
    with serving(llm) as running, OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client: OpenAI, **options: Any) -> Any:
    given: dict[str, Any] = {"model": "tiny", "messages": HELLO, "seed": 3, "max_tokens": 300} | options
    return client.chat.completions.create(**given)


def test_json_schema(client: OpenAI) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    answers = [ask(client, response_format=wanted, seed=seed) for seed in range(4)]
    for answer in answers:
        value = json.loads(answer.choices[0].message.content)
        assert 0 <= value["in"] <= 99 and value["the"] in ("the", "in") and answer.choices[0].finish_reason == "stop"
    plain = ask(client, response_format=wanted, seed=1, extra_body={"speculative": False})
    assert plain.choices[0].message.content == answers[1].choices[0].message.content
    accepted = sum(a.usage.completion_tokens_details.accepted_prediction_tokens for a in answers)
    assert accepted > 40  # the grammar drafter spells what is forced


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"regex": "(the|in){3}"}, "(the|in){3}"),
        ({"choice": ["yes \"and\" no", "no\n"]}, "yes \"and\" no|no\n"),
        ({"grammar": 'start: "the" "in"+ "."'}, "the(in)+\\."),
        ({"json": SCHEMA}, r"\{.*\}"),
    ],
)  # fmt: skip
def test_structured_outputs(client: OpenAI, wanted: Any, pattern: str) -> None:
    answer = ask(client, temperature=0, extra_body={"structured_outputs": wanted})
    assert re.fullmatch(pattern, answer.choices[0].message.content)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 3}}}},
            "json_schema",
        ),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"structured_outputs": {"regex": "("}}, "regex"),
        ({"structured_outputs": {}}, "must have one"),
        ({"structured_outputs": {"json": {"x": "y" * 70_000}}}, "at most 65536"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "keep one"),
        ({"tools": [ADD], "response_format": {"type": "json_object"}}, "keep one"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "sub"}}}, "'sub'"),
        ({"tool_choice": "required"}, "needs tools"),
        ({"tools": [ADD] * 200}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, "name"),
        ({"chat_template_kwargs": {"messages": []}}, "not yours"),
    ],
)
def test_bad_structures_are_refused(client: OpenAI, options: Any, message: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        ask(client, extra_body=options)
    assert message in refused.value.message


def test_a_template_without_tools_refuses_them(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", json={"messages": HELLO, "tools": [ADD]})
    assert answer.status_code == 400 and "tools are not known" in answer.json()["error"]["message"]


NAMED = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize("choice", ["required", NAMED], ids=str)
def test_tool_calls(client: OpenAI, choice: Any) -> None:
    """Whole and streamed they are the same, with arguments that keep to their schema."""
    options = {"tools": [ADD, NOW], "tool_choice": choice, "parallel_tool_calls": False}
    names = set()
    for seed in range(3):
        answer = ask(client, seed=seed, **options).choices[0]
        [call] = answer.message.tool_calls
        names.add(call.function.name)
        arguments = json.loads(call.function.arguments)
        if call.function.name == "add":
            assert 0 <= arguments["a"] <= 9 and arguments["b"] in ("x", '}"')
        assert answer.finish_reason == "tool_calls" and answer.message.content is None
        chunks = [c.choices[0] for c in ask(client, seed=seed, stream=True, **options)]
        parts = [part for c in chunks for part in c.delta.tool_calls or []]
        assert parts[0].function.name == call.function.name and parts[0].id and parts[0].index == 0
        assert "".join(part.function.arguments for part in parts) == call.function.arguments
        assert chunks[-1].finish_reason == "tool_calls"
    assert names == {"add"} or choice == "required"


def test_tools_that_may_not_be_called_are_not_shown(client: OpenAI) -> None:
    with_tools = ask(client, tools=[ADD], tool_choice="none", max_tokens=5)
    without = ask(client, max_tokens=5)
    assert with_tools.usage.prompt_tokens == without.usage.prompt_tokens
    auto = ask(client, tools=[ADD], max_tokens=5)
    assert auto.usage.prompt_tokens > without.usage.prompt_tokens and auto.choices[0].message.content


def test_results_of_tools_go_back_into_the_template(client: OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": "x"}'}}
    messages = [*HELLO, {"role": "assistant", "content": "in", "tool_calls": [call]}]
    messages.append({"role": "tool", "tool_call_id": "call_1", "content": "2"})
    assert ask(client, messages=messages, tools=[ADD], max_tokens=3).usage.completion_tokens == 3
    call["function"] = {"name": "add", "arguments": "{"}
    with pytest.raises(BadRequestError, match="no JSON"):
        ask(client, messages=messages, tools=[ADD])


TWO = (
    'Let me see. <tool_call\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "}\\"x</tool_call>"}}'
    "\n</tool_call>\n"
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)


@given(st.lists(st.integers(0, len(TWO)), max_size=12))
def test_reading_does_not_depend_on_how_the_text_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TWO)]
    reader = ToolReader(FORMS[0])
    pieces = [piece for a, b in pairwise(edges) for piece in reader.push(TWO[a:b])] + reader.flush()
    content, calls = read_calls(FORMS[0], TWO)
    assert "".join(piece.text for piece in pieces if piece.kind == "content") == content
    assert content == "Let me see. <tool_call\n"
    names = [(piece.text, piece.call) for piece in pieces if piece.kind == "call"]
    assert names == [("add", 0), ("now", 1)]
    for index, call in enumerate(calls):
        parts = [piece.text for piece in pieces if piece.kind == "arguments" and piece.call == index]
        assert "".join(parts) == call["function"]["arguments"]
    assert json.loads(calls[0]["function"]["arguments"]) == {"a": 1, "b": '}"x</tool_call>'}


def test_a_call_that_is_cut_short_is_not_content() -> None:
    content, calls = read_calls(FORMS[0], 'Hm <tool_call>\n{"name": "add", "arguments": {"a": 1')
    assert content == "Hm " and calls[0]["function"]["arguments"] == '{"a": 1'
    assert read_calls(FORMS[0], "a <tool_")[0] == "a <tool_"


def test_prediction(client: OpenAI) -> None:
    """The expected text is drafted from, and changes nothing else."""
    fixed = {"extra_body": {"speculative": {"draft_tokens": 8}}}  # what pays on a tiny model, the clock decides
    usual = ask(client, max_tokens=60, **fixed)
    text = usual.choices[0].message.content
    predicted = ask(client, max_tokens=60, prediction={"type": "content", "content": text}, **fixed)
    assert predicted.choices[0].message.content == text
    details = predicted.usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 15
    assert details.accepted_prediction_tokens > usual.usage.completion_tokens_details.accepted_prediction_tokens
    for wanted, message in ((False, "speculative is false"), ({"drafter": "ngram"}, "needs the drafter")):
        with pytest.raises(BadRequestError, match=message):
            ask(client, prediction={"type": "content", "content": "a"}, extra_body={"speculative": wanted})
