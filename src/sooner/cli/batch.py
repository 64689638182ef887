"""`sooner generate --output FILE`: many prompts at once, one JSON line an answer, written as soon as it is complete."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sooner.cli.prompts import Asked
from sooner.errors import InputError
from sooner.types import SamplingParams

if TYPE_CHECKING:
    from sooner.llm import LLM
    from sooner.outputs import Completion


def write_answers(
    llm: LLM, asked: Sequence[Asked], params: SamplingParams, expected: str, chat: bool | None, path: Path
) -> None:
    """`index` in a line is the prompt's place, counted from 0; `sample` tells several answers to one prompt apart.
    Raises InputError at the end where an answer failed."""
    failed: list[str] = []
    answers = llm.answers(
        [one.ids(llm, chat) for one in asked],
        [one.params(params) for one in asked],
        prediction=[expected if one.prediction is None else one.prediction for one in asked],
        progress=sys.stderr.isatty(),
    )
    try:
        with path.open("w", encoding="utf-8") as file:
            for index, output in answers:
                for completion in output.outputs:
                    line = {"index": index, "sample": completion.index, **asked[index].passed_on}
                    line |= {"prompt_token_ids": output.prompt_token_ids} | described(completion)
                    file.write(json.dumps(line) + "\n")
                    failed += [f"prompt {index + 1}: {completion.error}"] if completion.error else []
                file.flush()
    except OSError as error:
        raise InputError(f"cannot write the answers to {path}: {error}") from error
    if failed:
        raise InputError(f"{len(failed)} of {len(asked)} answers failed; {failed[0]}")


def described(completion: Completion) -> dict[str, Any]:
    """Log-probabilities only where they were asked for."""
    scores = {name: getattr(completion, name) for name in ("logprobs", "prompt_logprobs")}
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "error": completion.error,
        "stats": completion.stats.as_dict(),
    } | {name: [one and asdict(one) for one in found] for name, found in scores.items() if found}
