"""A client of OpenAI's completions, as far as certifying needs it: only the standard library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from sooner.errors import InputError

TIMEOUT_S = 600.0
# Beyond OpenAI's options: llama.cpp's server has a penalty of its own at temperature 0 unless it is told otherwise.
NEUTRAL = {"repeat_penalty": 1.0}


class RefusedError(InputError):
    """The server does not take the request as it is."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Tokens as the server writes them, the log-probability of each, and the likeliest at its place."""

    tokens: list[str]
    logprobs: list[float]
    top: list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class Server:
    """url with or without its /v1. model: the first that the server lists. extra: options that it takes, if NEUTRAL."""

    url: str
    model: str
    extra: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def at(cls, url: str, model: str | None = None) -> Server:
        base = url.rstrip("/").removesuffix("/v1")
        if not base.startswith(("http://", "https://")):
            raise InputError(f"endpoint {url!r} is not a URL; for example http://localhost:8000")
        server = cls(base, model or _first_model(base), NEUTRAL)
        try:
            server.complete("a", max_tokens=1, temperature=0.0, logprobs=2)
        except RefusedError:
            return replace(server, extra={})
        return server

    def complete(self, prompt: str, *, max_tokens: int, temperature: float, logprobs: int) -> Completion:
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": temperature,
            "top_p": 1.0, "logprobs": logprobs, **self.extra,
        }  # fmt: skip
        answer = _call(f"{self.url}/v1/completions", body)
        try:
            return _read(answer["choices"][0]["logprobs"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.url} answered without log-probabilities ({error!r}); start it with them allowed"
            ) from error


def _read(logprobs: Mapping[str, Any]) -> Completion:
    """OpenAI's form for completions, or the one of its chat, which llama.cpp uses for both."""
    if "content" in logprobs:
        entries = logprobs["content"]
        top = [{t["token"]: float(t["logprob"]) for t in entry["top_logprobs"]} for entry in entries]
        return Completion([e["token"] for e in entries], [float(e["logprob"]) for e in entries], top)
    top = [{token: float(value) for token, value in (place or {}).items()} for place in logprobs["top_logprobs"]]
    return Completion(list(logprobs["tokens"]), [float(value) for value in logprobs["token_logprobs"]], top)


def _first_model(base: str) -> str:
    models = _call(f"{base}/v1/models")
    try:
        return str(models["data"][0]["id"])
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"{base} lists no model ({error!r}); is it an OpenAI-compatible server?") from error


def _call(url: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise RefusedError(f"{url} answered {error.code}: {error.read(300).decode(errors='replace')}") from error
    except (URLError, OSError, ValueError) as error:
        raise InputError(f"{url} cannot be asked ({error}); is the server running there?") from error
