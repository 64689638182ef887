"""Medusa heads in their published file: drafts against an independent forward, conversion of pickles, refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

from sooner.cli.main import app
from sooner.draft.medusa import FILE, MedusaDrafter, read_medusa
from sooner.draft.protocol import Target
from sooner.errors import ModelError
from sooner.kernels.interface import Norm
from sooner.testing import check_drafter
from sooner.types import SamplingParams
from tests.draft.asks import ask
from tests.support import heads
from tests.support.engines import engine, plain, request, run
from tests.support.heads import VOCABULARY, WIDTH, medusa_tensors, write_head

SETTINGS = {"medusa_num_heads": 3, "medusa_num_layers": 2, "base_model_name_or_path": "tiny"}


def reference(states: Tensor, norm: Norm, t: Mapping[str, Tensor]) -> Tensor:
    """states [n, WIDTH] before the target's final norm -> logits [3, n, VOCABULARY]."""
    logits = []
    for head in range(3):
        x = heads.norm(states, norm.weight)
        for block in range(2):
            x = x + F.silu(x @ t[f"{head}.{block}.linear.weight"].T + t[f"{head}.{block}.linear.bias"])
        logits.append(x @ t[f"{head}.2.weight"].T)
    return torch.stack(logits)


def test_logits_and_drafts(tmp_path: Path) -> None:
    target, tensors = heads.target(), medusa_tensors()
    drafter = MedusaDrafter("m", read_medusa(write_head(tmp_path, SETTINGS, tensors), target, "auto"), target)
    states = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1))
    wanted = reference(states, target.norm, tensors)
    for j, head in enumerate(drafter._heads):
        torch.testing.assert_close(torch.from_numpy(drafter._logits(head, states)), wanted[j], rtol=1e-4, atol=1e-4)
    for key in range(4):
        drafter.observe(key, [1] * 9, 0, states[key].expand(8, 1, WIDTH))
    asks = [ask([1] * 9, limit, key) for key, limit in enumerate((1, 2, 3, 7))]
    drafted = [draft.tokens for draft in drafter.propose(asks)]
    best = wanted.argmax(-1).T.tolist()
    assert drafted == [tuple(row[: min(limit, 3)]) for row, limit in zip(best, (1, 2, 3, 7))]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
def test_in_an_engine(rule: Any, temperature: float, tmp_path: Path) -> None:
    target = heads.target()
    drafter = MedusaDrafter("m", read_medusa(write_head(tmp_path, SETTINGS, medusa_tensors()), target, "auto"), target)
    machine, records = engine({"m": drafter}, target)
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=24)
    for _ in range(2):  # the second time from cached prefixes
        requests = [request(range(n), params, "m", rule=rule) for n in (5, 30, 40)]
        answers = run(machine, requests)
        assert not any(answer.stats.drafter_error for answer in answers)
        if rule == "match" or not temperature:
            assert [answer.tokens for answer in answers] == [plain(one, target).tokens for one in requests]
    assert [answer.stats.cached_tokens for answer in answers] == [0, 16, 32]
    assert any(record.draft for record in records)


def test_the_conformance_kit_passes(tmp_path: Path) -> None:
    target = heads.target()
    read = read_medusa(write_head(tmp_path, SETTINGS, medusa_tensors()), target, "auto")
    told = Target(VOCABULARY, 120, frozenset({3}), layers=8, width=WIDTH)
    check_drafter(lambda _: MedusaDrafter("m", read, target), told, rounds=40)


def test_a_pickle_is_converted(tmp_path: Path) -> None:
    write_head(tmp_path, SETTINGS, {})
    (tmp_path / "model.safetensors").unlink()
    torch.save(medusa_tensors(), tmp_path / "medusa_lm_head.pt")
    with pytest.raises(ModelError, match=r"medusa_lm_head.pt is a pickle.*run `sooner convert"):
        read_medusa(tmp_path, heads.target(), "auto")
    done = CliRunner().invoke(app, ["convert", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert len(read_medusa(tmp_path, heads.target(), "auto")) == 3


def test_other_names_of_file_and_tensors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({f"medusa_head.{name}": tensor for name, tensor in medusa_tensors().items()}, tmp_path / FILE)
    assert len(read_medusa(tmp_path, heads.target(), "auto")) == 3


REFUSED: Sequence[tuple[dict[str, Any], dict[str, Tensor], str]] = [
    ({"medusa_num_heads": 5}, {}, "medusa_num_heads is 5, the file has 3"),
    ({}, {"0.2.weight": torch.zeros(7, WIDTH)}, "'0.2.weight' has shape"),
    ({}, {"3.5.weight": torch.zeros(VOCABULARY, WIDTH)}, "the file has 4|is missing"),
    ({}, {"lm_head.weight": torch.zeros(VOCABULARY, WIDTH)}, "'lm_head.weight' of shape"),
]


@pytest.mark.parametrize(("settings", "tensors", "message"), REFUSED)
def test_what_does_not_fit_is_refused(
    settings: dict[str, Any], tensors: dict[str, Tensor], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        read_medusa(write_head(tmp_path, SETTINGS | settings, medusa_tensors() | tensors), heads.target(), "auto")
