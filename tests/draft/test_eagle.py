"""EAGLE heads in their published files: logits against an independent forward, drafts, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sooner.cache.paged import Table
from sooner.draft.eagle import Eagle3
from sooner.draft.eagle_files import read_eagle
from sooner.draft.heads import HeadDrafter
from sooner.draft.numbering import checked_numbering
from sooner.draft.protocol import Ask, Target
from sooner.errors import ModelError
from sooner.llm import LLM
from sooner.models.decoder import Decoder
from sooner.models.runner import Span, layout, tapped
from sooner.sampling.noise import Noise
from sooner.testing import check_drafter
from sooner.types import Draft, Ledger, Request, SamplingParams
from sooner.weights.safetensors import read_folder
from tests.draft.asks import ask
from tests.support import heads
from tests.support.heads import (
    OUTPUTS,
    VOCABULARY,
    WIDTH,
    eagle1_reference,
    eagle1_tensors,
    eagle3_reference,
    eagle3_settings,
    eagle3_tensors,
    layer_settings,
    write_head,
)
from tests.support.tiny_models import TOKENS, write_folder

IDS = torch.randint(VOCABULARY, (40,), generator=torch.Generator().manual_seed(5)).tolist()
LAYOUTS = {"original": "midlayer", "speculators": "layers.0"}
Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # hidden states and the tokens after them -> logits, outputs


def features_of(target: Decoder, ids: list[int], taps: tuple[int, ...]) -> Tensor:
    [_], [features] = tapped(target, target.new_cache(8), [Span(Table(), ids)], taps)
    return features


def embedding(target: Decoder, tokens: Tensor) -> Tensor:
    return target.kernels.embed(target.embed, tokens)


def assert_logits(head: Any, features: Tensor, ids: list[int], step: Step) -> None:
    """Entries read in chunks, and then a draft of five tokens, against whole sequences without a cache."""
    cache, table, rows = head.new_cache(8), Table(), []
    fused = head.fuse(features[: len(ids) - 1].contiguous())
    for part in torch.split(torch.arange(len(ids) - 1), 7):
        cache.reserve(table, table.length + len(part))
        span = Span(table, [ids[i + 1] for i in part], wants=len(part))
        logits, _ = head.forward(fused[part], *_placed(span, cache, head))
        cache.advance(table, table.length + len(part))
        rows.append(logits)
    hidden, tokens = fused.clone(), torch.tensor(ids[1:])
    torch.testing.assert_close(torch.cat(rows), step(hidden, tokens)[0], rtol=1e-4, atol=1e-4)
    drafter = HeadDrafter("head", head, VOCABULARY, 16)
    drafter.observe(0, ids, 0, features[: len(ids) - 1])
    [draft] = drafter.propose([ask(ids, limit=5)])
    expected = []
    for _ in range(5):
        logits, outputs = step(hidden, tokens)
        best = int(logits[-1].argmax())
        expected.append(best if head.targets is None else int(head.targets[best]))
        hidden, tokens = torch.cat([hidden, outputs[-1:]]), torch.cat([tokens, torch.tensor(expected[-1:])])
    assert list(draft.tokens) == expected


def _placed(span: Span, cache: Any, head: Any) -> tuple[Any, Any, Tensor]:
    rows, wanted = layout([span], torch.device("cpu"))
    return rows, cache.layers[0], wanted


@pytest.mark.parametrize("norm_before_residual", [False, True])
@pytest.mark.parametrize("layout_", LAYOUTS)
def test_eagle3_logits(layout_: str, norm_before_residual: bool, tmp_path: Path) -> None:
    target, layer, tensors = heads.target(), LAYOUTS[layout_], eagle3_tensors(LAYOUTS[layout_])
    write_head(tmp_path, eagle3_settings(layout_, norm_before_residual), tensors)
    head = read_eagle(tmp_path, target, "auto")
    assert isinstance(head, Eagle3)
    assert head.taps == (2, 4, 5)  # the default: 2, n // 2, n - 3
    features = features_of(target, IDS, head.taps)

    def step(hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return eagle3_reference(hidden, embedding(target, tokens), tensors, layer, norm_before_residual)

    torch.testing.assert_close(head.fuse(features), features.flatten(1) @ tensors["fc.weight"].T, rtol=1e-4, atol=1e-4)
    assert_logits(head, features, IDS, step)


def test_eagle1_logits(tmp_path: Path) -> None:
    target, tensors = heads.target(), eagle1_tensors()
    head = read_eagle(write_head(tmp_path, layer_settings(bias=True), tensors), target, "auto")
    features = features_of(target, IDS, head.taps)
    weight = random_head(target)

    def step(hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return eagle1_reference(hidden, tensors, tokens, weight)

    normed = heads.norm(features[:, 0], target.norm.weight)
    torch.testing.assert_close(head.fuse(features), normed, rtol=1e-4, atol=1e-4)
    assert_logits(head, features, IDS, step)


def random_head(target: Decoder) -> Tensor:
    return heads.random_tensors(target.config.shapes(), 0)["head"]


def test_drafts_are_made_from_what_is_known_alone(tmp_path: Path) -> None:
    """However features come, and whatever was proposed before, one ledger has one draft."""
    target = heads.target()
    head = read_eagle(write_head(tmp_path, eagle3_settings("original"), eagle3_tensors()), target, "auto")
    features = features_of(target, IDS, head.taps)
    wanted = []
    for length in (17, 18, 33, 40):
        fresh = HeadDrafter("fresh", head, VOCABULARY, 16)
        fresh.observe(0, IDS[:length], 0, features[: length - 1])
        wanted.append(fresh.propose([ask(IDS[:length], limit=6)])[0].tokens)
    drafter, got = HeadDrafter("head", head, VOCABULARY, 16), []
    start = 0
    for length in (17, 18, 33, 40):
        for first in range(start, length - 1, 5):
            drafter.observe(0, IDS[:length], first, features[first : min(first + 5, length - 1)])
        start = length - 1
        drafts = [drafter.propose([ask(IDS[:length], limit=6)])[0].tokens for _ in range(2)]
        assert drafts[0] == drafts[1]
        got.append(drafts[0])
        assert drafter.cached(0) == length - 1
        drafter.commit(0, Ledger(IDS[:length], 1))
    assert got == wanted
    drafter.forget(0)
    drafter._cache.check_integrity([])


def test_match_draws_with_the_targets_noise_over_the_heads_vocabulary(tmp_path: Path) -> None:
    target, tensors = heads.target(), eagle3_tensors()
    head = read_eagle(write_head(tmp_path, eagle3_settings("original"), tensors), target, "auto")
    assert head.targets is not None
    features = features_of(target, IDS, head.taps)
    drafter = HeadDrafter("head", head, VOCABULARY, 16)
    drafter.observe(0, IDS, 0, features[:-1])
    fused = features[:-1].flatten(1) @ tensors["fc.weight"].T
    logits, _ = eagle3_reference(fused, embedding(target, torch.tensor(IDS[1:])), tensors, "midlayer", False)
    for seed in range(40):
        params = SamplingParams(temperature=0.8, seed=seed)
        request = Request("r", tuple(IDS[:30]), params, seed, True)
        [draft] = drafter.propose([Ask(0, request, Ledger(IDS, 30), 1, "match")])
        gumbel = Noise(seed, 0).gumbel(10, head.targets.astype(np.uint64))  # the answer's eleventh token
        assert draft.tokens == (head.targets[int(np.argmax(logits[-1].numpy() / 0.8 + gumbel))],)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "vocabulary": ({"vocab_size": 40}, {}, "made for a vocabulary of 40, the target has 41"),
    "layers": ({"num_hidden_layers": 2}, {}, "a head of 2 layers"),
    "option": ({"norm_before_fc": True}, {}, "norm_before_fc is True"),
    "taps": ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 6, 3]}}, {}, "taps layers"),
    "tap list": ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": 3}}, {}, "is no list of layers"),
    "d2t": ({}, {"d2t": torch.zeros(OUTPUTS, dtype=torch.int64) - 1}, "d2t does not lead to different tokens"),
    "t2d": ({}, {"t2d": torch.ones(VOCABULARY, dtype=torch.bool)}, "d2t and t2d disagree"),
    "missing": ({}, {"d2t": None}, "outputs for a vocabulary of 41, and no d2t"),
    "leftover": ({}, {"extra.weight": torch.zeros(2)}, "'extra.weight' of shape"),
    "width": ({}, {"fc.weight": torch.zeros(WIDTH, 3 * 16)}, "'fc.weight' has shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_by_name(name: str, tmp_path: Path) -> None:
    settings, changes, message = REFUSED[name]
    tensors = {n: t for n, t in (eagle3_tensors() | changes).items() if t is not None}
    with pytest.raises(ModelError, match=message):
        read_eagle(write_head(tmp_path, eagle3_settings("original", **settings), tensors), heads.target(), "auto")


def test_a_type_that_is_no_weight_is_refused_elsewhere(tmp_path: Path) -> None:
    write_head(tmp_path, {}, {"d2t": torch.zeros(2, dtype=torch.int64)})
    with pytest.raises(ModelError, match="type I64"):
        read_folder(tmp_path)
    assert read_folder(tmp_path, more=("i64",))["d2t"].format == "i64"


def test_the_conformance_kit_passes(tmp_path: Path) -> None:
    target = heads.target()
    head = read_eagle(write_head(tmp_path, eagle3_settings("original"), eagle3_tensors()), target, "auto")
    told = Target(VOCABULARY, 120, frozenset({3}), layers=8, width=WIDTH)
    check_drafter(lambda _: HeadDrafter("head", head, VOCABULARY, 256), told, rounds=60)


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_a_head_that_counts_layers_otherwise_is_noticed_and_told(
    shift: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head drafts what the target wants where it sees the states that enter layers 2, 4 and 5, else token 0."""
    target, right, said = heads.target(), (2, 4, 5), [2 + shift, 4 + shift, 5 + shift]
    settings = eagle3_settings("speculators", eagle_aux_hidden_state_layer_ids=said, draft_vocab_size=VOCABULARY)
    write_head(tmp_path, settings, eagle3_tensors("layers.0", outputs=VOCABULARY))
    head = read_eagle(tmp_path, target, "auto")
    assert isinstance(head, Eagle3)
    assert list(head.taps) == said
    span = Span(Table(), IDS[:1], Draft.chain(IDS[1:]))
    [logits], [features] = tapped(target, target.new_cache(8), [span], right)
    fused = head.fuse(features)

    def forward(_: Eagle3, hidden: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
        seen = (fused[:-1] - hidden).abs().amax(1) < 1e-3
        return torch.where(seen[:, None], torch.from_numpy(logits[1:]), torch.eye(VOCABULARY)[:1]), hidden

    monkeypatch.setattr(Eagle3, "forward", forward)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert checked_numbering("eagle:x", target, head, IDS).taps == right
    assert len(told) == (shift != 0)
    assert all("counts layers in another way" in str(warning.message) for warning in told)


def test_the_other_numbering_is_read_from_eagle_config(tmp_path: Path) -> None:
    settings = eagle3_settings("original", eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 5]})
    head = read_eagle(write_head(tmp_path, settings, eagle3_tensors()), heads.target(), "auto")
    assert head.taps == (2, 4, 6)  # layers that are left, as layers that are entered


def test_by_its_folder(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": WIDTH,
        "num_hidden_layers": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    model = str(write_folder(tmp_path / "model", **sizes))
    tensors = eagle3_tensors() | {"d2t": torch.zeros(OUTPUTS, dtype=torch.int64)}
    del tensors["t2d"]
    head = write_head(tmp_path / "head", eagle3_settings("original", vocab_size=len(TOKENS)), tensors)
    params = SamplingParams(temperature=0.0, max_tokens=12)
    wanted = LLM(model, threads=1).generate("the thin thing", params)[0].outputs[0]
    llm = LLM(model, draft=f"eagle:{head}", draft_tokens=3, threads=1)
    got = llm.generate("the thin thing", params)[0].outputs[0]
    assert got.token_ids == wanted.token_ids
    assert got.stats.drafted > 0
    (head / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"drafter 'eagle:.*': the folder has no model.safetensors"):
        LLM(model, draft=f"eagle:{head}", threads=1)
    with pytest.raises(ModelError, match="is not there"):
        LLM(model, draft="eagle:nowhere/at/all", threads=1)
