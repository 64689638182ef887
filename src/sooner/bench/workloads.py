"""The prompts that `sooner bench speed` answers: our own, or a file of the user's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sooner.errors import InputError
from sooner.models.tokenizer import Tokenizer

OURS = Path(__file__).parent / "prompts"
CATEGORIES = ("chat", "code", "edit", "summary", "question", "arithmetic", "translation", "lists")
NO_CATEGORY = "all"  # of lines that name none


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to answer; most are a single message of the user."""

    id: str
    category: str
    messages: tuple[Mapping[str, str], ...]

    def token_ids(self, tokenizer: Tokenizer) -> list[int]:
        """Through the chat template where the model has one; without it a single message is taken as plain text."""
        if tokenizer.has_chat_template:
            return tokenizer.encode(tokenizer.chat(self.messages), add_special=False)
        if len(self.messages) > 1:
            raise InputError(f"prompt {self.id} is a conversation, but the model has no chat template; give plain text")
        return tokenizer.encode(self.messages[0]["content"])


def load_prompts(path: Path | None) -> list[Prompt]:
    """Our prompts, or the lines of a .jsonl file: {"prompt"}, {"messages"} or Spec-Bench's {"turns"}.

    `id` (or Spec-Bench's `question_id`) and `category` are optional. Of several turns only the first is asked: the
    others would need the model's own answers in between, which differ from model to model.
    """
    if path is None:
        return [prompt for category in CATEGORIES for prompt in _read(OURS / f"{category}.jsonl")]
    prompts = _read(path)
    if not prompts:
        raise InputError(f"{path} holds no prompts; give a .jsonl file with one prompt a line")
    return prompts


def select(prompts: Sequence[Prompt], categories: Sequence[str], per_category: int | None) -> list[Prompt]:
    """The named categories, all where none is named, and of each the first `per_category` prompts."""
    known = list(dict.fromkeys(prompt.category for prompt in prompts))
    unknown = [name for name in categories if name not in known]
    if unknown:
        raise InputError(f"category {unknown[0]!r} has no prompts; there are {', '.join(known)}")
    groups = {name: [p for p in prompts if p.category == name] for name in categories or known}
    for name, group in groups.items():
        if per_category is not None and not 1 <= per_category <= len(group):
            raise InputError(f"--per-category is {per_category}, must be between 1 and the {len(group)} of {name}")
    return [prompt for group in groups.values() for prompt in group[:per_category]]


def _read(path: Path) -> list[Prompt]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read prompts from {path}: {error}") from error
    return [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _parse(path: Path, number: int, line: str) -> Prompt:
    where = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise InputError(f'{where}: must be an object with "prompt", "messages" or "turns"')
    name = row.get("id", row.get("question_id", number))
    return Prompt(str(name), str(row.get("category", NO_CATEGORY)), _messages(where, row))


def _messages(where: str, row: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    turns = row.get("turns")
    text = turns[0] if isinstance(turns, list) and turns else row.get("prompt")
    if isinstance(text, str) and text.strip():
        return ({"role": "user", "content": text},)
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise InputError(f'{where}: needs "prompt" (text), "messages" (a conversation) or "turns" (Spec-Bench)')
    return tuple(messages)


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))
