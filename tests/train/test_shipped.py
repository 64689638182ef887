"""The drafts that ship: they load under their short names, keep the tokens, and are worth something."""

from __future__ import annotations

import pytest

from sooner.draft.load_trained import SHIPPED
from sooner.llm import LLM
from sooner.types import SamplingParams
from tests.support.smollm2 import PROMPTS

LEAST = {"eagle:smollm2": 1.2, "ngram:smollm2": 1.05}  # tokens a round; the latter is silent where it is unsure


@pytest.mark.slow
@pytest.mark.parametrize("draft", SHIPPED)
def test_drafts_for_smollm2(draft: str) -> None:
    llm = LLM("smollm2", draft=draft, draft_tokens=3, max_context=512)
    prompts = [llm.chat_prompt([{"role": "user", "content": prompt}]) for prompt in PROMPTS[:6]]
    params = SamplingParams(temperature=0.0, max_tokens=40)
    drafted, plain = llm.generate(prompts, params), llm.generate(prompts, params, speculative=False)
    assert [o.outputs[0].token_ids for o in drafted] == [o.outputs[0].token_ids for o in plain]
    stats = [output.outputs[0].stats for output in drafted]
    assert sum(s.committed for s in stats) > LEAST[draft] * sum(s.rounds for s in stats)


def test_shipped_files_are_whole_and_small() -> None:
    for folder in SHIPPED.values():
        files = {path.name: path.stat().st_size for path in folder.iterdir()}
        assert files.keys() == {"config.json", "model.safetensors", "README.md", "curve.json"}
        assert sum(files.values()) <= 40e6
