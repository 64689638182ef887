"""Clients that leave, engines that fail, and signals."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import httpx2 as httpx
import pytest

from sooner.engine import step
from sooner.engine.engine import Progress
from sooner.llm import LLM
from sooner.sampling.road import NumericalError
from tests.support.server import Running, serving, slow, twin, wait_for

LONG = {"prompt": "the", "max_tokens": 100, "ignore_eos": True}

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def post(running: Running, body: dict[str, object]) -> httpx.Response:
    return httpx.post(f"{running.url}/v1/completions", json=body, timeout=60)  # other work may share the machine


def idle(running: Running) -> bool:
    """No call holds a place, not even one whose prompt is still being read, and nothing runs."""
    worker = running.service.worker
    cache = worker.engine.parts.cache
    return not worker.places and not worker.engine.busy and cache.free_pages == cache.pages


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_pages(llm: LLM, stream: bool) -> None:
    with serving(slow(llm, 0.05)) as running:
        with (
            pytest.raises(httpx.ReadTimeout),
            httpx.stream(
                "POST", f"{running.url}/v1/completions", json=LONG | {"stream": stream}, timeout=0.3
            ) as answer,
        ):
            time.sleep(0.5 if stream else 0)
            answer.read() if not stream else (_ for _ in ()).throw(httpx.ReadTimeout("enough"))
        wait_for(lambda: idle(running), 3)
        assert running.service.monitor.finished["abort"] == 1


def test_many_random_departures(llm: LLM) -> None:
    """Sockets closed at any moment: half a request, before the answer, in the middle of it."""
    rng = random.Random(3)
    with serving(slow(llm, 0.003, cache_tokens=16 * 20)) as running:
        port = int(running.url.rsplit(":", 1)[1])
        for _ in range(60):
            body = json.dumps(LONG | {"stream": rng.random() < 0.7, "n": rng.choice([1, 2])}).encode()
            data = HEAD % len(body) + body
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(data[: rng.choice([20, len(data) - 5, len(data), len(data), len(data)])])
                time.sleep(rng.random() * 0.03)
        wait_for(lambda: idle(running))
        running.service.worker.engine.parts.cache.check_integrity([])
        assert post(running, {"prompt": "the"}).status_code == 200


def failing(llm: LLM, error: Exception, clears: bool = True) -> LLM:
    """A twin whose fourth step fails, and perhaps what is done about it too."""
    other = slow(llm)
    step, steps = other.engine.step, count()

    def maybe() -> list[Progress]:
        if next(steps) == 3:
            raise error
        return step()

    def leak() -> None:
        raise AssertionError("a page leaked")

    other.engine.step = maybe  # type: ignore[method-assign]
    if not clears:
        other.engine.clear = leak  # type: ignore[method-assign]
    return other


def test_an_engine_failure_ends_what_is_in_flight_and_nothing_else(llm: LLM) -> None:
    with serving(failing(llm, RuntimeError("boom"))) as running:
        failed = post(running, LONG)
        assert failed.status_code == 500
        assert failed.json()["error"]["type"] == "server_error" and "boom" in failed.json()["error"]["message"]
        assert post(running, LONG).status_code == 200
        assert httpx.get(f"{running.url}/health").status_code == 200


def test_a_stream_that_fails_ends_with_an_error(llm: LLM) -> None:
    with serving(failing(llm, MemoryError("no more"))) as running:
        answer = post(running, LONG | {"stream": True})
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        assert "no more" in json.loads(events[-1])["error"]["message"] and "[DONE]" not in events


def test_a_dead_engine_is_told_and_nobody_waits(llm: LLM) -> None:
    with serving(failing(llm, SystemError("gone"), clears=False)) as running:
        died = threading.Event()
        running.service.worker.died = died.set
        assert post(running, LONG).status_code == 500
        assert died.wait(5)
        assert httpx.get(f"{running.url}/health").status_code == 503
        assert post(running, LONG).status_code == 503


def test_one_bad_row_of_logits_is_an_error_of_its_request(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise NumericalError("the row holds NaN")

    with serving(twin(llm)) as running:
        with monkeypatch.context() as patch:
            patch.setattr(step, "judge_by_match", broken)
            answer = post(running, {"prompt": "the"})
        assert answer.status_code == 500 and "NaN" in answer.json()["error"]["message"]
        assert post(running, {"prompt": "the"}).status_code == 200


@contextmanager
def process(model: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`sooner serve` as a process; the line that says where it listens has been read."""
    command = [sys.executable, "-m", "sooner.cli.main", "serve", str(model), "--port", "0", "--kernels", "torch"]
    environment = {**os.environ, "PYTHONPATH": "src"}
    running = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment)
    assert running.stderr
    try:
        line = next(line for line in running.stderr if line.startswith("ready in"))
        yield running, line.split()[-1].removesuffix("/v1")
    finally:
        running.kill()
        running.wait()
        running.stderr.close()


@pytest.mark.slow
def test_signals(model: Path) -> None:
    """The first finishes what is in flight and takes nothing new; with nothing in flight it ends at once."""
    with process(model, "--draft", "ngram", "--served-model-name", "tiny") as (running, url):
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG | {"stream": True}) as answer:
            lines = answer.iter_lines()
            next(lines)
            running.send_signal(signal.SIGTERM)
            assert list(lines)[-2:] == ["data: [DONE]", ""]
        assert running.wait(10) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")


@pytest.mark.slow
def test_a_second_signal_cuts_what_is_in_flight() -> None:
    """A real model on the slow kernels: its answer would take minutes, and the process must not."""
    with process(Path("smollm2")) as (running, url):
        body = {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            running.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert running.poll() is None  # it drains
            running.send_signal(signal.SIGTERM)
            with suppress(httpx.TransportError):  # an event may be cut in its middle
                assert "data: [DONE]" not in list(lines)
        running.wait(20)
