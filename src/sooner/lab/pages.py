"""Serves the page's files on this machine, or writes them into a folder. They need no network and send nothing."""

from __future__ import annotations

import contextlib
import shutil
import webbrowser
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sooner.errors import InputError

PAGE = Path(__file__).parent / "page"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Files(SimpleHTTPRequestHandler):
    """The folder's files and nothing else: no listings, no log."""

    protocol_version = "HTTP/1.1"
    extensions_map = {  # noqa: RUF012, a class attribute of the standard library's; the system's own table may be wrong
        ".html": "text/html; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".json": "application/json",
        ".svg": "image/svg+xml",
        "": "application/octet-stream",
    }

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def list_directory(self, path: Any) -> None:  # noqa: ARG002, as the standard library calls it
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def server(host: str, port: int, folder: Path = PAGE) -> ThreadingHTTPServer:
    """Bound and listening. Raises InputError where the address is not to be had."""
    try:
        found = ThreadingHTTPServer((host, port), partial(Files, directory=str(folder)))
    except OSError as error:
        raise InputError(f"cannot bind to {host}:{port}: {error}; choose another --port or --host") from error
    found.daemon_threads = True
    return found


def serve(host: str, port: int, ready: Callable[[str], None], open_page: bool) -> None:
    """Until Ctrl-C, which is how it is meant to end."""
    with server(host, port) as found, contextlib.suppress(KeyboardInterrupt):
        url = f"http://{host}:{found.server_address[1]}/"
        ready(url)
        if open_page:
            webbrowser.open(url)
        found.serve_forever()


def write(folder: Path) -> None:
    """Copies the page into `folder`, which must be new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; give a new one with --out")
    try:
        shutil.copytree(PAGE, folder, dirs_exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write the page to {folder}: {error}; give another folder with --out") from error
