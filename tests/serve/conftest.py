"""One tiny server for all tests that do not spoil it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import OpenAI

from sooner.llm import LLM
from tests.support.server import Running, serving
from tests.support.tiny_models import write_gguf


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("served") / "tiny.gguf")


@pytest.fixture(scope="session")
def llm(model: Path) -> LLM:
    return LLM(str(model), draft="suffix,ngram", kernels="torch", threads=1)


@pytest.fixture(scope="session")
def server(llm: LLM) -> Iterator[Running]:
    with serving(llm) as running:
        yield running


@pytest.fixture(scope="session")
def openai(server: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def http(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
