from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import run, venvs
from benchmarks.peers.compare import compare
from benchmarks.peers.engines import DEFAULT, PEERS, Engine, parse
from benchmarks.peers.protocol import Job, Recorder, timing
from benchmarks.peers.protocol import run as answer_all
from sooner.errors import InputError

EOS = 2


def job(**changes: Any) -> Job:
    prompts = [{"id": "a", "category": "chat", "tokens": [7]}, {"id": "b", "category": "edit", "tokens": [8, 9]}]
    known: dict[str, Any] = {"model": "m", "folder": "f", "mode": "plain", "amount": 4, "format": "auto", "threads": 2}
    return Job(**(known | {"kernels": "auto", "max_tokens": 5, "eos": [EOS], "prompts": prompts} | changes))


def test_recorder_ends_with_the_end_token_and_drops_it() -> None:
    recorder = Recorder([EOS])
    for tokens in ([5], [6, EOS, 9], [4]):
        recorder.add(tokens)
    assert recorder.tokens == [5, 6] and recorder.ended and recorder.counts == [1, 2, 2]


def test_decoding_starts_with_the_first_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([3.0, 4.0, 6.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    recorder = Recorder([])
    for tokens in ([1, 2], [3], [4, 5]):
        recorder.add(tokens)
    assert timing(recorder, start=1.0) == {
        "tokens": [1, 2, 3, 4, 5],
        "total_s": 5.0,
        "decode_s": 3.0,
        "decode_tokens": 3,
    }


def test_an_engine_answers_every_prompt_after_a_warm_up(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[list[int], int]] = []

    def answer(prompt: list[int], most: int, recorder: Recorder) -> None:
        asked.append((prompt, most))
        recorder.add([3])
        recorder.add([4, EOS])

    answer_all(job(), "1.2", answer)
    assert asked == [([7], 8), ([7], 5), ([8, 9], 5)]
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["version"] == "1.2" and [r["id"] for r in printed["results"]] == ["a", "b"]
    assert printed["results"][1]["tokens"] == [3, 4] and printed["results"][1]["decode_tokens"] == 1


def test_engines_are_written_as_they_are_read() -> None:
    assert parse("sooner/model:self/4") == Engine("sooner/model:self/4", "sooner", "model:self/4", 4, "auto")
    assert parse("sooner/suffix:6@bf16") == Engine("sooner/suffix:6@bf16", "sooner", "suffix", 6, "bf16")
    assert parse("sooner/suffix,ngram:smollm2:auto").mode == "suffix,ngram:smollm2"
    assert parse("sooner_torch/suffix:auto").amount == "auto"
    assert parse("vllm/ngram:3").format == "f32"
    assert all(parse(text).text == text for text in DEFAULT)


@pytest.mark.parametrize(
    "text", ["sglang/plain", "sooner", "llama_cpp/magic", "openvino/plain@bf16", "vllm/plain@q4", "vllm/ngram:auto", ""]
)
def test_unknown_engines_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"engine '{text}'"):
        parse(text)


def test_every_peer_has_a_recipe_and_a_file() -> None:
    assert {name for name, peer in PEERS.items() if not peer.ours} == set(venvs.RECIPES) - {"clients"}
    for peer in PEERS.values():
        assert Path(peer.module.replace(".", "/") + ".py").name in {p.name for p in Path(run.__file__).parent.iterdir()}


def run_of(seconds: float, answers: dict[str, list[int]], version: str = "1") -> dict[str, Any]:
    results = [
        {
            "id": name,
            "category": name[0],
            "tokens": tokens,
            "decode_tokens": len(tokens) - 1,
            "decode_s": seconds,
            "total_s": 2 * seconds,
        }
        for name, tokens in answers.items()
    ]
    return {"version": version, "results": results}


def test_comparison_takes_medians_categories_and_sooners_best() -> None:
    same = {"a1": [1, 2, 3], "a2": [1, 2, 3], "b1": [1, 2, 3, 4, 5]}
    other = same | {"a2": [1, 2, 9]}
    runs = {
        "sooner/plain": [run_of(1.0, same)] * 3,
        "sooner/suffix:4": [run_of(s, same) for s in (0.5, 9.0, 0.5)],
        "llama_cpp/plain": [run_of(2.0, same)] * 3,
        "llama_cpp/lookup:4": [run_of(4.0, same), run_of(4.0, other), run_of(4.0, same)],
    }
    result = compare(runs, {"vllm/plain": "no memory"})
    engines = result["engines"]
    assert engines["sooner/suffix:4"]["tok_s"] == pytest.approx({"a": 4.0, "b": 8.0})
    assert engines["sooner/suffix:4"]["end_to_end_tok_s"] == pytest.approx({"a": 3.0, "b": 5.0})
    assert engines["llama_cpp/lookup:4"]["same_as_plain"] == 2 and engines["llama_cpp/plain"]["same_as_plain"] == 3
    found = {text: entry["sooner_over_it"] for text, entry in engines.items()}
    assert found == pytest.approx(
        {"sooner/plain": 2.0, "sooner/suffix:4": 1.0, "llama_cpp/plain": 4.0, "llama_cpp/lookup:4": 8.0}
    )
    assert result["failed"] == {"vllm/plain": "no memory"}


def test_engines_take_turns_and_one_that_fails_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = [parse(text) for text in ("sooner/plain", "llama_cpp/plain", "openvino/plain")]
    order: list[str] = []

    def play(engine: Engine, job: Job) -> dict[str, Any]:
        order.append(engine.name)
        if engine.name == "llama_cpp" and len(order) > 3:
            raise RuntimeError("out of luck")
        return {"version": "1", "results": []}

    monkeypatch.setattr(run, "play", play)
    done, failed = run.take_turns(engines, {engine: job() for engine in engines}, runs=3)
    assert order == ["sooner", "llama_cpp", "openvino", "openvino", "llama_cpp", "sooner", "sooner", "openvino"]
    assert {text: len(mine) for text, mine in done.items()} == {"sooner/plain": 3, "openvino/plain": 3}
    assert failed == {"llama_cpp/plain": "out of luck"}


def test_a_process_that_dies_leaves_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    Path(sys.executable).write_text("#!/bin/sh\necho first >&2\necho 'bad news' >&2\nexit 3\n")
    Path(sys.executable).chmod(0o755)
    with pytest.raises(RuntimeError, match=r"^bad news$"):
        run.play(parse("sooner/plain"), job())


def test_the_result_is_found_among_other_messages() -> None:
    assert run.find_result('INFO loading\n{"version": "1", "results": []}\nINFO bye\n')["version"] == "1"
    with pytest.raises(RuntimeError, match="without a result"):
        run.find_result("INFO nothing\n")


def test_peers_that_are_not_set_up_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venvs, "ROOT", tmp_path)
    monkeypatch.setattr(run, "FOLDER", tmp_path / "folder")
    with pytest.raises(InputError, match=r"not set up: transformers vllm; run `python -m benchmarks.peers.venvs"):
        run.prepare([parse("vllm/plain"), parse("sooner/plain")], tmp_path)
    run.prepare([parse("sooner/plain")], tmp_path)
