"""`sooner lab` and its twins, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from tests.cli.test_generate import sooner


def test_formulas() -> None:
    done = sooner("lab", "formulas", "--rounds", "20000", "--json")
    result = json.loads(done.stdout)
    tokens = {(t["alpha"], t["k"]): t for t in result["tokens"]}
    assert round(tokens[0.9, 8]["formula"], 4) == 6.1258
    assert all(abs(t["mean"] - t["formula"]) < 4 * t["error"] for t in result["tokens"])
    assert [b["length"] for b in result["best"]] == [2, 3, 4, 6, 10]
    text = sooner("lab", "formulas", "--rounds", "2000").stdout
    assert "4.0951" in text
    assert "3.43x" in text


def test_step() -> None:
    done = sooner("lab", "step", "--p", "0.6,0.3,0.1", "--q", "0.2,0.5,0.3", "--draws", "20000", "--json")
    result = json.loads(done.stdout)
    assert result["columns"]["acceptance"] == pytest.approx([1, 0.6, 1 / 3])
    assert result["rate"] == pytest.approx(0.6)
    assert abs(result["drawn"]["rate"] - 0.6) < 4 * result["drawn"]["error"]
    text = sooner("lab", "step", "--p", "0,0.3,0.7", "--q", "0.5,0.5,0", "--draws", "1000").stdout
    assert "never drafted" in text
    assert "total variation" in text


def test_simulate() -> None:
    result = json.loads(sooner("lab", "simulate", "--sequences", "3000", "--json").stdout)
    assert round(result["real_rows_with_end"], 2) == 3.54
    assert abs(result["tokens_per_call"] - result["real_rows_with_end"]) < 4 * result["tokens_per_call_error"]
    assert "72% of target calls saved" in sooner("lab", "simulate", "--sequences", "3000").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["step", "--p", "1,x"], "--p is '1,x'"),
        (["step", "--p", "1,2", "--q", "1,2,3"], "as many"),
        (["step", "--temperature", "-1"], "temperature is -1"),
        (["step", "--draws", "0"], "draws is 0"),
        (["simulate", "--blur", "2"], "blur is 2"),
        (["simulate", "-k", "99"], "draft length is 99"),
        (["formulas", "--cost", "-1"], "draft cost is -1"),
        (["--port", "70000"], "--port"),
        (["--host", "no.such.place.invalid"], "cannot bind"),
        (["--port", "8001", "formulas"], "formulas shows no page; leave out --port"),
        (["--out", "page", "--open"], "leave out --open"),
    ],
)
def test_wrong_words_end_in_one_line(words: list[str], message: str) -> None:
    done = sooner("lab", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder(tmp_path: Path) -> None:
    done = sooner("lab", "--out", tmp_path / "page")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page" / "index.html").is_file()
    again = sooner("lab", "--out", tmp_path / "page")
    assert again.returncode == 2
    assert "not an empty folder" in again.stderr


def test_the_server_serves_the_page_and_ends_on_ctrl_c() -> None:
    environment = {**os.environ, "PYTHONPATH": "src", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "sooner.cli.main", "lab"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # jobs in the background ignore it
    )  # fmt: skip
    try:
        assert process.stdout
        url = process.stdout.readline().split()[4]
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert "<title>" in answer.read().decode()
        for missing in ("../pages.py", "%2e%2e/pages.py", "data/", "nothing.js"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(url + missing, timeout=10)
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert err == ""
