"""`sooner train` on a tiny target: losses fall, a killed training goes on to the same weights, files fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sooner.draft.ngram_model import context_keys
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.train.loop import Plan, Progress
from sooner.train.medusa import train_medusa
from sooner.train.ngram import count, joined, train_ngram
from sooner.train.small import train_small
from sooner.train.store import read_answers
from sooner.train.teach import Job, Reports, Teacher
from sooner.train.teach_eagle import EagleOptions, train_eagle
from sooner.types import SamplingParams
from tests.support.tiny_models import TOKENS, write_folder

OPTIONS = EagleOptions(vocabulary=40, steps=2, taps=(0, 1, 2))
PLAN = Plan(tokens=1200, batch=120, measure_every=0.0, patience=1000)
EAGLE_KEYS = {
    "fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d",
    *(f"midlayer.{name}.weight" for name in (
        "hidden_norm", "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
    )),
}  # fmt: skip


class KillError(Exception):
    pass


def reports(kill_at: int | None = None) -> Reports:
    def updated(progress: Progress, _: float) -> None:
        if progress.updates == kill_at:
            raise KillError

    return Reports(lambda _: None, lambda done, count: None, updated, lambda _: None)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target, prompts, and a folder with its answers, which trainings copy."""
    folder = tmp_path_factory.mktemp("train")
    write_folder(folder / "target")
    rows = [json.dumps({"prompt": f"the {number} in"}) for number in range(24)]
    (folder / "prompts.jsonl").write_text("\n".join(rows))
    Teacher(job(folder, "answers"), reports()).answers()
    return folder


def job(home: Path, name: str, plan: Plan = PLAN) -> Job:
    out = home / name
    out.mkdir(exist_ok=True)
    for kept in ("prompts.jsonl", "answers.jsonl"):
        if (home / "answers" / kept).exists() and name != "answers":
            (out / kept).write_bytes((home / "answers" / kept).read_bytes())
    return Job(str(home / "target"), out, plan, home / "prompts.jsonl", max_tokens=24, threads=1)


@pytest.fixture(scope="module")
def eagle(home: Path) -> Path:
    train_eagle(Teacher(job(home, "eagle"), reports()), OPTIONS)
    return home / "eagle"


def curve(folder: Path) -> list[dict[str, list[float]]]:
    points: list[dict[str, list[float]]] = json.loads((folder / "curve.json").read_text())["curve"]
    return points


def test_eagle_learns_and_says_so(eagle: Path) -> None:
    points = curve(eagle)
    assert points[-1]["loss"][0] < points[0]["loss"][0]
    assert points[-1]["tokens"] >= PLAN.tokens  # type: ignore[operator]
    card = (eagle / "README.md").read_text()
    assert f"{points[-1]['tokens_a_round']:.3f} tokens a round" in card
    assert "24 answers" in card


def test_eagle_file_has_the_published_tensors(eagle: Path) -> None:
    tensors = load_file(eagle / "model.safetensors")
    assert set(tensors) == EAGLE_KEYS
    assert tensors["d2t"].dtype == torch.int64
    assert tensors["t2d"].dtype == torch.bool
    kept = torch.arange(40) + tensors["d2t"]
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], kept)
    assert int(tensors["t2d"][2]), "the end token can be drafted"


def test_a_killed_training_goes_on_to_the_same_weights(home: Path, eagle: Path) -> None:
    with pytest.raises(KillError):
        train_eagle(Teacher(job(home, "killed"), reports(kill_at=4)), OPTIONS)
    train_eagle(Teacher(job(home, "killed"), reports()), OPTIONS)
    assert_same(home / "killed", eagle)
    strip = [{k: v for k, v in point.items() if k != "seconds"} for point in curve(home / "killed")]
    assert strip == [{k: v for k, v in point.items() if k != "seconds"} for point in curve(eagle)]


def test_states_that_do_not_fit_the_disk_are_computed_anew(home: Path, eagle: Path) -> None:
    small = replace(job(home, "uncached"), cache=100_000)
    train_eagle(Teacher(small, reports()), OPTIONS)
    assert 0 < len(list((home / "uncached" / "states").iterdir())) < 24
    assert_same(home / "uncached", eagle)


def test_states_are_read_as_the_target_is_served(home: Path) -> None:
    states = {}
    for activations in ("float32", "int8"):
        teacher = Teacher(replace(job(home, activations), weights="q8", activations=activations), reports())
        states[activations] = torch.from_numpy(teacher.store(teacher.answers(), (1, 2)).documents([0])[0].states)
    assert not torch.equal(states["int8"], states["float32"])
    torch.testing.assert_close(states["int8"], states["float32"], atol=0.1, rtol=0.1)


