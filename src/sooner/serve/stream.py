"""Answers that follow the client: server-sent events, and work that ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sooner.serve.errors import ApiError, ClientGone

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work`; if the client leaves first, `work` is cancelled and ClientGone raised."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_departure(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def compact(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def event(body: dict[str, Any]) -> bytes:
    return f"data: {compact(body)}\n\n".encode()


def events_of(head: dict[str, Any]) -> Callable[[dict[str, Any]], bytes]:
    """Makes events that all begin with the same fields, which are turned into text once."""
    front = f"data: {compact(head)[:-1]},"
    return lambda rest: f"{front}{compact(rest)[1:]}\n\n".encode()


class EventStream(Response):
    """Sends each piece as it comes. An error after the beginning is sent as the last event, without [DONE].

    call: what the answer holds, given back when it ends in whatever way.
    """

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncIterator[bytes], call: ExitStack) -> None:
        super().__init__()
        self._pieces, self._call = pieces, call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        with self._call, suppress(ClientGone):
            await while_connected(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        try:
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except ApiError as error:
            await send({"type": "http.response.body", "body": event(error.body), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
