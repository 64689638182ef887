"""What a client may send, and what it gets for sending something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from sooner.llm import LLM
from sooner.serve import limits
from sooner.serve.limits import Settings
from sooner.serve.schema import REFUSED
from tests.support.server import Running, serving, slow, twin, wait_for

LONG = {"prompt": "the", "max_tokens": 100, "ignore_eos": True}


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"prompt": "a", "foo": 1}, "foo", "unknown field 'foo'"),
        ({"prompt": "a", "temperature": -1}, "temperature", "must be between 0 and 100"),
        ({"prompt": "a", "temperature": "1"}, "temperature", "valid number"),
        ({"prompt": "a", "n": True}, "n", "valid integer"),
        ({"prompt": "a", "n": 10**6}, "n", "less than or equal"),
        ({"prompt": "a", "max_tokens": 10**9}, None, "exceed the limit of 128"),
        ({"prompt": "the" * 1000}, None, "shorten"),
        ({"prompt": []}, "prompt", "prompt"),
        ({"prompt": [10**6]}, None, "outside the vocabulary"),
        ({"prompt": "a", "stop": ["x"] * 99}, "stop", "stop"),
        ({"prompt": "a", "stop": [""]}, "stop", "non-empty"),
        ({"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias", "integer"),
        ({"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias", "100"),
        ({"prompt": "a", "seed": -1}, "seed", "unsigned"),
        ({"prompt": "a", "logprobs": 21}, "logprobs", "20"),
        ({"prompt": "a", "speculative": {"drafter": "eagle"}}, None, "drafter 'eagle' is not loaded"),
        ({"prompt": "a", "speculative": {"k": 4}}, None, "k"),
        ({"prompt": "a", "speculative": {"draft_branches": 2}}, None, "needs a number of draft_tokens"),
        ({"prompt": "a", "stream_options": {}}, "stream_options", "needs stream"),
        ({"prompt": "\ud800"}, None, "not valid Unicode"),
        ({}, "prompt", "prompt is missing"),
        ([], None, "the body"),
    ],
)
def test_bad_fields_are_named(http: httpx.Client, body: Any, param: str | None, message: str) -> None:
    answer = http.post("/v1/completions", content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and message in error["message"]
    assert param is None or error["param"] == param


@pytest.mark.parametrize("field", sorted(REFUSED))
def test_what_is_not_supported_is_refused_by_name(http: httpx.Client, field: str) -> None:
    neutral, remedy = REFUSED[field]
    refused = http.post("/v1/completions", json={"prompt": "the", "max_tokens": 1, field: "something"}).json()["error"]
    assert refused["param"] == field and remedy in refused["message"]
    for value in neutral:
        assert http.post("/v1/completions", json={"prompt": "the", "max_tokens": 1, field: value}).status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"{", "application/json", "not JSON"),
        (b"[" * 100_000, "application/json", "body"),
        (b"\xff\xfe", "application/json", "body"),
        (b'{"prompt": "a"}', "text/plain", "Content-Type: application/json"),
        (b"", "application/json", "body"),
    ],
)
def test_bodies_that_are_no_json(http: httpx.Client, content: bytes, kind: str, message: str) -> None:
    answer = http.post("/v1/completions", content=content, headers={"content-type": kind})
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]


def test_large_bodies_are_not_read(http: httpx.Client) -> None:
    large = b"x" * (limits.BODY_BYTES + 1)
    assert http.post("/v1/completions", content=large).status_code == 413
    assert http.post("/v1/completions", content=iter([large[:-2], b"xxxx"])).status_code == 413  # without a length


def test_unknown_routes_and_methods(http: httpx.Client) -> None:
    assert http.get("/v1/nothing").json()["error"]["type"] == "not_found_error"
    wrong = http.get("/v1/completions")
    assert wrong.status_code == 405 and "POST" in wrong.headers["allow"]


def test_foreign_hosts_are_refused_without_a_key(llm: LLM) -> None:
    """A web page that rebinds its name to this machine sends its own name."""
    with serving(twin(llm), Settings("tiny", hosts=frozenset({"127.0.0.1"}))) as running:
        assert httpx.get(f"{running.url}/health").status_code == 200
        assert httpx.get(f"{running.url}/health", headers={"host": "evil.example:80"}).status_code == 403


def test_the_key(llm: LLM) -> None:
    with serving(twin(llm), Settings("tiny", api_key="secret")) as running:
        for path in ("/v1/models", "/metrics", "/tokenize", "/openapi.json"):
            assert httpx.get(running.url + path).status_code == 401
            assert httpx.get(running.url + path, headers={"authorization": "Bearer Secret"}).status_code == 401
        assert httpx.get(f"{running.url}/v1/models", headers={"authorization": "Bearer secret"}).status_code == 200
        assert httpx.get(f"{running.url}/health").status_code == 200


def test_too_many_requests(llm: LLM) -> None:
    with serving(slow(llm), Settings("tiny", max_requests=3)) as running:
        assert post(running, {"prompt": "the", "n": 4}).status_code == 400
        with httpx.stream("POST", f"{running.url}/v1/completions", json=LONG | {"n": 3, "stream": True}) as busy:
            lines = busy.iter_lines()
            next(lines)
            turned_away = post(running, {"prompt": "the"})
            assert turned_away.status_code == 429 and int(turned_away.headers["retry-after"]) > 0
            assert turned_away.json()["error"]["type"] == "rate_limit_error"
        wait_for(lambda: running.service.worker.places == 0)
        assert post(running, {"prompt": "the"}).status_code == 200


def post(running: Running, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{running.url}/v1/completions", json=body, timeout=30)


def test_tokenize_and_back(http: httpx.Client) -> None:
    tokens = http.post("/tokenize", json={"prompt": "the é", "return_token_strs": True}).json()
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"]) and tokens["max_model_len"] == 128
    assert http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": "the é"}
    chat = http.post("/tokenize", json={"messages": [{"role": "user", "content": "in"}]}).json()
    text = http.post("/detokenize", json={"tokens": chat["tokens"]}).json()["prompt"]
    assert text == "<|im_start|>user\nin<|im_end|>\n<|im_start|>assistant\n"
    assert http.post("/tokenize", json={}).status_code == 400


def test_content_parts_and_developer(http: httpx.Client) -> None:
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "in"}]
    messages = [{"role": "developer", "content": "a"}, {"role": "user", "content": parts}]
    tokens = http.post("/tokenize", json={"messages": messages, "add_generation_prompt": False}).json()["tokens"]
    text = http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert text == "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nthe in<|im_end|>\n"
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]
    assert http.post("/v1/chat/completions", json={"messages": image}).status_code == 400


def test_metrics_count_what_happened(llm: LLM) -> None:
    with serving(twin(llm)) as running:
        used = post(running, {"prompt": "the the the the", "max_tokens": 20, "temperature": 0}).json()["usage"]
        page = httpx.get(f"{running.url}/metrics").text
    values = {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line[0] != "#"}
    assert values["sooner:generation_tokens_total"] == used["completion_tokens"]
    assert values["sooner:prompt_tokens_total"] == used["prompt_tokens"]
    details = used["completion_tokens_details"]
    assert values["sooner:spec_decode_num_accepted_tokens_total"] == details["accepted_prediction_tokens"]
    assert values["sooner:time_to_first_token_seconds_count"] == 1
    assert values["sooner:inter_token_latency_seconds_count"] == used["completion_tokens"] - 1
    assert values["sooner:num_requests_running"] == 0
    assert values["sooner:kv_cache_free_pages"] == values["sooner:kv_cache_pages"]
    assert "sooner:estimated_plain_seconds_total" in values


def test_no_file_is_named_in_what_is_served(http: httpx.Client, model: Path) -> None:
    """Nothing of the machine's layout goes out."""
    for path in ("/v1/models", "/metrics", "/openapi.json"):
        assert str(model) not in http.get(path).text
