"""`sooner chat`: commands, history, and a Ctrl-C that stops an answer only."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_generate import sooner
from tests.support.tiny_models import write_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("chat") / "tiny.gguf")


def test_a_conversation(tiny: Path, tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    lines = [
        "the",
        "/draft",
        "/draft off",
        "in",
        "/stats",
        f"/save {saved}",
        f"/save {saved}",
        "/clear",
        "/quit",
        "the",
    ]
    done = sooner("chat", tiny, "--draft", "ngram", "-n", "9", "--system", "in", stdin="\n".join(lines))
    assert done.returncode == 0, done.stderr
    messages = json.loads(saved.read_text())["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert done.stdout == "".join(m["content"] + "\n" for m in messages if m["role"] == "assistant")
    for part in ("ngram, as much as pays", "drafting: off", "2 answers, 18 tokens", "exists already", "is empty"):
        assert part in done.stderr


def test_history_reaches_the_model(tiny: Path) -> None:
    """The second answer depends on the first question."""
    runs = [sooner("chat", tiny, "-n", "9", stdin=f"{first}\nthe\n").stdout for first in ("in", "the")]
    alone = sooner("chat", tiny, "-n", "9", stdin="/draft\nthe\n").stdout
    assert runs[0].splitlines()[-1] != runs[1].splitlines()[-1]
    assert alone.splitlines()[-1] not in {run.splitlines()[-1] for run in runs}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/nope", "unknown command /nope; known are /draft"),
        ("/draft oracle", "Loaded: ngram"),
        ("/draft 99", "draft_tokens is 99"),
        ("/save", "needs a file name"),
        ("/save /no/such/folder/x.json", "cannot write"),
        ("the " * 200, "shorten the prompt"),
    ],
)
def test_a_bad_line_does_not_end_the_conversation(tiny: Path, line: str, message: str) -> None:
    done = sooner("chat", tiny, "--draft", "ngram", "-n", "5", stdin=f"{line}\nthe\n")
    assert done.returncode == 0 and message in done.stderr
    assert len(done.stdout.splitlines()) >= 1 and "Traceback" not in done.stderr


@pytest.mark.slow
def test_ctrl_c_stops_the_answer_and_keeps_the_session() -> None:
    """In a terminal of its own: an endless answer is cut, the next one comes, and Ctrl-D leaves."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["PYTHONPATH"] = "src"
        os.execv(sys.executable, [sys.executable, "-m", "sooner.cli.main", "chat", "smollm2", "--draft", "ngram"])
    try:
        read_until(terminal, "> ")
        os.write(terminal, b"Write a long story about the sea, with ten chapters.\n")
        read_until(terminal, "\x1b[3")
        time.sleep(0.3)
        os.kill(child, signal.SIGINT)
        read_until(terminal, "[stopped]")
        os.write(terminal, b"/stats\n")
        # One wait: what follows the statistics may come in the same read as they do.
        assert "1 answers" in read_until(terminal, "cache: ", "> ")
        os.write(terminal, b"\x04")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        child = 0
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(terminal)


def read_until(terminal: int, *wanted: str, seconds: float = 120) -> str:
    """Reads until all of `wanted` came, one after the other."""
    text, end = "", 0
    for part in wanted:
        while (start := text.find(part, end)) < 0:
            assert select.select([terminal], [], [], seconds)[0], f"{part!r} did not come: {text[-300:]}"
            text += os.read(terminal, 4096).decode(errors="replace")
        end = start + len(part)
    return text
