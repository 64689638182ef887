"""Sooner: a language model inference engine built around speculative decoding. The same tokens, sooner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sooner.errors import SoonerError
from sooner.types import SamplingParams, Speculation, Structured

if TYPE_CHECKING:
    from sooner.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "SoonerError", "Speculation", "Structured"]


def __getattr__(name: str) -> Any:
    # LLM brings torch, which takes seconds: `sooner --help` must not wait for it.
    if name == "LLM":
        from sooner.llm import LLM

        return LLM
    raise AttributeError(name)
