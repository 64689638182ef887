"""Chat messages to the text that a model was trained on, through the template that comes with its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import Template, TemplateSyntaxError

from sooner.errors import InputError, ModelError
from sooner.models.sandbox import BudgetError, RefusalError, Sandbox, with_budget

Message = Mapping[str, Any]

TEMPLATE_CHARACTERS = 1 << 16
ABSENT: Mapping[str, Any] = {"tools": None, "documents": None}  # templates ask whether they are none
NOTHING: Mapping[str, Any] = {}


class ChatTemplate:
    """A template, compiled when it is first used: a model whose template is broken still takes plain prompts.

    `specials` are the variables bos_token, eos_token and the like that it may use.
    """

    def __init__(self, source: str, specials: Mapping[str, str]) -> None:
        self._source = source
        self._specials = dict(specials)

    @cached_property
    def _template(self) -> Template:
        return _compile(self._source)

    def mentions(self, text: str) -> bool:
        return text in self._source

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, variables: Mapping[str, Any] = NOTHING
    ) -> str:
        """Raises InputError with the template's reason when it refuses the messages, ModelError when it is broken.

        variables: more that the template may use, such as `tools`.
        """
        check_messages(messages)
        template = self._template
        own = {"messages": list(messages), "add_generation_prompt": add_generation_prompt, **self._specials}
        if taken := sorted(own.keys() & variables.keys()):
            raise InputError(f"the chat template's variable {taken[0]} is not yours to set; leave it out")
        variables = {**ABSENT, **variables, **own}
        try:
            return with_budget(lambda: template.render(variables))
        except RefusalError as error:
            raise InputError(f"the model's chat template refuses the messages: {_line(error)}; mend them") from None
        except BudgetError as error:
            raise InputError(f"the model's chat template was stopped: {error}; use --raw") from None
        except Exception as error:  # a template is foreign code and may raise anything
            raise InputError(
                f"the model's chat template fails: {_named(error)}; mend the messages or use --raw"
            ) from None


def _compile(source: str) -> Template:
    if len(source) > TEMPLATE_CHARACTERS:
        raise ModelError(f"the chat template has {len(source)} characters, at most {TEMPLATE_CHARACTERS} are read")
    try:
        return Sandbox().from_string(source)
    except TemplateSyntaxError as error:
        raise ModelError(f"the chat template is no valid Jinja: {_line(error)} (line {error.lineno})") from None
    except Exception as error:  # absurd nesting ends in RecursionError, MemoryError or SyntaxError
        raise ModelError(f"the chat template cannot be compiled: {_named(error)}") from None


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {_line(error)}"


def _line(error: Exception) -> str:
    """A foreign message on one line of sensible length."""
    return " ".join(str(error).split())[:200]


def check_messages(messages: Sequence[Message]) -> None:
    """Each message is {"role": ..., "content": ...}, both text; content may be absent beside "tool_calls"."""
    if not messages:
        raise InputError("there are no messages; give at least one with role and content")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InputError(f"message {index} is {message!r}, must be an object with role and content")
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not role:
            raise InputError(f"message {index} has the role {role!r}, must be text such as 'user'")
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            raise InputError(f"message {index} has the content {content!r}, must be text")
