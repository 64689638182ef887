"""The command line as a person uses it: right answers, and one clear line with exit code 2 for everything wrong."""

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sooner.cli.main import main
from tests.support.tiny_models import tiny_metadata, tiny_tensors, write_folder, write_gguf


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def sooner(*arguments: str | Path, stdin: str = "") -> Done:
    """The command in this process: a new one would spend seconds on importing torch."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", ["sooner", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        main()
    assert isinstance(ended.value.code, int)
    return Done(ended.value.code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path, tiny_metadata(), tiny_tensors())
    return path


@pytest.mark.parametrize("model", ["tiny", "tiny_gguf"])
def test_compare_reports_equality_and_speed(model: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    done = sooner(
        "generate", request.getfixturevalue(model), "-p", "the the the", "--draft", "ngram", "--compare", "--json",
        "-n", "24", "--threads", "1", "--trace", trace,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["identical"] is True
    assert result["speedup"] > 0 and result["tokens_per_round"] >= 1
    assert len(result["token_ids"]) == result["stats"]["output_tokens"] <= 24
    rounds = [json.loads(line) for line in trace.read_text().splitlines()]
    last = [r for r in rounds if r["request_id"] == rounds[-1]["request_id"]]
    assert [t for r in last for t in r["committed"]] == result["token_ids"]
    assert {"draft_text", "committed_text", "kind", "target_s", "accepted", "reason"} <= rounds[0].keys()


def test_prompts_come_from_standard_input_and_jsonl(tiny: Path, tmp_path: Path) -> None:
    plain = sooner("generate", tiny, "--raw", "-n", "5", "--json", stdin="the")
    assert plain.returncode == 0, plain.stderr
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('{"prompt": "the"}\n\n{"messages": [{"role": "user", "content": "in"}]}\n')
    done = sooner("generate", tiny, "--raw", "-f", lines, "-n", "5", "--json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 2
    assert answers[0]["token_ids"] == json.loads(plain.stdout)["token_ids"]


def test_answers_follow_a_schema(tiny: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"the": {"enum": [1, 2]}}, "required": ["the"]}')
    options = ("--json-schema", schema, "--draft", "grammar", "--compare", "--json", "-n", "100")
    done = sooner("generate", tiny, "-p", "in", *options)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["identical"] is True and result["finish_reason"] in ("stop", "length")
    assert result["finish_reason"] == "length" or json.loads(result["text"])["the"] in (1, 2)


def test_a_prediction_is_followed(tiny: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.txt"
    plain = json.loads(sooner("generate", tiny, "-p", "in", "--json", "-n", "30").stdout)
    expected.write_text(plain["text"])
    done = sooner("generate", tiny, "-p", "in", "--prediction", expected, "--compare", "--json", "-n", "30")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["identical"] is True and result["token_ids"] == plain["token_ids"]
    assert result["stats"]["drafted"] > 0


def test_many_prompts_at_once_as_json_lines(tiny: Path, tmp_path: Path) -> None:
    lines, answers = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts = ["the " * (1 + i % 7) + "in" for i in range(40)]
    lines.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    done = sooner("generate", tiny, "-f", lines, "-o", answers, "-n", "6", "--draft", "ngram", "--max-sequences", "5")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    written = sorted((json.loads(line) for line in answers.read_text().splitlines()), key=lambda line: line["index"])
    assert [line["index"] for line in written] == list(range(40))
    alone = json.loads(sooner("generate", tiny, "-p", prompts[3], "-n", "6", "--json").stdout)
    assert [written[i]["token_ids"] for i in (3, 10, 38)] == [alone["token_ids"]] * 3
    assert all(line["finish_reason"] in ("length", "stop") and not line["error"] for line in written)


def test_a_line_brings_settings_of_its_own(tiny: Path, tmp_path: Path) -> None:
    lines, answers = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    rows = [
        {"prompt": "the in", "id": "a"},
        {"prompt": "the in", "id": "b", "max_tokens": 3, "logprobs": 1, "metadata": {"source": "x"}},
        {"prompt": "the in", "id": "c", "temperature": 1.0, "seed": 5, "n": 2, "prediction": "the the"},
    ]
    lines.write_text("\n".join(map(json.dumps, rows)))
    done = sooner("generate", tiny, "-f", lines, "-o", answers, "-n", "6", "--draft", "ngram")
    assert done.returncode == 0, done.stderr
    found = {(line["id"], line["sample"]): line for line in map(json.loads, answers.read_text().splitlines())}
    assert set(found) == {("a", 0), ("b", 0), ("c", 0), ("c", 1)}
    assert found["b", 0]["token_ids"] == found["a", 0]["token_ids"][:3]
    assert len(found["b", 0]["logprobs"]) == 3 and found["b", 0]["metadata"] == {"source": "x"}
    sampled = sooner("generate", tiny, "-p", "the in", "-n", "6", "--temperature", "1", "--seed", "5", "--json")
    assert found["c", 0]["token_ids"] == json.loads(sampled.stdout)["token_ids"] != found["c", 1]["token_ids"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"prompt": "a", "temprature": 1},
            "line 1: unknown temprature; what is no sampling option goes into",
        ),
        ({"prompt": "a", "top_p": 0}, "line 1: top_p is 0"),
        ({"prompt": "a", "max_tokens": "many"}, "line 1: "),
        ({"prompt": "a", "prediction": 3}, "prediction is 3, must be text"),
        ({"prompt": "a", "n": 2}, "a line asks for n; write the answers to a file with --output"),
    ],
)
def test_a_bad_line_is_named(tiny: Path, tmp_path: Path, row: dict[str, object], message: str) -> None:
    lines = tmp_path / "prompts.jsonl"
    lines.write_text(json.dumps(row))
    done = sooner("generate", tiny, "-f", lines)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_show_colours_tokens_by_origin(tiny: Path) -> None:
    done = sooner("generate", tiny, "-p", "the the the", "--draft", "ngram", "-n", "24", "--show")
    assert done.returncode == 0, done.stderr
    assert "\x1b[3" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "a", "--temperature", "-1"], "temperature is -1.0, must be between 0 and 100"),
        (["-p", "a", "--top-p", "0"], "top_p is 0.0, must be above 0"),
        (["-p", "a", "--draft", "oracle"], "unknown drafter 'oracle'; known are ngram"),
        (["-p", "a", "--draft", "model:self/9"], "'9' must be a number of layers from 1 to the target's 2"),
        (["-p", "a", "--draft", "no.such:Class"], "No module named 'no'"),
        (["-p", "a", "--draft", "ngram", "--draft-tokens", "99"], "draft_tokens is 99"),
        (["-p", "a", "--verify", "exactly"], "verify is 'exactly', must be one of auto, match"),
        (["-p", "a", "--weights", "q3"], "weights 'q3' is not known; choose one of auto"),
        (["-p", "a", "--activations", "int8"], "activations int8 are for weights of 4 or 8 bits, these are f32"),
        (["-p", "a", "--device", "tpu"], "device 'tpu' is not"),
        (["-p", "a", "--max-context", "4096"], "max_context is 4096, must be between 1 and the model's 128"),
        (["-p", "the " * 200], "shorten"),
        (["-p", "a", "--bogus"], "No such option"),
        (["-p", ""], "the prompt is empty"),
        (["-p", "a", "--compare"], "--compare needs a draft"),
        (["-p", "a", "--draft", "ngram", "--compare", "--temperature", "1"], "needs --seed"),
        (["-f", "missing.txt"], "cannot read missing.txt"),
        (["-p", "a", "--json-schema", "missing.json"], "cannot read missing.json"),
        (["-n", "8", "-p", "a", "-p", "the " * 200, "-o", "answers.jsonl"], "prompt 2: the prompt has"),
        (["-n", "8", "-p", "a", "-o", "no/such/answers.jsonl"], "cannot write the answers to no/such/answers.jsonl"),
        (["-p", "a", "-o", "answers.jsonl", "--show"], "--output writes JSON lines"),
        (["-p", "a", "--regex", "[a-z"], "regex '[a-z' cannot be used: "),
        (["-p", "a", "--regex", "a", "--grammar", "README.md"], "has ['regex', 'grammar'], must have one"),
    ],
)
def test_bad_input_is_one_line_and_code_2(tiny: Path, arguments: list[str], message: str) -> None:
    done = sooner("generate", tiny, *arguments)
    assert done.returncode == 2, done.stderr
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("sooner: ")
    assert message in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing/here", "is not there"), ("broken.gguf", "sooner: "), ("plain.txt", "neither a .gguf file nor a folder")],
)
def test_a_model_that_cannot_be_opened(name: str, message: str, tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(tiny_gguf.read_bytes()[:900])
    (tmp_path / "plain.txt").write_text("not a model")
    done = sooner("generate", tmp_path / name, "-p", "a")
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr


def test_a_draft_of_another_vocabulary_is_refused_with_the_first_difference(tiny: Path, tmp_path: Path) -> None:
    """CASES.md 24."""
    other = write_folder(tmp_path / "other")
    text = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text.replace('"the"', '"teh"').replace('["th","e"]', '["te","h"]'))
    done = sooner("generate", tiny, "-p", "a", "--draft", f"model:{other}")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_smaller_draft_with_a_padded_vocabulary_works(tiny: Path, tmp_path: Path) -> None:
    """CASES.md 24: the same tokenizer under an embedding that was padded to another size."""
    size = json.loads((tiny / "config.json").read_text())["vocab_size"]
    padded = write_folder(tmp_path / "padded", seed=3, vocab_size=size + 11, num_hidden_layers=1)
    done = sooner(
        "generate", tiny, "-p", "the", "--draft", f"model:{padded}", "--compare", "--json", "-n", "16",
        "--temperature", "0.9", "--seed", "4",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["identical"] is True


def test_doctor_names_the_machine_and_its_kernels() -> None:
    done = sooner("doctor", "--json")
    assert done.returncode == 0, done.stderr
    assert {"machine", "threads", "kernels", "models"} <= json.loads(done.stdout).keys()


def test_help_comes_without_torch() -> None:
    """`sooner --help` answers at once because nothing heavy is imported on the way."""
    code = (
        "import sys; sys.argv = ['sooner', '--help']\nfrom sooner.cli.main import main\n"
        "try: main()\nexcept SystemExit as e: print('code', e.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "code 0 False"
    assert "generate" in done.stdout
