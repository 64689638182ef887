"""A hub on this machine: enough of its HTTP interface for `huggingface_hub`, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c0" * 20


@dataclass
class FakeHub:
    """`files` of the one repository, `repo`. cut: bytes after which each answer breaks off. spoilt: files whose content
    arrives changed."""

    repo: str
    files: Mapping[str, bytes]
    revisions: tuple[str, ...] = ("main", COMMIT)
    cut: int | None = None
    spoilt: set[str] = field(default_factory=set)
    ranges: list[str] = field(default_factory=list)
    requests: int = 0
    endpoint: str = ""

    def info(self) -> dict[str, Any]:
        return {"id": self.repo, "sha": COMMIT, "siblings": [self.entry(name) for name in self.files]}

    def entry(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        large = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 1}
        lfs = {"lfs": large} if is_large(name) else {}
        return {"rfilename": name, "size": len(content), "blobId": git_sha(content), **lfs}


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf"))


def git_sha(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            hub.requests += 1
            parts = self.path.split("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                return self.describe(parts[2:])
            return self.send_file("/".join(parts[:2]), parts[3], "/".join(parts[4:]), body)

        def describe(self, parts: list[str]) -> None:
            revision = parts[3] if len(parts) > 3 else "main"
            if "/".join(parts[:2]) != hub.repo:
                return self.refuse(401, "RepoNotFound")
            if revision not in hub.revisions:
                return self.refuse(404, "RevisionNotFound")
            content = json.dumps(hub.info()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send_file(self, repo: str, revision: str, name: str, body: bool) -> None:
            if repo != hub.repo or revision not in hub.revisions or name not in hub.files:
                return self.refuse(404, "EntryNotFound")
            content = hub.files[name]
            sent = bytes(byte ^ 1 for byte in content) if name in hub.spoilt else content
            asked, start = self.headers.get("Range"), 0
            if asked and body:
                hub.ranges.append(asked)
                start = int(asked.removeprefix("bytes=").split("-")[0])
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            etag = hashlib.sha256(content).hexdigest() if is_large(name) else git_sha(content)
            self.send_header("ETag", f'"{etag}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if body:
                self.wfile.write(sent[start : None if hub.cut is None else start + hub.cut])
            return None

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
