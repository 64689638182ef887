"""How the engine's news become bodies: the two forms of OpenAI's API. Each choice is one sample of one prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sooner.llm import LLM
from sooner.outputs import Completion, Event
from sooner.serve import translate
from sooner.serve.schema import Chat, Completions, Sampling
from sooner.serve.scores import chat_scores, text_scores
from sooner.serve.tools import ToolForm, ToolReader, ToolUse, call_delta, read_calls, tool_use
from sooner.types import Logprob, Request


class Form(Protocol):
    """One call, from its body to its answer. `prepare` may take a while and runs beside the event loop."""

    prefix: str  # of the answer's id
    whole: str  # the object's name
    chunk: str  # that of a piece of it

    @property
    def body(self) -> Sampling: ...

    @property
    def samples(self) -> int:
        """How many choices the answer will have."""
        ...

    def prepare(self) -> list[Request]:
        """Checked requests, one a choice, in the order of the choices."""
        ...

    def choice(self, completion: Completion) -> dict[str, Any]: ...

    def deltas(self, event: Event) -> list[dict[str, Any]]:
        """What a step brought to one choice, as the choices of chunks to come."""
        ...


class TextForm:
    prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def __init__(self, llm: LLM, body: Completions) -> None:
        self.llm, self.body = llm, body
        self._prompts: list[Sequence[int]] = []  # of each choice
        self._characters: dict[int, int] = {}  # of each streamed choice so far

    @property
    def samples(self) -> int:
        prompt = self.body.prompt
        several = isinstance(prompt, list) and not isinstance(prompt[0], int)
        return (len(prompt) if several else 1) * (self.body.n or 1)

    def prepare(self) -> list[Request]:
        params = translate.completion_params(self.body)
        speculation = translate.speculation(self.body.speculative, self.llm.speculation)
        prompts = translate.prompts(self.llm, self.body)
        requests = checked(self.llm, [r for ids in prompts for r in self.llm.requests(ids, params, speculation)])
        self._prompts = [request.prompt for request in requests]
        return requests

    def choice(self, completion: Completion) -> dict[str, Any]:
        text = self._echo(completion.index) + completion.text
        tokens, scores = completion.token_ids, list[Logprob | None](completion.logprobs)
        if self.body.echo:
            tokens, scores = [*self._prompts[completion.index], *tokens], [*completion.prompt_logprobs, *scores]
        return self._choice(completion.index, text, tokens, scores, completion.finish_reason)

    def deltas(self, event: Event) -> list[dict[str, Any]]:
        text, tokens, scores = event.text, list(event.token_ids), [piece.logprob for piece in event.pieces]
        if event.index not in self._characters and self.body.echo:
            text, tokens = self._echo(event.index) + text, [*self._prompts[event.index], *tokens]
            scores = [*event.completion.prompt_logprobs, *scores]
        start = self._characters.setdefault(event.index, 0)
        choice = self._choice(event.index, text, tokens, scores, event.finish_reason, start)
        if choice["logprobs"]:
            self._characters[event.index] += sum(map(len, choice["logprobs"]["tokens"]))
        return [choice] if text or choice["logprobs"] or event.finish_reason else []

    def _echo(self, index: int) -> str:
        return self.llm.tokenizer.decode(self._prompts[index], skip_special=False) if self.body.echo else ""

    def _choice(
        self,
        index: int,
        text: str,
        tokens: Sequence[int],
        scores: Sequence[Logprob | None],
        reason: str | None,
        start: int = 0,
    ) -> dict[str, Any]:
        wanted = self.body.logprobs is not None
        logprobs = text_scores(self.llm.tokenizer, tokens, scores, start) if wanted else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


class ChatForm:
    prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, llm: LLM, body: Chat) -> None:
        self.llm, self.body = llm, body
        self._tools: ToolUse | None = None
        self._readers: dict[int, ToolReader] = {}  # of each streamed choice
        self._begun: set[int] = set()

    @property
    def samples(self) -> int:
        return self.body.n or 1

    def prepare(self) -> list[Request]:
        self._tools = tool_use(self.body, self.llm.tokenizer)
        params = translate.chat_params(self.body, self._tools)
        expected = translate.joined(self.body.prediction.content) if self.body.prediction else ""
        speculation = translate.speculation(self.body.speculative, self.llm.speculation, expected)
        variables = translate.template_variables(self.body, self._tools)
        ids = self.llm.chat_prompt(translate.conversation(self.body.messages), variables)
        return checked(self.llm, self.llm.requests(ids, params, speculation, expected))

    def choice(self, completion: Completion) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": completion.text, "refusal": None}
        reason: str | None = completion.finish_reason
        if self._tools:
            content, calls = read_calls(self._tools.form, completion.text)
            message |= {"content": content or None, "tool_calls": calls} if calls else {"content": content}
            reason = called(reason, len(calls))
        scores = self._scores(completion.logprobs)
        return {"index": completion.index, "message": message, "logprobs": scores, "finish_reason": reason}

    def deltas(self, event: Event) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if event.index not in self._begun:
            self._begun.add(event.index)
            found.append(self._delta(event.index, {"role": "assistant", "content": ""}))
        scores = self._scores([piece.logprob for piece in event.pieces if piece.logprob])
        if self._tools:
            return found + self._tool_deltas(event, self._tools.form, scores)
        if event.text or (scores and event.pieces):
            found.append(self._delta(event.index, {"content": event.text}, scores))
        if event.finish_reason:
            found.append(self._delta(event.index, {}, reason=event.finish_reason))
        return found

    def _tool_deltas(self, event: Event, form: ToolForm, scores: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Scores go with the first piece of what a step brought, or alone."""
        reader = self._readers.setdefault(event.index, ToolReader(form))
        pieces = reader.push(event.text) + (reader.flush() if event.finish_reason else [])
        deltas = [
            {"content": piece.text} if piece.kind == "content" else {"tool_calls": [call_delta(piece)]}
            for piece in pieces
        ]
        if scores and event.pieces and not deltas:
            deltas = [{}]
        found = [self._delta(event.index, delta, None if i else scores) for i, delta in enumerate(deltas)]
        if event.finish_reason:
            found.append(self._delta(event.index, {}, reason=called(event.finish_reason, reader.calls)))
        return found

    def _scores(self, scores: Sequence[Logprob]) -> dict[str, Any] | None:
        return chat_scores(self.llm.tokenizer, scores) if self.body.logprobs else None

    def _delta(
        self, index: int, delta: dict[str, Any], scores: dict[str, Any] | None = None, reason: str | None = None
    ) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": scores, "finish_reason": reason}


def called(reason: str | None, calls: int) -> str | None:
    return "tool_calls" if calls and reason == "stop" else reason


def checked(llm: LLM, requests: list[Request]) -> list[Request]:
    for request in requests:
        llm.engine.check(request)
    return requests
