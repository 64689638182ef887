from __future__ import annotations

from pathlib import Path

import pytest

from sooner.llm import LLM
from tests.support.tiny_models import tiny_metadata, write_gguf


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with room for a prefill of 512 tokens."""
    path = tmp_path_factory.mktemp("bench") / "tiny.gguf"
    return write_gguf(path, tiny_metadata() | {"llama.context_length": 1024})


@pytest.fixture(scope="session")
def tiny(tiny_file: Path) -> LLM:
    return LLM(str(tiny_file), draft="ngram", threads=2, max_sequences=1)
