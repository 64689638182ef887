"""docs/server.md is true: its examples run, its dashboard asks for metrics that exist, its table names the fields."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import httpx2 as httpx
import pytest

from sooner.serve.schema import Chat, Completions
from tests.support.server import Running

PAGE = Path("docs/server.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def block(kind: str, part: str, server: Running) -> str:
    """An example, sent to the tiny server instead."""
    [text] = [text for language, text in BLOCKS if language == kind and part in text]
    return str(text).replace("http://127.0.0.1:8000", server.url).replace("smollm2", "tiny")


def printed(code: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/server.md", "exec"), {})
    return out.getvalue()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not there")
def test_curl(server: Running) -> None:
    done = subprocess.run(["sh", "-c", block("sh", "curl", server)], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_openai(server: Running) -> None:
    assert printed(block("python", "from openai", server))


@pytest.mark.skipif(find_spec("langchain_openai") is None, reason="pip install langchain-openai")
def test_langchain(server: Running) -> None:
    assert printed(block("python", "langchain_openai", server))


@pytest.mark.skipif(shutil.which("llm") is None, reason="pip install llm")
def test_llm(server: Running, tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(block("yaml", "model_id", server))
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}
    command = ["sh", "-c", block("sh", "llm --no-stream", server)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_the_dashboard_asks_for_what_is_there(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": "the the the the", "max_tokens": 20, "temperature": 0})
    page = http.get("/metrics").text
    asked = set(re.findall(r"(?:sooner:|process_)\w+", Path("docs/grafana.json").read_text(encoding="utf-8")))
    assert len(asked) > 20
    assert {name for name in asked if not re.search(rf"^(# HELP )?{name}\b", page, re.MULTILINE)} == set()


@pytest.mark.parametrize("model", [Completions, Chat])
def test_every_field_is_named_in_the_page(model: type[Completions] | type[Chat]) -> None:
    assert [name for name in model.model_fields if f"`{name}`" not in PAGE and name != "messages"] == []


def test_the_openapi_document(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert {"/v1/chat/completions", "/v1/completions", "/tokenize", "/metrics"} <= document["paths"].keys()
    responses = document["paths"]["/v1/completions"]["post"]["responses"]
    assert {"200", "400", "429", "500"} <= responses.keys() and "422" not in responses
