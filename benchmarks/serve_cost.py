"""What HTTP and JSON cost: the same requests given to an engine directly and to a server, turn by turn.

    python -m benchmarks.serve_cost --save

The clients live in a process of their own and read every event, as bytes; all share the machine's cores with the
engine, so the figure includes what little a client costs. Also: seconds until a server is ready, and pages after many
departures.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import time
from statistics import median
from typing import Any

from benchmarks import saving
from benchmarks.serving import Served, serving
from sooner.llm import LLM
from sooner.types import SamplingParams

PROMPT = "<|im_start|>user\nWrite a long story about the sea, number {}.<|im_end|>\n<|im_start|>assistant\n"
CLIENTS = """
import json, re, selectors, socket, sys, time
host, port, bodies = json.loads(sys.stdin.read())
ready, tails = selectors.DefaultSelector(), {}
began, tokens = time.perf_counter(), 0
for body in bodies:
    data = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\\r\\nhost: localhost\\r\\ncontent-type: application/json\\r\\n"
    connection = socket.create_connection((host, port))
    connection.sendall(head + b"content-length: %d\\r\\n\\r\\n" % len(data) + data)
    ready.register(connection, selectors.EVENT_READ)
    tails[connection] = b""
while tails:
    for key, _ in ready.select():
        got = key.fileobj.recv(1 << 16)
        tails[key.fileobj] = tail = (tails[key.fileobj] + got)[-4096:]
        if b"[DONE]" in tail:
            tokens += int(re.search(rb'"completion_tokens":(\\d+)', tail)[1])
            ready.unregister(key.fileobj)
            del tails[key.fileobj]
        elif not got:
            sys.exit(f"the server hung up: {tail}")
print(tokens / (time.perf_counter() - began))
"""


def direct(llm: LLM, streams: int, tokens: int) -> float:
    """Tokens a second, prompts included."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    began = time.perf_counter()
    outputs = llm.generate([PROMPT.format(i) for i in range(streams)], params, speculative=False)
    return sum(len(output.token_ids) for output in outputs) / (time.perf_counter() - began)


def served(server: Served, streams: int, tokens: int) -> float:
    common: dict[str, Any] = {
        "temperature": 0,
        "max_tokens": tokens,
        "ignore_eos": True,
        "speculative": False,
        "stream": True,
    }
    common |= {"stream_options": {"include_usage": True}}
    bodies = [common | {"prompt": PROMPT.format(i)} for i in range(streams)]
    asked = json.dumps([*server.url.removeprefix("http://").split(":"), bodies])
    done = subprocess.run([sys.executable, "-c", CLIENTS], input=asked, capture_output=True, text=True, check=True)
    return float(done.stdout)


def compare(llm: LLM, server: Served, streams: int, tokens: int, repeats: int) -> dict[str, Any]:
    pairs = [(direct(llm, streams, tokens), served(server, streams, tokens)) for _ in range(repeats + 1)][1:]
    costs = [1 - through / straight for straight, through in pairs]
    return {
        "streams": streams,
        "direct_tokens_per_second": [round(straight, 2) for straight, _ in pairs],
        "served_tokens_per_second": [round(through, 2) for _, through in pairs],
        "cost": round(median(costs), 4),
    }


def departures(server: Served, count: int) -> dict[str, float]:
    """Sockets closed at any moment of a call; then how many pages are free, and were before."""
    rng, before = random.Random(1), server.metrics()
    body = json.dumps({"prompt": PROMPT.format(0), "max_tokens": 200, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    data = head + b"content-length: %d\r\n\r\n" % len(body) + body
    address = server.url.removeprefix("http://").split(":")
    for _ in range(count):
        with socket.create_connection((address[0], int(address[1]))) as connection:
            connection.sendall(data[: rng.choice([30, len(data) - 9, len(data), len(data), len(data)])])
            time.sleep(rng.random() * 0.1)
    while (after := server.metrics())["sooner:num_requests_running"]:
        time.sleep(0.1)
    pages = "sooner:kv_cache_free_pages"
    return {"departures": count, "free_pages_before": before[pages], "free_pages_after": after[pages]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--departures", type=int, default=500)
    parser.add_argument("--save", action="store_true", help="write the result under results/")
    options = parser.parse_args()
    llm = LLM(options.model, max_sequences=16)
    with serving(options.model) as server:
        costs = [compare(llm, server, streams, options.tokens, options.repeats) for streams in (1, 16)]
        figures = {"ready_s": round(server.ready_s, 2), "http": costs, **departures(server, options.departures)}
    print(json.dumps(figures))
    saving.save("serve", options, figures)


if __name__ == "__main__":
    main()