def assert_same(a: Path, b: Path) -> None:
    mine, theirs = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_layouts_differ_in_names_alone(home: Path, eagle: Path) -> None:
    train_eagle(Teacher(job(home, "other"), reports()), replace(OPTIONS, layout="speculators"))
    mine, theirs = load_file(home / "other" / "model.safetensors"), load_file(eagle / "model.safetensors")
    assert {name.replace("layers.0.", "midlayer.") for name in mine} == set(theirs)
    config = json.loads((home / "other" / "config.json").read_text())
    assert config["speculators_model_type"] == config["speculators_config"]["algorithm"] == "eagle3"
    assert config["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]
    assert config["transformer_layer_config"]["num_hidden_layers"] == 1
    assert config["draft_vocab_size"] == 40


def test_medusa_learns_and_has_the_published_tensors(home: Path) -> None:
    train_medusa(Teacher(job(home, "medusa", replace(PLAN, rate=0.3)), reports()), heads=2, blocks=1)
    points = curve(home / "medusa")
    assert sum(points[-1]["loss"]) < sum(points[0]["loss"])
    tensors = load_file(home / "medusa" / "model.safetensors")
    assert set(tensors) == {f"{h}.{part}" for h in (0, 1) for part in ("0.linear.weight", "0.linear.bias", "1.weight")}
    assert tensors["1.1.weight"].shape == (len(TOKENS), 64)
    drafts_the_same_tokens(home, f"medusa:{home / 'medusa'}")


def test_eagle_drafts(home: Path, eagle: Path) -> None:
    drafts_the_same_tokens(home, f"eagle:{eagle}")


def drafts_the_same_tokens(home: Path, draft: str) -> None:
    llm = LLM(str(home / "target"), draft=draft, draft_tokens=2, threads=1)
    params = SamplingParams(temperature=0.0, max_tokens=24)
    [drafted], [plain] = llm.generate("the in", params), llm.generate("the in", params, speculative=False)
    assert drafted.outputs[0].token_ids == plain.outputs[0].token_ids


def test_a_small_draft_learns_and_drafts(home: Path) -> None:
    train_small(Teacher(job(home, "small"), reports()), layers=1)
    points = curve(home / "small")
    assert points[-1]["loss"][0] < points[0]["loss"][0]
    drafts_the_same_tokens(home, f"model:{home / 'small'}")


def test_all_layers_are_the_target_itself(home: Path) -> None:
    """A draft of all layers begins with the target's own choices."""
    train_small(Teacher(job(home, "whole", replace(PLAN, tokens=1)), reports()), layers=2)
    first = curve(home / "whole")[0]
    assert min(first["acceptance"]) > 0.99


def test_answers_are_the_targets_and_alternate_in_temperature(home: Path) -> None:
    answers = read_answers(home / "answers" / "answers.jsonl")
    assert [answer.temperature for answer in answers] == [0.0, 0.8] * 12
    llm = LLM(str(home / "target"), threads=1)
    plain = llm.generate([list(answers[0].prompt)], SamplingParams(temperature=0.0, max_tokens=24))
    assert tuple(plain[0].outputs[0].token_ids) == answers[0].answer


def test_ngram_knows_the_answers_that_it_counted(home: Path) -> None:
    made = job(home, "ngram")
    train_ngram(Teacher(made, reports()), 4)
    llm = LLM(str(home / "target"), draft=f"ngram:{made.out}", draft_tokens=3, max_context=128)
    answers = read_answers(made.out / "answers.jsonl")
    prompts = [list(answer.prompt) for answer in answers if answer.temperature == 0][:6]
    params = SamplingParams(temperature=0.0, max_tokens=24)
    drafted, plain = llm.generate(prompts, params), llm.generate(prompts, params, speculative=False)
    assert [o.outputs[0].token_ids for o in drafted] == [o.outputs[0].token_ids for o in plain]
    stats = [output.outputs[0].stats for output in drafted]
    assert sum(s.accepted for s in stats) > 0.6 * sum(s.drafted for s in stats) > 0
    assert {path.name for path in made.out.iterdir()} >= {"model.safetensors", "config.json", "README.md", "curve.json"}


def test_an_earlier_ngram_model_fills_the_gaps(home: Path) -> None:
    """Of two models that counted half the answers each, the joined one knows both, and its own answers decide."""
    answers = read_answers(home / "answers" / "answers.jsonl")
    first, second = answers[:12], answers[12:]
    earlier, later = count(first, 3), count(second, 3)
    both = joined(later, earlier, second)
    assert list(both.keys) == sorted({*later.keys, *both.keys})
    known = dict(zip(both.keys, both.tokens))
    assert all(known[key] == token for key, token in zip(later.keys, later.tokens))
    own = {
        key
        for answer in second
        for at in range(len(answer.prompt), len(answer.prompt + answer.answer))
        for key in context_keys((answer.prompt + answer.answer)[:at], 3)
    }
    assert set(both.keys) - set(later.keys) == set(earlier.keys) - own != set()


def test_an_ngram_model_starts_from_one_of_its_order(home: Path) -> None:
    train_ngram(Teacher(job(home, "orders"), reports()), 3)
    with pytest.raises(InputError, match="up to 3 tokens, --order is 4"):
        train_ngram(Teacher(job(home, "longer"), reports()), 4, home / "orders")
    train_ngram(Teacher(job(home, "again"), reports()), 3, home / "orders")
    assert read(home / "again") == read(home / "orders")  # the same answers leave no gap


def read(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_head_is_trained_further(home: Path) -> None:
    """It goes on where the first one ended, with its tokens, and refuses what is no head or another target's."""
    train_eagle(Teacher(job(home, "first"), reports()), OPTIONS)
    more = replace(OPTIONS, vocabulary=9, taps=None, start=home / "first")
    train_eagle(Teacher(job(home, "further"), reports()), more)
    first, further = curve(home / "first"), curve(home / "further")
    assert further[0]["loss"][0] == pytest.approx(first[-1]["loss"][0], rel=0.02)  # rounded to bf16 in between
    kept, now = (load_file(home / name / "model.safetensors") for name in ("first", "further"))
    assert torch.equal(kept["d2t"], now["d2t"])
    assert not torch.equal(kept["fc.weight"], now["fc.weight"])
    with pytest.raises(InputError, match="holds no EAGLE-3 head"):
        train_eagle(Teacher(job(home, "none"), reports()), replace(OPTIONS, start=home / "target"))
