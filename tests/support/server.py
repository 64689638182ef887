"""A server in a thread of this process, on a free port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import uvicorn

from sooner.engine.engine import Engine, Progress
from sooner.llm import LLM
from sooner.models.tokenizer import TextStream
from sooner.serve.app import make_app
from sooner.serve.limits import Settings
from sooner.serve.run import Server, listen
from sooner.serve.service import Service


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    service: Service


@contextmanager
def serving(llm: LLM, settings: Settings | None = None) -> Iterator[Running]:
    app = make_app(llm, settings or Settings("tiny"))
    listener, ready = listen("127.0.0.1", 0), threading.Event()
    server = Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5), ready.set)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    assert ready.wait(30)
    try:
        yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.service)
    finally:
        server.should_exit = True
        thread.join()
        app.state.service.worker.stop()


def twin(llm: LLM, **options: Any) -> LLM:
    """The same weights and tokenizer behind another engine: two servers must not drive one."""
    other = copy(llm)
    drafters = {name: type(drafter)() for name, drafter in llm.engine.parts.drafters.items()}
    options = {"cache_tokens": 1024, "max_sequences": 2} | options
    other.engine = Engine(llm.decoder, drafters, detokenizer=lambda: TextStream(llm.tokenizer), **options)
    return other


def slow(llm: LLM, seconds: float = 0.02, **options: Any) -> LLM:
    """A twin whose steps take longer: time to look at what is in flight."""
    other = twin(llm, **options)
    step = other.engine.step

    def slow_step() -> list[Progress]:
        time.sleep(seconds)
        return step()

    other.engine.step = slow_step  # type: ignore[method-assign]
    return other


def wait_for(condition: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
