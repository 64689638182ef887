"""Tool calls: the grammar that keeps their arguments to their schemas, and the way from text back to calls.

How a model writes a call is known by what its chat template mentions. Whatever the model writes between the marks of a
call is held to the grammar, so that reading it needs no guessing.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sooner.errors import InputError
from sooner.models.tokenizer import Tokenizer
from sooner.serve.schema import Chat, NamedTool, Tool

COMPACT = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}


@dataclass(frozen=True, slots=True)
class ToolForm:
    """begin and end enclose {"name": ..., ARGUMENTS: {...}}. between: what stands between two calls."""

    mark: str  # what a chat template of this form mentions
    begin: str
    end: str
    between: str
    arguments: str


FORMS = (
    ToolForm("<tool_call>", "<tool_call>", "\n</tool_call>", "\n", "arguments"),
)  # Hermes, Qwen 2.5 and 3, SmolLM3


def form_of(tokenizer: Tokenizer) -> ToolForm:
    """Raises InputError for a model whose template knows no tools, or writes calls in another way."""
    if not tokenizer.template_mentions("tools"):
        raise InputError("tools are not known to this model's chat template; leave them out")
    for form in FORMS:
        if tokenizer.template_mentions(form.mark) and not tokenizer.template_mentions("<function="):
            return form
    marks = ", ".join(form.mark for form in FORMS)
    raise InputError(f"tools of this model are written in a form that is not supported (supported: JSON in {marks})")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of one call. wanted: whether a call must come, and whether only calls may."""

    form: ToolForm
    tools: tuple[Tool, ...]
    wanted: Literal["auto", "required"]
    several: bool

    @property
    def grammar(self) -> str:
        """In llguidance's Lark notation."""
        again = f"({text(self.form.between + self.form.begin)} call)*" if self.several else ""
        schema = {"anyOf": [self._schema(tool) for tool in self.tools], "x-guidance": COMPACT}
        start = {
            "auto": f"TEXT | lead call {again}\nlead[suffix={text(self.form.begin)}]: /(.|\\n)*/\nTEXT: /(.|\\n)*/",
            "required": f"{text(self.form.begin)} call {again}",
        }
        call = f'"\\n" json {text(self.form.end)}'
        return f"start: {start[self.wanted]}\ncall: {call}\njson: %json {json.dumps(schema)}\n"

    def _schema(self, tool: Tool) -> dict[str, Any]:
        arguments = tool.function.parameters or {"type": "object", "additionalProperties": False}
        properties = {"name": {"const": tool.function.name}, self.form.arguments: arguments}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }


def text(value: str) -> str:
    """A string of the grammar."""
    return json.dumps(value)


def tool_use(body: Chat, tokenizer: Tokenizer) -> ToolUse | None:
    """None where no tool may be called."""
    choice = body.tool_choice
    if not body.tools:
        if choice not in (None, "none", "auto"):
            raise InputError("tool_choice needs tools; give some")
        return None
    if choice == "none":
        return None
    form, tools = form_of(tokenizer), tuple(body.tools)
    if isinstance(choice, NamedTool):
        tools = tuple(tool for tool in tools if tool.function.name == choice.function.name)
        if not tools:
            raise InputError(f"tool_choice names {choice.function.name!r}, which is not among the tools")
    several = body.parallel_tool_calls is not False and not isinstance(choice, NamedTool)
    return ToolUse(form, tools, "auto" if choice in (None, "auto") else "required", several)


@dataclass(frozen=True, slots=True)
class Piece:
    """News of an answer: plain text, the beginning of a call (with its name), or more of its arguments."""

    kind: Literal["content", "call", "arguments"]
    text: str
    call: int = -1


class ToolReader:
    """Text in as it comes, pieces out; text that may be the beginning of a mark waits."""

    def __init__(self, form: ToolForm) -> None:
        self._form = form
        self._head = re.compile(rf'\s*\{{"name": ("(?:[^"\\]|\\.)*"), "{form.arguments}": ')
        self._tail = "}" + form.end
        self._text = ""
        self._read = self._outside
        self.calls = 0

    def push(self, piece: str) -> list[Piece]:
        self._text += piece
        found: list[Piece] = []
        while news := list(self._read()):
            found += news
        return [piece for piece in found if piece.text]

    def flush(self) -> list[Piece]:
        """The answer has ended: what waited was no mark. Of a call that was cut short nothing more can be told."""
        rest, self._text = self._text, ""
        return [Piece("content", rest)] if rest and self._read == self._outside and rest.strip() else []

    def _outside(self) -> Iterator[Piece]:
        before, mark, after = self._text.partition(self._form.begin)
        if mark:
            self._text, self._read = after, self._name
            yield Piece("content", before.rstrip("\n") if self.calls else before)
        elif not self.calls:
            yield from self._take("content", self._form.begin)

    def _name(self) -> Iterator[Piece]:
        if head := self._head.match(self._text):
            self._text, self._read = self._text[head.end() :], self._arguments
            self.calls += 1
            yield Piece("call", json.loads(head[1]), self.calls - 1)

    def _arguments(self) -> Iterator[Piece]:
        before, mark, after = self._text.partition(self._tail)
        if mark:
            self._text, self._read = after, self._outside
            yield Piece("arguments", before, self.calls - 1)
        else:
            yield from self._take("arguments", self._tail)

    def _take(self, kind: Literal["content", "arguments"], mark: str) -> Iterator[Piece]:
        """What cannot belong to `mark` any more."""
        waits = next((n for n in range(min(len(mark), len(self._text)), 0, -1) if self._text.endswith(mark[:n])), 0)
        taken, self._text = self._text[: len(self._text) - waits], self._text[len(self._text) - waits :]
        if taken:
            yield Piece(kind, taken, self.calls - 1 if kind == "arguments" else -1)


def read_calls(form: ToolForm, answer: str) -> tuple[str, list[dict[str, Any]]]:
    """A whole answer's text and its calls in OpenAI's form."""
    reader = ToolReader(form)
    pieces = reader.push(answer) + reader.flush()
    content = "".join(piece.text for piece in pieces if piece.kind == "content")
    return content, [
        {
            "id": call_id(),
            "type": "function",
            "function": {"name": piece.text, "arguments": _joined(pieces, piece.call)},
        }
        for piece in pieces
        if piece.kind == "call"
    ]


def _joined(pieces: Sequence[Piece], call: int) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == "arguments" and piece.call == call)


def call_delta(piece: Piece) -> dict[str, Any]:
    """One entry of a chunk's tool_calls."""
    if piece.kind == "call":
        function = {"name": piece.text, "arguments": ""}
        return {"index": piece.call, "id": call_id(), "type": "function", "function": function}
    return {"index": piece.call, "function": {"arguments": piece.text}}


def call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
