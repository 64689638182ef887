"""What the machine is, and what it can do at best: the read bandwidth and the arithmetic that no pass can beat."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import sooner
from sooner.kernels.formats import convert, store
from sooner.kernels.interface import Kernels
from sooner.kernels.memory import huge

PROBE_BYTES = 512 << 20  # many times any last-level cache of today's processors but the largest servers'
PROBE_SIDE = 2048
PROBE_REPEATS = 7


def facts(kernels: Kernels[Any]) -> dict[str, Any]:
    """Everything that a reader needs to judge a number, or to repeat it."""
    info = _cpuinfo()
    return {
        "slug": slug(info.get("model name", platform.processor()), info, os.cpu_count() or 1),
        "processor": info.get("model name", platform.processor() or "unknown"),
        "family": info.get("cpu family"),
        "model": info.get("model"),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads_of(kernels),
        "kernels": kernels.name,
        "isa": _isa(kernels),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": os.getloadavg()[0],  # of the minute before: well above 0 means that others were running
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sooner": sooner.__version__,
        "commit": commit(),
    }


def slug(processor: str, info: dict[str, str], cores: int) -> str:
    """The machine's folder under results/: processor, family and model where x86 tells them, cores."""
    words = re.sub(r"\(r\)|\(tm\)|processor|cpu|@.*", " ", processor.lower())
    parts = re.findall(r"[a-z0-9]+", words) or ["unknown"]
    generation = [f"f{info['cpu family']}m{info['model']}"] if {"cpu family", "model"} <= info.keys() else []
    return "-".join([*parts, *generation, f"{cores}c"])


def commit() -> str:
    """The commit that this package lies in, with -dirty when its sources differ; v0.1.0 and the like without one."""
    folder = Path(sooner.__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout

    try:
        head = git("rev-parse", "--short=10", "HEAD").strip()
        return head + ("-dirty" if git("status", "--porcelain", "--", str(folder)).strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return f"v{sooner.__version__}"


def threads_of(kernels: Kernels[Any]) -> int:
    """The C++ kernels have a pool of their own, torch's backend uses torch's."""
    return int(getattr(kernels, "threads", None) or torch.get_num_threads())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ReadProbe:
    """Reads a big buffer with the engine's threads, the way that is fastest here: torch's sum or our product."""

    def __init__(self, kernels: Kernels[Any]) -> None:
        buffer = huge(PROBE_BYTES).view(torch.float32).zero_()
        self._readers: list[Callable[[], object]] = [buffer.sum]
        self._threads = threads_of(kernels)
        if kernels.name == "cpu":
            matrix, row = kernels.pack(store(buffer.view(-1, 4096))), torch.ones(1, 4096)
            self._readers.append(lambda: kernels.linear(row, matrix))
        with torch_threads(self._threads):
            seconds = [best_seconds(reader) for reader in self._readers]
        self.best_gbs = PROBE_BYTES / min(seconds) / 1e9
        self._readers = [self._readers[seconds.index(min(seconds))]]

    def gbs(self) -> float:
        """GB/s (1e9) now: the better of two reads."""
        with torch_threads(self._threads):
            return PROBE_BYTES / best_seconds(self._readers[0], repeats=2) / 1e9


def peak_gflops(kernels: Kernels[Any]) -> float:
    """1e9 operations a second, a multiply-add counting as two: the best of torch.mm and our product, with 4 bit weights
    where they are multiplied as integers."""
    a, b = torch.rand(PROBE_SIDE, PROBE_SIDE), torch.rand(PROBE_SIDE, PROBE_SIDE)
    with torch_threads(threads_of(kernels)):
        seconds = best_seconds(lambda: torch.mm(a, b))
    if kernels.name == "cpu":
        matrix = kernels.pack(store(b) if kernels.activations == "float32" else convert(store(b), "q4"))
        seconds = min(seconds, best_seconds(lambda: kernels.linear(a, matrix)))
    return 2 * PROBE_SIDE**3 / seconds / 1e9


def best_seconds(run: Callable[[], object], repeats: int = PROBE_REPEATS) -> float:
    """The shortest of several runs, after one that does not count."""
    run()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


_STATUS = {"VmRSS": "resident", "VmHWM": "highest"}


def memory_mb() -> dict[str, float]:
    """Resident memory of this process now and at its highest, in MB (1e6); empty where the system does not tell."""
    try:
        return _parse_status(Path("/proc/self/status").read_text(encoding="utf-8"))
    except OSError:
        return {}


def bare_torch_mb() -> float | None:
    """Resident memory of a process that has imported torch and done nothing else."""
    code = "import torch; print(open('/proc/self/status').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return _parse_status(done.stdout).get("resident")


def _parse_status(text: str) -> dict[str, float]:
    kilobytes = dict(re.findall(r"^(VmRSS|VmHWM):\s*(\d+) kB", text, re.MULTILINE))
    return {_STATUS[key]: int(value) * 1.024e-3 for key, value in kilobytes.items()}


def _isa(kernels: Kernels[Any]) -> str:
    if kernels.name != "cpu":
        return torch.backends.cpu.get_cpu_capability().lower()
    from sooner.kernels import cpu

    return cpu.isa()


def _cpuinfo() -> dict[str, str]:
    """The first processor's entry; empty where the system has no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_flags() -> set[str]:
    """What the processor's entry says it can do; empty where the system has no such file."""
    entry = _cpuinfo()
    return set((entry.get("flags") or entry.get("Features") or "").split())
