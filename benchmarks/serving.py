"""A `sooner serve` of one's own: started, asked, measured, ended."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen


@dataclass(frozen=True, slots=True)
class Served:
    """ready_s: from the start of the process to the line that says it is ready."""

    url: str
    process: subprocess.Popen[str]
    ready_s: float

    def metrics(self) -> dict[str, float]:
        """Values without labels' names; of a histogram its sum and count."""
        with urlopen(f"{self.url}/metrics") as page:
            lines = [line for line in page.read().decode().splitlines() if line[0] != "#" and "_bucket" not in line]
        return {line.split("{")[0].split(" ")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        ask = Request(f"{self.url}/v1/completions", data, {"Content-Type": "application/json"})
        with urlopen(ask, timeout=300) as answer:
            result: dict[str, Any] = json.load(answer)
        return result


@contextmanager
def serving(model: str, options: Sequence[str] = ()) -> Iterator[Served]:
    """Standard error is read all the time, so that the server never waits for us."""
    command = [sys.executable, "-m", "sooner.cli.main", "serve", model, "--port", "0", *options]
    began = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    seen: list[str] = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith("ready in"):
            break
    if process.poll() is not None:
        raise RuntimeError("".join(seen))
    ready_s = time.perf_counter() - began
    threading.Thread(target=seen.extend, args=(process.stderr,), daemon=True).start()
    try:
        yield Served(seen[-1].split()[-1].removesuffix("/v1"), process, ready_s)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
