"""The OpenAPI document: what each route may answer."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
REFUSALS = {
    "400": "a field is unknown, missing or out of its limits",
    "401": "the API key is missing or wrong",
    "403": "the Host header is foreign, and there is no key",
    "404": "no such model",
    "408": "the body did not come in time",
    "413": "the body is too large",
    "429": "all places are taken; Retry-After says when to come back",
    "500": "the engine failed",
    "503": "the engine has stopped",
}
ANSWER = ["id", "object", "created", "model", "choices", "usage", "timings"]
REQUIRED = {
    "/v1/chat/completions": ANSWER,
    "/v1/completions": ANSWER,
    "/v1/models": ["object", "data"],
    "/v1/models/{model}": ["id", "object", "created", "owned_by", "max_model_len", "drafters"],
    "/tokenize": ["count", "max_model_len", "tokens"],
    "/detokenize": ["prompt"],
    "/health": ["status"],
}


def describe(app: FastAPI) -> None:
    """Replaces what FastAPI guesses about answers, since routes make their bodies themselves."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            for path, route in document["paths"].items():
                for operation in route.values():
                    operation["responses"] = answers(path)
            document["components"]["schemas"] = {
                name: schema
                for name, schema in document["components"]["schemas"].items()
                if name not in ("HTTPValidationError", "ValidationError")
            }
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def answers(path: str) -> dict[str, Any]:
    refused = {code: _json(text, ERROR) for code, text in REFUSALS.items()}
    if path == "/metrics":
        return {"200": {"description": "Prometheus text", "content": {"text/plain": {}}}} | refused
    body = {"type": "object", "required": REQUIRED[path]}
    right = _json("the answer", body)
    if REQUIRED[path] is ANSWER:
        right["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    stopped = {"503": _json("the engine has stopped", body)} if path == "/health" else {}
    return {"200": right} | refused | stopped


def _json(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
