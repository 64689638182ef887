"""What stands before the routes: the key, the Host header, and the size of bodies."""

from __future__ import annotations

import asyncio
import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sooner.serve.errors import ApiError
from sooner.serve.limits import BODY_BYTES, BODY_TIMEOUT_S, Settings

OPEN = "/health"  # the one route that needs no key


class Guard:
    """Answers 401, 403, 408 and 413 itself and hands on everything else, with its body read."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            headers = dict(scope["headers"])
            self.check_host(headers)
            self.check_key(scope["path"], headers)
            body = await read_body(headers, receive)
        except ApiError as error:
            await error.response(scope, receive, send)
            return
        await self.app(scope, replay(body, receive), send)

    def check_host(self, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if self.settings.hosts is not None and name not in self.settings.hosts:
            allowed = ", ".join(sorted(self.settings.hosts))
            raise ApiError(403, f"the Host header is {host!r}; without a key only {allowed} are answered")

    def check_key(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self.settings.api_key is None or path == OPEN:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        known = hmac.compare_digest(given.strip(), self.settings.api_key.encode())
        if scheme.lower() != b"bearer" or not known:
            message = "the API key is missing or wrong; send it as Authorization: Bearer KEY"
            raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


async def read_body(headers: dict[bytes, bytes], receive: Receive) -> bytes:
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > BODY_BYTES:
        raise too_large()
    try:
        return await asyncio.wait_for(_read(receive), BODY_TIMEOUT_S)
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {BODY_TIMEOUT_S:g} seconds") from None


async def _read(receive: Receive) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_BYTES:
            raise too_large()
        more = message.get("more_body", False)
    return bytes(body)


def too_large() -> ApiError:
    return ApiError(413, f"the body is larger than {BODY_BYTES} bytes; send less")


def replay(body: bytes, receive: Receive) -> Receive:
    """Gives out the body that was read, then whatever the connection says."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return parts.pop() if parts else await receive()

    return next_message
