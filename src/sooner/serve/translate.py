"""From what a client sent to what the engine takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sooner.errors import InputError
from sooner.llm import LLM
from sooner.serve.limits import SCHEMA_BYTES
from sooner.serve.schema import (
    AnyObject,
    AnyText,
    BySchema,
    Chat,
    Completions,
    Message,
    Sampling,
    Speculative,
    StructuredOutputs,
    TextPart,
)
from sooner.serve.tools import ToolUse
from sooner.types import SamplingParams, Speculation, Structured

# Fields that a client sends under the name that SamplingParams has for them.
SAME = (
    "n", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "logit_bias", "bad_words", "min_tokens", "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos",
    "seed",
)  # fmt: skip
COMPLETION_TOKENS = 16  # OpenAI's default
ROLES = {"developer": "system"}  # the name that chat templates know


def sampling(body: Sampling, structure: Structured | None = None, **own: Any) -> SamplingParams:
    """structure and own: what the route translates itself."""
    given = {name: value for name in SAME if (value := getattr(body, name)) is not None}
    forms = [form for form in (structure, structured_outputs(body.structured_outputs)) if form]
    if len(forms) > 1:
        raise InputError("structured_outputs, response_format and tools all say what the answer looks like; keep one")
    return SamplingParams(**given, **own, structured=sized(forms[0]) if forms else None)


def structured_outputs(wanted: StructuredOutputs | None) -> Structured | None:
    """`choice` is a grammar of its own."""
    if wanted is None:
        return None
    given = wanted.model_dump(exclude_none=True, exclude={"choice"})
    if wanted.choice:
        given |= {"grammar": "start: " + " | ".join(map(json.dumps, wanted.choice))}
    if wanted.choice and wanted.grammar:
        raise InputError("structured_outputs has choice and grammar; give one of them")
    return Structured(**given)


def response_format(wanted: AnyText | AnyObject | BySchema | None) -> Structured | None:
    match wanted:
        case AnyObject():
            return Structured(json_object=True)
        case BySchema():
            schema = wanted.json_schema.json_schema
            return Structured(json_object=True) if schema is None else Structured(json_schema=schema)
    return None


def sized(form: Structured) -> Structured:
    kind, text = form.source
    if len(text) > SCHEMA_BYTES:
        raise InputError(f"the {kind} has {len(text)} characters, at most {SCHEMA_BYTES} are read; make it smaller")
    return form


def completion_params(body: Completions) -> SamplingParams:
    """echo with logprobs is OpenAI's way to ask for the prompt's."""
    limit = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    return sampling(
        body, max_tokens=limit, logprobs=body.logprobs, prompt_logprobs=body.logprobs if body.echo else None
    )


def chat_params(body: Chat, tools: ToolUse | None) -> SamplingParams:
    limits = {limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None}
    if len(limits) > 1:
        raise InputError("max_tokens and max_completion_tokens differ; give one of them")
    if body.top_logprobs is not None and not body.logprobs:
        raise InputError("top_logprobs needs logprobs; set logprobs to true")
    form = response_format(body.response_format)
    if form and tools:
        raise InputError("response_format and tools both say what the answer looks like; keep one of them")
    return sampling(
        body,
        structure=Structured(grammar=tools.grammar) if tools else form,
        max_tokens=next(iter(limits), None),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def template_variables(body: Chat, tools: ToolUse | None) -> dict[str, Any]:
    """What the chat template is given beside the messages. A template that may not call is not told of tools."""
    shown = {"tools": [tool.model_dump(exclude_none=True) for tool in body.tools or ()]} if tools else {}
    return {**(body.chat_template_kwargs or {}), **shown}


def speculation(wanted: bool | Speculative | None, usual: Speculation, prediction: str = "") -> bool | Speculation:
    """What is left out is as the server was started."""
    if prediction and wanted is False:
        raise InputError("prediction is there to be drafted from, and speculative is false; drop one of them")
    if not isinstance(wanted, Speculative):
        return wanted is not False
    first = ("prediction",) if prediction else ()
    names = (wanted.drafter,) if isinstance(wanted.drafter, str) else wanted.drafter or (*first, *usual.drafters)
    if prediction and "prediction" not in names:
        raise InputError("prediction needs the drafter 'prediction'; add it to speculative.drafter or leave that out")
    draft_tokens = usual.draft_tokens if wanted.draft_tokens is None else wanted.draft_tokens
    branches = usual.draft_branches if wanted.draft_branches is None else wanted.draft_branches
    return Speculation(tuple(names), draft_tokens, wanted.verify or usual.rule, branches)


def joined(content: str | Sequence[TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


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
    if message.content is not None:
        values["content"] = joined(message.content)
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
