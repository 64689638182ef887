"""One call's way: a place, the requests, their news, the answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

from starlette.requests import Request as Http
from starlette.responses import JSONResponse, Response

from sooner.engine.stats import Stats
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.outputs import Completion, Event
from sooner.serve.errors import ApiError, bad_input
from sooner.serve.forms import Form
from sooner.serve.limits import Settings
from sooner.serve.metrics import Monitor
from sooner.serve.scores import timings, usage
from sooner.serve.stream import DONE, EventStream, events_of, while_connected
from sooner.serve.worker import Job, Worker

log = logging.getLogger("sooner.serve")


class Service:
    def __init__(self, llm: LLM, settings: Settings) -> None:
        self.llm, self.settings = llm, settings
        self.monitor = Monitor(settings.name)
        self.worker = Worker(llm.engine, self.monitor, settings.max_requests)

    def check_model(self, name: str | None) -> None:
        if name not in (None, self.settings.name):
            message = f"model {name!r} is not served; served is {self.settings.name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    async def answer(self, http: Http, form: Form) -> Response:
        """Raises ApiError for what cannot be done, before anything is sent."""
        self.check_model(form.body.model)
        if form.body.stream_options and not form.body.stream:
            raise ApiError(400, "stream_options needs stream; set stream to true", param="stream_options")
        with ExitStack() as stack:
            stack.enter_context(self.worker.reserve(form.samples))
            requests = await prepared(form)
            call = Call(self, form, stack.enter_context(self.worker.run(requests)))
            if form.body.stream:
                return EventStream(call.stream(), stack.pop_all())
            return JSONResponse(await while_connected(http.receive, call.whole()))


async def prepared(form: Form) -> list[Any]:
    try:
        return await asyncio.to_thread(form.prepare)
    except InputError as error:
        raise bad_input(str(error), list(type(form.body).model_fields)) from error


class Call:
    """One answer while it grows."""

    def __init__(self, service: Service, form: Form, job: Job) -> None:
        self.form, self.job, self.name = form, job, service.settings.name
        self.completions = {request.id: Completion(i) for i, request in enumerate(job.requests)}
        self.head = {"id": f"{form.prefix}-{secrets.token_hex(12)}", "created": int(time.time()), "model": self.name}

    async def whole(self) -> dict[str, Any]:
        async for _ in self.events():
            pass
        choices = [self.form.choice(completion) for completion in self.completions.values()]
        return {
            **self.head,
            "object": self.form.whole,
            "choices": choices,
            "usage": self.usage,
            "timings": self.timings,
        }

    async def stream(self) -> AsyncIterator[bytes]:
        options = self.form.body.stream_options
        tells_usage = bool(options and options.include_usage)
        rest: dict[str, Any] = {"usage": None} if tells_usage else {}
        chunk = events_of({**self.head, "object": self.form.chunk})
        async for one in self.events():
            deltas = self.form.deltas(one)
            for delta in deltas:
                last = not self.job.open and delta is deltas[-1] and not tells_usage
                yield chunk({"choices": [delta], **rest, **({"timings": self.timings} if last else {})})
        if tells_usage:
            yield chunk({"choices": [], "usage": self.usage, "timings": self.timings})
        yield DONE

    async def events(self) -> AsyncIterator[Event]:
        while progress := await self.job.next():
            if progress.finish_reason == "error":
                raise ApiError(500, progress.error)
            if progress.pieces or progress.finish_reason:
                yield self.completions[progress.request_id].grow(progress)
        self.log()

    @property
    def stats(self) -> list[Stats]:
        return [completion.stats for completion in self.completions.values()]

    @property
    def usage(self) -> dict[str, Any]:
        return usage(self.job.requests, self.stats)

    @property
    def timings(self) -> dict[str, Any]:
        drafters = self.job.requests[0].speculation.drafters
        return timings(self.stats, drafters)

    def log(self) -> None:
        used, times = self.usage, self.timings
        log.info(
            "%s %s: %d prompt tokens, %d answered, %s tokens/s, %s tokens a round%s",
            self.head["id"],
            self.form.chunk.split(".")[0],
            used["prompt_tokens"],
            used["completion_tokens"],
            figure(times["tokens_per_second"]),
            figure(times["tokens_per_round"]),
            f", user {self.form.body.user!r}" if self.form.body.user else "",
        )


def figure(value: float | None) -> str:
    return "no" if value is None else f"{value:.2f}"
