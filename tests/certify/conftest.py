from __future__ import annotations

from pathlib import Path

import pytest

from sooner.certify.subject import Subject
from sooner.llm import LLM
from tests.support.tiny_models import write_gguf

PROMPTS = ["the the the the", "in the in the in", "é", "the quick brown thing in the inn"]


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("certify") / "tiny.gguf")


@pytest.fixture(scope="session")
def subject(tiny_file: Path) -> Subject:
    """A model of two layers with a tokenizer; its first layer and a lookup draft."""
    llm = LLM(str(tiny_file), draft="ngram,model:self/1", threads=1)
    return Subject.of(llm, [llm.tokenizer.encode(prompt) for prompt in PROMPTS])
