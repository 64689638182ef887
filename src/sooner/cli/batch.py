"""`sooner generate --output FILE`: many prompts at once, one JSON line an answer, written as soon as it is complete."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sooner.errors import InputError
from sooner.types import SamplingParams

if TYPE_CHECKING:
    from sooner.llm import LLM


def write_answers(llm: LLM, prompts: Sequence[list[int]], params: SamplingParams, expected: str, path: Path) -> None:
    """`index` in a line is the prompt's place, counted from 0. Raises InputError at the end where an answer failed."""
    failed: list[str] = []
    answers = llm.answers(prompts, params, prediction=expected, progress=sys.stderr.isatty())
    try:
        with path.open("w", encoding="utf-8") as file:
            for index, output in answers:
                [completion] = output.outputs
                line = {
                    "index": index,
                    "prompt_token_ids": output.prompt_token_ids,
                    "text": completion.text,
                    "token_ids": completion.token_ids,
                    "finish_reason": completion.finish_reason,
                    "error": completion.error,
                    "stats": completion.stats.as_dict(),
                }
                file.write(json.dumps(line) + "\n")
                file.flush()
                failed += [f"prompt {index + 1}: {completion.error}"] if completion.error else []
    except OSError as error:
        raise InputError(f"cannot write the answers to {path}: {error}") from error
    if failed:
        raise InputError(f"{len(failed)} of {len(prompts)} answers failed; {failed[0]}")
