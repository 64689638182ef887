"""What clients may send. An unknown field is an error; a field that is null counts as left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from sooner.serve import limits

# Fields of OpenAI's and vLLM's that ask for what is not here: the values that ask for nothing, and the remedy.
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "suffix": ((None, ""), "it needs a model that fills in the middle; put the text into the prompt"),
    "best_of": ((None, 1), "ask for n answers and choose"),
    "store": ((None, False), "answers are not kept"),
    "metadata": ((None, {}), "answers are not kept"),
    "service_tier": ((None, "auto", "default"), "there is one tier"),
    "modalities": ((None, ["text"]), "the answer is text"),
    "audio": ((None,), "the answer is text"),
    "reasoning_effort": ((None,), "use chat_template_kwargs where the model's template knows it"),
    "verbosity": ((None,), "say it in the prompt"),
    "web_search_options": ((None,), "a request never reads from the network"),
    "functions": ((None,), "use tools"),
    "function_call": ((None,), "use tool_choice"),
    "safety_identifier": ((None,), "use user"),
    "prompt_cache_key": ((None,), "prefixes are cached by their content"),
    "use_beam_search": ((None, False), "ask for n answers"),
    "length_penalty": ((None, 1, 1.0), "it belongs to beam search"),
    "guided_json": ((None,), "use structured_outputs or response_format"),
    "guided_regex": ((None,), "use structured_outputs"),
    "guided_grammar": ((None,), "use structured_outputs"),
    "skip_special_tokens": ((None, True), "special tokens are never shown"),
    "spaces_between_special_tokens": ((None, True), "special tokens are never shown"),
    "prompt_logprobs": ((None,), "use echo and logprobs of /v1/completions"),
    "truncate_prompt_tokens": ((None,), "shorten the prompt"),
    "chat_template": ((None,), "the server uses the model's own"),
}

Text = str
Stop = Annotated[str, Field(max_length=limits.STOP_CHARACTERS)]
TokenId = Annotated[int, Field(ge=0)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, values: Any) -> Any:
        """Takes out fields that ask for nothing, and names the first that asks for what is not supported."""
        if not isinstance(values, Mapping):
            return values
        known = {name: value for name, value in values.items() if name not in REFUSED or name in cls.model_fields}
        for name in values.keys() - known.keys():
            neutral, remedy = REFUSED[name]
            if values[name] not in neutral:
                raise PydanticCustomError(
                    "refused", "{field} is not supported; {remedy}", {"field": name, "remedy": remedy}
                )
        return known


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class Speculative(Body):
    """drafter: one that the server has loaded, or several. draft_tokens: of every round, or auto: what pays.
    draft_branches: of these tokens, how many may be alternatives at one place."""

    drafter: str | list[str] | None = None
    draft_tokens: int | Literal["auto"] | None = None
    draft_branches: int | None = None
    verify: Literal["auto", "match", "rejection", "block"] | None = None


class StructuredOutputs(Body):
    """The form of the answer, by one of these; vLLM's names."""

    json_schema: str | dict[str, Any] | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    grammar: str | None = None
    choice: Annotated[list[str], Field(min_length=1)] | None = None


class Sampling(Body):
    """What completions and chats have in common. Meanings are those of OpenAI and vLLM."""

    model: str | None = Field(None, description="the served model; left out, it is that one")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n: Annotated[int, Field(ge=1, le=limits.SAMPLES)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: (
        Annotated[dict[Annotated[int, Field(strict=False)], float], Field(max_length=limits.BIASED_TOKENS)] | None
    ) = None
    bad_words: Annotated[list[Stop], Field(max_length=limits.BAD_WORDS)] | None = None
    seed: int | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=limits.STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=limits.STOP_IDS)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    structured_outputs: StructuredOutputs | None = None
    speculative: bool | Speculative | None = Field(None, description="false decodes plainly, with the same tokens")
    user: str | None = Field(None, description="goes into the server's log, and nowhere else", max_length=256)


class Completions(Sampling):
    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=limits.PROMPTS)]
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=limits.PROMPTS)]
    )
    echo: bool | None = None
    logprobs: int | None = None


class TextPart(Body):
    type: Literal["text"]
    text: str


class FunctionCall(Body):
    name: str
    arguments: str


class ToolCall(Body):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: None = None


class JsonSchema(Body):
    """strict: followed exactly in either case."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class AnyText(Body):
    type: Literal["text"]


class AnyObject(Body):
    type: Literal["json_object"]


class BySchema(Body):
    type: Literal["json_schema"]
    json_schema: JsonSchema


class Function(Body):
    """strict: arguments follow `parameters` exactly in either case."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class FunctionName(Body):
    name: str


class NamedTool(Body):
    type: Literal["function"]
    function: FunctionName


class Prediction(Body):
    """Text that the answer is expected to be like; it is drafted from."""

    type: Literal["content"]
    content: str | list[TextPart]


class Chat(Sampling):
    messages: Annotated[list[Message], Field(min_length=1, max_length=limits.MESSAGES)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    prediction: Prediction | None = None
    response_format: Annotated[AnyText | AnyObject | BySchema, Field(discriminator="type")] | None = None
    tools: Annotated[list[Tool], Field(max_length=limits.TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="variables for the model's chat template")


class Tokenize(Body):
    """A prompt, or messages for the chat template."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=limits.MESSAGES)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class Detokenize(Body):
    model: str | None = None
    tokens: list[TokenId]
