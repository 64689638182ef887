"""Errors in OpenAI's format: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse

TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An answer that is an error. param: the field that is to blame."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message = self.message.encode(errors="backslashreplace").decode()  # what was quoted may be no valid Unicode
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)


class ClientGone(Exception):  # noqa: N818, not an error of ours
    """The client has closed the connection: nobody waits for an answer."""


def bad_input(message: str, fields: Sequence[str]) -> ApiError:
    """From an InputError, whose message often begins with the field that it is about."""
    first = message.split(" ", 1)[0]
    return ApiError(400, message, param=first if first in fields else None)


def bad_body(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    """From pydantic's list of problems; the first is told."""
    problem = problems[0]
    place = [str(part) for part in problem["loc"] if part != "body"]
    name = ".".join(place) or "the body"
    match problem["type"]:
        case "refused":
            return ApiError(400, problem["msg"], param=problem["ctx"]["field"], code="unsupported_parameter")
        case "extra_forbidden":
            message = f"unknown field {name!r}: it is not supported, and nothing is ignored; leave it out"
            return ApiError(400, message, param=name, code="unknown_parameter")
        case "missing":
            return ApiError(400, f"{name} is missing", param=name, code="missing_required_parameter")
        case "json_invalid":
            return ApiError(400, f"the body is not JSON: {problem['ctx']['error']} at character {place[0]}")
        case _ if isinstance(problem.get("input"), bytes):
            return ApiError(400, "the body must be sent as JSON; add the header Content-Type: application/json")
    value = repr(problem.get("input"))
    shown = value if len(value) <= 80 else value[:77] + "..."
    return ApiError(400, f"{name} is {shown}: {problem['msg']}", param=place[0] if place else None)
