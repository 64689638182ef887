"""From what a client sent to what the engine takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sooner.errors import InputError
from sooner.llm import LLM
from sooner.serve.schema import Chat, Completions, Message, Sampling, Speculative
from sooner.types import SamplingParams, Speculation

# Fields that a client sends under the name that SamplingParams has for them.
SAME = (
    "n", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "logit_bias", "bad_words", "min_tokens", "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos",
    "seed",
)  # fmt: skip
COMPLETION_TOKENS = 16  # OpenAI's default
ROLES = {"developer": "system"}  # the name that chat templates know


def sampling(body: Sampling, **own: Any) -> SamplingParams:
    """`own`: what the route translates itself."""
    given = {name: value for name in SAME if (value := getattr(body, name)) is not None}
    return SamplingParams(**given, **own)


def completion_params(body: Completions) -> SamplingParams:
    """echo with logprobs is OpenAI's way to ask for the prompt's."""
    limit = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    return sampling(
        body, max_tokens=limit, logprobs=body.logprobs, prompt_logprobs=body.logprobs if body.echo else None
    )


def chat_params(body: Chat) -> SamplingParams:
    limits = {limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None}
    if len(limits) > 1:
        raise InputError("max_tokens and max_completion_tokens differ; give one of them")
    if body.top_logprobs is not None and not body.logprobs:
        raise InputError("top_logprobs needs logprobs; set logprobs to true")
    return sampling(
        body, max_tokens=next(iter(limits), None), logprobs=(body.top_logprobs or 0) if body.logprobs else None
    )


def speculation(wanted: bool | Speculative | None, usual: Speculation) -> bool | Speculation:
    """What is left out is as the server was started."""
    if not isinstance(wanted, Speculative):
        return wanted is not False
    names = (wanted.drafter,) if isinstance(wanted.drafter, str) else tuple(wanted.drafter or usual.drafters)
    draft_tokens = usual.draft_tokens if wanted.draft_tokens is None else wanted.draft_tokens
    return Speculation(names, draft_tokens, wanted.verify or usual.rule)


def prompts(llm: LLM, body: Completions) -> list[list[int]]:
    """Token ids of each prompt."""
    prompt: Any = body.prompt
    several = isinstance(prompt, list) and not isinstance(prompt[0], int)
    return [llm.tokenizer.encode(one) if isinstance(one, str) else one for one in (prompt if several else [prompt])]


def conversation(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As chat templates expect it: text as one string, arguments of tool calls as objects."""
    return [_message(message, index) for index, message in enumerate(messages)]


def _message(message: Message, index: int) -> dict[str, Any]:
    values = message.model_dump(exclude_none=True)
    values["role"] = ROLES.get(message.role, message.role)
    if isinstance(message.content, list):
        values["content"] = "".join(part.text for part in message.content)
    for call in values.get("tool_calls", ()):
        call["function"]["arguments"] = _arguments(call["function"]["arguments"], index)
    return values


def _arguments(text: str, index: int) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(
            f"messages: the tool call in message {index} has arguments that are no JSON ({error})"
        ) from None
