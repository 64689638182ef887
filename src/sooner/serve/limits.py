"""What one call, and all calls together, may ask of the server."""

from __future__ import annotations

from dataclasses import dataclass

BODY_BYTES = 4 << 20
PROMPTS = 64  # in one call of /v1/completions
SAMPLES = 32  # n
STOPS = 16
STOP_CHARACTERS = 256
STOP_IDS = 256
BIASED_TOKENS = 1024
BAD_WORDS = 256
MESSAGES = 4096
TOOLS = 128
SCHEMA_BYTES = 64 << 10
RETRY_AFTER_S = 1
BODY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server answers.

    name: of the model, in questions and answers. api_key: None answers everybody. hosts: values of the Host header that
    are answered, None answers all; a web page cannot make a browser send another host's name. max_requests: samples
    that may run or wait at once; more are turned away with 429.
    """

    name: str
    api_key: str | None = None
    hosts: frozenset[str] | None = None
    max_requests: int = 80
