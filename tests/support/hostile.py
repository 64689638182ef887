"""Files that lie: mutated headers, and what refusing them costs."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

Edits = list[tuple[float, bytes]]
EXTREMES = [0, 1, 2, 3, 4, 8, 9, 31, 32, 127, 255]
RAW: list[Callable[[Random], bytes]] = [
    lambda random: bytes([random.choice(EXTREMES)]),
    lambda random: random.randbytes(random.randint(1, 8)),
    lambda random: struct.pack("<Q", random.getrandbits(random.randint(1, 64))),
]
JSON: list[Callable[[Random], bytes]] = [
    lambda random: random.choice(b'"[]{},:0123456789-.eE\\ tfn').to_bytes(),
    lambda random: random.choice((b"[0]", b"{}", b"null", b"-1", b"1e99", b'"":', b"18446744073709551615", b"\\ud800")),
    lambda random: random.randbytes(random.randint(1, 4)),
]


def spoil(whole: bytes, length: int, edits: Edits, cut: float) -> bytes:
    """`whole` with bytes of its first `length` replaced, then cut off."""
    spoilt = bytearray(whole)
    for place, change in edits:
        at = int(place * length)
        spoilt[at : at + len(change)] = change
    return bytes(spoilt[: int(cut * len(spoilt))])


def spoilt_ones(
    whole: bytes, length: int, makers: list[Callable[[Random], bytes]], count: int, seed: int = 0
) -> Iterator[bytes]:
    """Random changes in bulk: hypothesis takes longer to think of one than a reader to refuse it."""
    random = Random(seed)
    for _ in range(count):
        edits = [(random.random(), random.choice(makers)(random)) for _ in range(random.randint(1, 4))]
        yield spoil(whole, length, edits, random.choice((1.0, 1.0, random.random())))


_MEASURE = """
import json, resource, sys, time
from pathlib import Path
from sooner.errors import ModelError
from sooner.models.checkpoint import open_checkpoint

def taken():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

open_checkpoint(Path(sys.argv[1]))
limit = taken() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
seconds = {}
for path in map(Path, sys.argv[2:]):
    start = time.process_time()
    try:
        open_checkpoint(path)
    except ModelError:
        seconds[path.name] = time.process_time() - start
print(json.dumps(seconds))
"""


def refusals(good: Path, lies: Iterable[Path]) -> dict[str, float]:
    """Seconds of refusing each of `lies`, by name; what is not refused is missing.

    In a process of its own that may take 200 MiB more of address space than after opening `good`, a model without
    fault; a map of a file counts in it.
    """
    command = [sys.executable, "-c", _MEASURE, str(good), *map(str, lies)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds
