"""Prompts from options, text files, JSON lines and standard input; a line may bring settings of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sooner.errors import InputError
from sooner.types import SamplingParams

if TYPE_CHECKING:
    from sooner.llm import LLM

Conversation = list[dict[str, str]]
SETTINGS = {f.name for f in fields(SamplingParams)}
PASSED_ON = {"id", "metadata"}  # written into the answer's line as they are


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt, with what its line of JSON says beside it."""

    prompt: str | Conversation
    settings: Mapping[str, Any] = field(default_factory=dict)
    prediction: str | None = None
    passed_on: Mapping[str, Any] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        text = self.prompt if isinstance(self.prompt, str) else self.prompt[-1].get("content", "")
        line = " ".join(text.split())
        return line if len(line) <= 90 else line[:87] + "..."

    def needs_no_file(self) -> None:
        """Raises InputError where the answer is more than one text."""
        if several := sorted({"n", "logprobs", "prompt_logprobs"} & set(self.settings)):
            raise InputError(f"a line asks for {', '.join(several)}; write the answers to a file with --output")

    def params(self, usual: SamplingParams) -> SamplingParams:
        """The command's settings with the line's own on top."""
        return SamplingParams.from_dict({name: getattr(usual, name) for name in SETTINGS} | dict(self.settings))

    def ids(self, llm: LLM, chat: bool | None) -> list[int]:
        """chat: None uses the chat template where the model has one."""
        if not isinstance(self.prompt, str):
            return llm.chat_prompt(self.prompt)
        if chat if chat is not None else llm.tokenizer.has_chat_template:
            if not self.prompt.strip():
                raise InputError("the prompt is empty; give it some text")
            return llm.chat_prompt([{"role": "user", "content": self.prompt}])
        return llm.tokenizer.encode(self.prompt)


def read_prompts(given: list[str], files: list[Path]) -> list[Asked]:
    """From options and files, or standard input when there are none."""
    asked = [Asked(text) for text in given]
    for path in files:
        text = read_text(path)
        if path.suffix == ".jsonl":
            lines = enumerate(text.splitlines(), 1)
            asked += [parse_line(f"{path}, line {number}", line) for number, line in lines if line.strip()]
        else:
            asked.append(Asked(text))
    if not asked:
        if sys.stdin.isatty():
            raise InputError("no prompt; give one with -p, --file, or on standard input")
        asked = [Asked(sys.stdin.read())]
    return asked


def parse_line(place: str, line: str) -> Asked:
    """{"prompt": text} or {"messages": [...]}, and what else it may have: sampling options by the names of
    `SamplingParams`, "prediction", "id" and "metadata"."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: not JSON ({error})") from error
    prompt = row.get("prompt", row.get("messages")) if isinstance(row, dict) else None
    if not isinstance(prompt, str | list):
        raise InputError(f'{place}: needs "prompt" (text) or "messages" (a conversation)')
    rest = {key: value for key, value in row.items() if key not in ("prompt", "messages", "prediction")}
    if unknown := sorted(set(rest) - SETTINGS - PASSED_ON):
        raise InputError(f'{place}: unknown {", ".join(unknown)}; what is no sampling option goes into "metadata"')
    expected = row.get("prediction")
    if not isinstance(expected, str | None):
        raise InputError(f"{place}: prediction is {expected!r}, must be text")
    settings = {key: value for key, value in rest.items() if key in SETTINGS}
    asked = Asked(prompt, settings, expected, {key: rest[key] for key in PASSED_ON & set(rest)})
    try:
        asked.params(SamplingParams())
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{place}: {error}") from error
    return asked


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
