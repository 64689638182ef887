"""The server as a process: it drains on the first signal, stops on the second, and never hangs."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from sooner.errors import InputError
from sooner.llm import LLM
from sooner.serve.app import make_app
from sooner.serve.limits import Settings
from sooner.serve.worker import Worker

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """SIGTERM or Ctrl-C: no new connection is taken and answers in flight are finished. Once more: they are cut."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002, as uvicorn calls it
        self.force_exit = self.should_exit
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises InputError where the address is not to be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host.strip("[]"), port))
    except OSError as error:
        found.close()
        raise InputError(f"cannot bind to {host}:{port}: {error}; choose another --port or --host") from error
    return found


def run(llm: LLM, settings: Settings, listener: socket.socket, drain_s: int, ready: Callable[[], None]) -> int:
    """Serves until a signal, then returns the exit code: 0, or 1 where the engine has failed."""
    app = make_app(llm, settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=drain_s,
        server_header=False,
        proxy_headers=False,
    )
    server = Server(config, ready)
    worker: Worker = app.state.service.worker

    def died() -> None:
        server.should_exit = True

    worker.died = died
    try:
        server.run([listener])
    finally:
        worker.stop()
    return 1 if worker.error or not server.started else 0
