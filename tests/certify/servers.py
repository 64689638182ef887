"""A server that answers as OpenAI-compatible ones do, from a tiny engine. Text is one letter a token."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from sooner.engine.engine import Engine
from sooner.types import Logprob, SamplingParams
from tests.support.engines import VOCABULARY, Answer, request, run

Form = Callable[[list[str], list[Logprob]], dict[str, Any]]


def letter(token: int) -> str:
    return chr(97 + token)


def openai_form(tokens: list[str], scores: list[Logprob]) -> dict[str, Any]:
    tops = [{letter(t): value for t, value in score.top} for score in scores]
    return {"tokens": tokens, "token_logprobs": [score.logprob for score in scores], "top_logprobs": tops}


def llama_cpp_form(tokens: list[str], scores: list[Logprob]) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": token,
                "logprob": score.logprob,
                "top_logprobs": [{"token": letter(t), "logprob": value} for t, value in score.top],
            }
            for token, score in zip(tokens, scores)
        ]
    }


class FakeServer:
    """spoil changes an answer's tokens before they are sent. strict: refuses what OpenAI's interface does not know."""

    def __init__(
        self,
        machine: Engine,
        drafter: str | None = None,
        form: Form | None = openai_form,
        spoil: Callable[[Answer], None] | None = None,
        first_seed: int = 0,
        strict: bool = False,
    ) -> None:
        self.machine, self.drafter, self.form, self.spoil = machine, drafter, form, spoil
        self.strict = strict
        self.lock = threading.Lock()
        self.seeds = count(first_seed)
        self.url = ""

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        params = SamplingParams(
            temperature=body["temperature"], max_tokens=body["max_tokens"], logprobs=body["logprobs"]
        )
        prompt = [ord(letter) % VOCABULARY for letter in body["prompt"]][:100]
        with self.lock:
            [answer] = run(self.machine, [request(prompt, params, self.drafter, seed=next(self.seeds))])
        if self.spoil:
            self.spoil(answer)
        scores = [piece.logprob for piece in answer.pieces if piece.logprob]
        choice: dict[str, Any] = {"index": 0, "text": "".join(map(letter, answer.tokens)), "logprobs": None}
        if self.form:
            choice["logprobs"] = self.form([letter(token) for token in answer.tokens], scores)
        return {"choices": [choice]}


@contextmanager
def serving(server: FakeServer) -> Iterator[FakeServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"data": [{"id": "tiny"}]} if self.path == "/v1/models" else None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = self.path == "/v1/completions" and body["model"] == "tiny"
            refused = server.strict and "repeat_penalty" in body
            self.answer(server.complete(body) if known and not refused else None)

        def answer(self, value: dict[str, Any] | None) -> None:
            data = json.dumps(value or {"error": "no such thing"}).encode()
            self.send_response(200 if value else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield server
        http.shutdown()
        thread.join()
