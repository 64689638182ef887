"""The engine's thread: it alone touches the engine. The asyncio side gives it orders and is told the news."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue

from sooner.engine.engine import Engine, Progress
from sooner.engine.stats import Stats
from sooner.errors import SoonerError
from sooner.serve.errors import ApiError
from sooner.serve.limits import RETRY_AFTER_S
from sooner.serve.metrics import Monitor
from sooner.types import Request

log = logging.getLogger("sooner.serve")


class Job:
    """The engine's requests of one call, and their news as it comes. Belongs to the asyncio side."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = tuple(requests)
        self.open = {request.id for request in requests}
        self._news: asyncio.Queue[Progress] = asyncio.Queue()

    def tell(self, progress: Progress) -> None:
        if progress.finish_reason:
            self.open.discard(progress.request_id)
        self._news.put_nowait(progress)

    async def next(self) -> Progress | None:
        """The next news; None when all has been told."""
        return None if not self.open and self._news.empty() else await self._news.get()


class Worker:
    """Drives an engine. max_requests: the most that may run and wait at once.

    A step that fails ends the requests in flight with an error, and the engine goes on if it can be cleared. If not the
    worker is dead: `error` says why, requests are refused, and `died` is called.
    """

    def __init__(self, engine: Engine, monitor: Monitor, max_requests: int) -> None:
        self.engine, self.monitor, self.max_requests = engine, monitor, max_requests
        self.error = ""
        self.died: Callable[[], None] = lambda: None
        self.places = 0  # taken, of max_requests
        self._jobs: dict[str, Job] = {}
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        monitor.watch(engine)

    def start(self) -> None:
        """From the event loop that will be told the news."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step that it is in. It may be called twice, and before `start`."""
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Holds `count` places. Raises 429 when they are not to be had, 503 when the engine is gone."""
        if self.error:
            raise ApiError(503, f"the engine has stopped: {self.error}")
        if count > self.max_requests:
            raise ApiError(400, f"the call asks for {count} answers, at most {self.max_requests} may run at once")
        if self.places + count > self.max_requests:
            message = f"{self.places} of {self.max_requests} places are taken; try again later"
            raise ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": str(RETRY_AFTER_S)})
        self.places += count
        try:
            yield
        finally:
            self.places -= count

    @contextmanager
    def run(self, requests: Sequence[Request]) -> Iterator[Job]:
        """Starts requests that have been checked; whatever is unfinished on leaving is aborted."""
        job = Job(requests)
        self._jobs |= dict.fromkeys(job.open, job)
        arrived = time.perf_counter()
        for request in job.requests:
            self._inbox.put(partial(self._add, request, arrived))
        try:
            yield job
        finally:
            for request_id in job.open:
                del self._jobs[request_id]
                self._inbox.put(partial(self._abort, request_id))

    def _run(self) -> None:
        try:
            while self._obey():
                self._step()
        except BaseException as error:  # nothing may end this thread in silence
            log.exception("the engine's thread ends")
            self.error = f"{type(error).__name__}: {error}"
            self._tell([])
            self._loop.call_soon_threadsafe(self._die)

    def _obey(self) -> bool:
        """Carries out what was ordered; waits for an order while the engine is idle. False tells the thread to end."""
        while True:
            try:
                order = self._inbox.get(block=not self.engine.busy)
            except Empty:
                return True
            if order is None:
                return False
            order()

    def _step(self) -> None:
        self.monitor.step_begins()
        try:
            news = self.engine.step()
        except Exception as error:
            log.exception("a step failed; the requests in flight end with an error")
            self._recover(f"the engine failed ({type(error).__name__}: {error}); try again")
        else:
            self._tell(news)

    def _recover(self, message: str) -> None:
        flying = self.engine.in_flight
        self.engine.clear()
        self._tell([Progress(request_id, (), "error", Stats(), message) for request_id in flying])

    def _add(self, request: Request, arrived: float) -> None:
        self.monitor.arrives(request, arrived)
        try:
            self.engine.add(request)
        except SoonerError as error:
            self._tell([Progress(request.id, (), "error", Stats(), str(error))])

    def _abort(self, request_id: str) -> None:
        self.engine.abort(request_id)
        self.monitor.aborted(request_id)

    def _tell(self, news: Sequence[Progress]) -> None:
        self.monitor.step_ends(news)
        self._loop.call_soon_threadsafe(self._deliver, news)

    def _deliver(self, news: Sequence[Progress]) -> None:
        for progress in news:
            if job := self._jobs.get(progress.request_id):
                job.tell(progress)
                if progress.finish_reason:
                    del self._jobs[progress.request_id]

    def _die(self) -> None:
        self._deliver([Progress(request_id, (), "error", Stats(), self.error) for request_id in list(self._jobs)])
        self.died()
