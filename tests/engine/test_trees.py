"""Trees through the engine: `match` equals plain decoding, whatever branches; caches stay whole (VERIFICATION.md)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.cache.paged import Table
from sooner.certify.tiny import tiny_decoder as exact_decoder
from sooner.draft.heads import HeadDrafter
from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.draft.ngram import NgramDrafter
from sooner.draft.protocol import Ask, Drafter
from sooner.draft.suffix import SuffixDrafter
from sooner.errors import InputError
from sooner.models.decoder import Decoder
from sooner.models.runner import Span, forward
from sooner.testing import TARGET, check_drafter
from sooner.types import Draft, Ledger, SamplingParams, Speculation
from tests.engine.test_equality import SETTINGS
from tests.engine.test_heads import eagle3
from tests.support.drafters import BushDrafter
from tests.support.engines import VOCABULARY, engine, plain, request, run, tiny_decoder
from tests.support.heads import build_target, random_tensors, target_config
from tests.support.heads import target as heads_target
from tests.support.structures import FORMS, structured

MODELS = ("model:small", "model:same", "model:short", "model:fewer tokens")
NAMES = (*MODELS, "suffix", "ngram", "bush")


def drafters() -> dict[str, Drafter]:
    decoders = {
        "model:small": tiny_decoder(seed=9, layers=1),
        "model:same": tiny_decoder(),
        "model:short": tiny_decoder(seed=9, layers=1, context=32),
        "model:fewer tokens": tiny_decoder(seed=9, layers=1, vocabulary=VOCABULARY - 9),
    }
    models = {name: ModelDrafter(name, decoder, VOCABULARY, 64) for name, decoder in decoders.items()}
    lookups: dict[str, Drafter] = {"suffix": SuffixDrafter(min_confidence=0.0), "ngram": NgramDrafter(shortest=1)}
    return models | lookups | {"bush": BushDrafter(VOCABULARY)}


CASES = [(name, kind) for name in NAMES for kind in ("sampled", "penalties")]


@pytest.mark.parametrize(("name", "kind"), [*CASES, *(("model:small", kind) for kind in ("greedy", "narrow"))])
def test_every_tree_gives_plain_tokens(name: str, kind: str) -> None:
    machine, records = engine(drafters())
    for prompt, branches in (([1, 2, 3, 1, 2, 4, 1, 2], 2), ([5], 8)):
        one = request(prompt, SETTINGS[kind], name, 7, branches=branches)
        assert run(machine, [one])[0].tokens == plain(one).tokens
    assert any(record.depth < len(record.draft) for record in records)


@settings(max_examples=6, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40), min_size=1, max_size=6),
    names=st.lists(st.sampled_from(NAMES), min_size=6, max_size=6),
    lengths=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    branches=st.lists(st.integers(1, 4), min_size=6, max_size=6),
    kinds=st.lists(st.sampled_from(sorted(SETTINGS)), min_size=6, max_size=6),
)
def test_ragged_batches_of_trees_and_chains_with_few_pages(
    prompts: list[list[int]], names: list[str], lengths: list[int], branches: list[int], kinds: list[str]
) -> None:
    """Too few pages for all, so that sequences are preempted and resume."""
    requests = [
        request(prompt, SETTINGS[kind], name, length, branches=width)
        for prompt, name, length, width, kind in zip(prompts, names, lengths, branches, kinds)
    ]
    machine, _ = engine(drafters(), max_rows=48, cache_tokens=128)
    assert [a.tokens for a in run(machine, requests)] == [plain(r).tokens for r in requests]


def test_a_kept_path_has_the_bits_of_the_chain() -> None:
    """On the C++ kernels: after a round, what the cache holds and what comes next do not tell that it was a tree."""
    decoder = exact_decoder()
    if not decoder.kernels.exact_rows:
        pytest.skip("needs the C++ kernels")
    prompt, draft = [1, 2, 3, 4, 5], Draft((3, 0, 2, 4, 1, 5), (-1, -1, 1, 1, 3, 4), (None,) * 6)
    path = [1, 3, 4, 5]
    chain = Draft.chain([draft.tokens[node] for node in path])
    held, following, rows = [], [], []
    for proposal, kept in ((draft, path), (chain, list(range(4)))):
        store, table = decoder.new_cache(4), Table()
        [logits] = forward(decoder, store, [Span(table, prompt, proposal)])
        rows.append(logits[[0, *(node + 1 for node in kept)]])
        store.keep(table, len(prompt), kept)
        slots = [table.slot(position) for position in range(table.length)]
        held.append([(layer.keys.transpose(2, 3).flatten(0, 2), layer.values) for layer in store.layers])
        assert (table.length, slots) == (9, list(range(slots[0], slots[0] + 9)))
        following.append(forward(decoder, store, [Span(table, [2])])[0])
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(following[0], following[1])


@pytest.mark.parametrize("branches", [2, 3])
def test_nodes_read_one_by_one_have_the_bits_of_one_pass(branches: int) -> None:
    """A drafter's cache: each row finds its ancestors among the stored ones."""
    decoder = exact_decoder()
    draft = Draft((3, 0, 2, 4), (-1, -1, 0, 1), (None,) * 4)
    store, table = decoder.new_cache(4), Table()
    [whole] = forward(decoder, store, [Span(table, [1, 2, 3], draft)])
    store, table = decoder.new_cache(4), Table()
    rows = [forward(decoder, store, [Span(table, [1, 2, 3])])[0][0]]
    for count in range(1, 5):
        part = Draft(draft.tokens[:count], draft.parents[:count], draft.probs[:count])
        rows.append(forward(decoder, store, [Span(table, (), part, wants=0, stored=count - 1)])[0][0])
    np.testing.assert_allclose(np.stack(rows), whole, atol=0 if decoder.kernels.exact_rows else 1e-4)


@cache
def truth(prompt: tuple[int, ...], kind: str) -> tuple[int, ...]:
    return tuple(plain(request(prompt, SETTINGS[kind])).tokens)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(("k", "branches"), [(6, 2), (9, 3)])
def test_an_oracle_among_decoys_accepts_everything(batch: int, k: int, branches: int) -> None:
    """Of each draft a path is right, three tokens of whole ones, and all of it is kept at every batch shape."""
    prompts = [tuple(range(2, 3 + 5 * i)) for i in range(batch)]
    answers = {prompt: truth(prompt, "greedy") for prompt in prompts}
    machine, records = engine({"bush": BushDrafter(VOCABULARY, answers)})
    run(machine, requests := [request(p, None, "bush", k, branches=branches) for p in prompts])
    for one in requests:
        mine = [r for r in records if r.request_id == one.id and r.reason != "prefill"]
        assert all((r.accepted, r.kind) == (-(-len(r.draft) // branches), "bonus") for r in mine)
        assert sum(len(r.draft) == k for r in mine) >= 4


def test_draft_equals_target_never_corrects() -> None:
    """With the target as the draft the first child is always right: a round ends where the tree ends."""
    for kind in ("greedy", "sampled"):
        machine, records = engine({"m": ModelDrafter("m", tiny_decoder(), VOCABULARY, 64)})
        [done] = run(machine, [request([3, 1, 4], SETTINGS[kind], "m", 6, branches=2)])
        assert {record.kind for record in records} == {"bonus"}
        assert min(r.accepted for r in records if len(r.draft) == 6) >= 1
        assert done.stats.tokens_per_round is not None and done.stats.tokens_per_round > 2.5


@pytest.mark.slow
def test_a_sampled_tree_without_a_seed_is_judged_by_rejection_and_keeps_its_law() -> None:
    """3,000 unseeded answers: the joint law of two tokens is plain sampling's."""
    target = tiny_decoder(layers=1, vocabulary=5)
    params = SamplingParams(temperature=1.0, max_tokens=4)

    def counts(drafter: str | None, samples: int) -> dict[tuple[int, ...], int]:
        machine, records = engine(
            {"m": ModelDrafter("m", tiny_decoder(9, 1, vocabulary=5), 5, 64 * 2)}, target, cache_tokens=64 * 16
        )
        found: dict[tuple[int, ...], int] = {}
        one = [
            request([1, 2], params, drafter, 3, branches=2 if drafter else 1, seed=i, seeded=False)
            for i in range(samples)
        ]
        for answer in run(machine, one):
            words = tuple(answer.tokens[:2])
            found[words] = found.get(words, 0) + 1
        if drafter:
            assert {r.rule for r in records if r.draft} == {"rejection"}
        return found

    a, b = counts("m", 3000), counts(None, 3000)
    cells = sorted({*a, *b})
    chi = sum((a.get(c, 0) - b.get(c, 0)) ** 2 / (a.get(c, 0) + b.get(c, 0)) for c in cells)
    assert chi < len(cells) + 5 * (2 * len(cells)) ** 0.5


@pytest.mark.parametrize("form", sorted(FORMS))
def test_structured_output_is_the_same_with_trees(form: str) -> None:
    for name in ("model:small", "bush"):
        one = structured(form, [1, 2], name, max_tokens=24, temperature=0.7, seed=3)
        tree = structured(form, [1, 2], name, max_tokens=24, temperature=0.7, seed=3)
        object.__setattr__(tree, "speculation", Speculation((name,), 6, "auto", 2))
        machine, _ = engine(drafters())
        assert run(machine, [tree])[0].tokens == plain(one).tokens


def test_log_probabilities_are_those_of_the_rows_that_chose() -> None:
    params = SamplingParams(temperature=0.7, seed=2, logprobs=2, max_tokens=20)
    machine, records = engine(drafters())
    one = request([3, 1, 4], params, "model:same", 8, branches=2)
    pairs = zip(run(machine, [one])[0].pieces, plain(one).pieces, strict=True)
    assert all(a.logprob and b.logprob and abs(a.logprob.logprob - b.logprob.logprob) < 1e-4 for a, b in pairs)
    assert any(tuple(range(-1, len(r.draft) - 1)) != r.parents for r in records if r.accepted > 1)


def test_a_stop_inside_the_kept_path_ends_the_request_there() -> None:
    """CASES.md 1 and 2, on a tree: what follows the stop is neither committed nor counted."""
    whole = plain(request([3, 1, 4], SamplingParams(temperature=0.0, max_tokens=20))).tokens
    params = SamplingParams(temperature=0.0, max_tokens=20, stop_token_ids=(whole[5],))
    machine, _ = engine({"bush": BushDrafter(VOCABULARY, {(3, 1, 4): whole})})
    [done] = run(machine, [request([3, 1, 4], params, "bush", 15, branches=2)])
    assert (done.tokens, done.reason) == (whole[: whole.index(whole[5]) + 1], "stop")
    assert done.stats.accepted == len(done.tokens) - 1


def test_a_cached_prefix_and_a_drafter_that_comes_back_late() -> None:
    machine, _ = engine(drafters())
    prompt = [i * 7 % VOCABULARY for i in range(50)]
    for _ in range(2):
        one = request(prompt, SETTINGS["sampled"], "model:small", 8, branches=3)
        [done] = run(machine, [one])
        assert done.tokens == plain(one).tokens
    assert done.stats.cached_tokens == 48


def test_models_and_suffix_keep_the_contract_with_trees() -> None:
    decoder: Decoder = exact_decoder()
    vocabulary, context = decoder.config.vocabulary, decoder.config.context
    target = replace(TARGET, vocabulary=vocabulary, context=context + 8)
    check_drafter(lambda _: ModelDrafter("m", decoder, vocabulary, 32), target, rounds=60)
    check_drafter(lambda _: SuffixDrafter(min_confidence=0.0), rounds=100)


def test_the_likeliest_paths_of_the_suffix_tree_come_first() -> None:
    """After 1 2 came 3 twice and 4 once: both are offered, the likelier one first, and its continuation before 4's."""
    tokens = [1, 2, 3, 5, 1, 2, 4, 6, 1, 2, 3, 7, 1, 2]
    one = request(tokens)
    ask = Ask(0, one, Ledger(tokens, len(tokens)), 4, "match", branches=2)
    [draft] = SuffixDrafter(min_confidence=0.0).propose([ask])
    assert (draft.tokens[0], draft.parents[0]) == (3, -1)
    assert {draft.tokens[node] for node in draft.children(-1)} == {3, 4}
    assert draft.branches == 2


@pytest.mark.parametrize(
    ("speculation", "message"),
    [
        ({"draft_tokens": "auto", "draft_branches": 2}, "needs a number of draft_tokens"),
        ({"draft_tokens": 4, "draft_branches": 2, "rule": "block"}, "verify 'block' takes chains"),
        ({"draft_tokens": 4, "draft_branches": 0}, "draft_branches is 0, must be between 1 and 16"),
    ],
)
def test_what_does_not_go_together_is_refused(speculation: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Speculation(("suffix",), **speculation)  # type: ignore[arg-type]


def test_a_drafter_that_only_drafts_chains_refuses_branches() -> None:
    machine, _ = engine({"grammar": load_lookup("grammar")})
    with pytest.raises(InputError, match=r"needs a drafter that branches, none of \['grammar'\] does"):
        machine.add(request([1], None, "grammar", 4, branches=2))


def test_heads_draft_trees_on_a_target_that_forgets() -> None:
    """EAGLE-3 in ragged batches; and sliding windows: what a row no longer sees is counted along its own path."""
    config = target_config(4, window=8)
    target = build_target(config, random_tensors(config.shapes(), 0))
    eagle = HeadDrafter("eagle", eagle3(), VOCABULARY, 64)
    model = ModelDrafter("model", target.first_layers(2), VOCABULARY, 64)
    for decoder, drafter in ((heads_target(), eagle), (target, model)):
        machine, records = engine({drafter.name: drafter}, decoder, cache_tokens=512)
        prompts = ([5], list(range(30)), [3, 1, 4, 1, 5], list(range(7, 19)))
        requests = [request(p, SETTINGS["sampled"], drafter.name, 7, branches=1 + i % 3) for i, p in enumerate(prompts)]
        assert [a.tokens for a in run(machine, requests)] == [plain(r, decoder).tokens for r in requests]
        assert any(record.depth < len(record.draft) for record in records)


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_a_trees_first_branches_are_the_chain(kind: str) -> None:
    """Rows that were read one by one beside their cousins say what they say in a chain."""
    decoder = heads_target()
    drafter = ModelDrafter("m", decoder.first_layers(2), VOCABULARY, 64)
    deepest = 0
    for key in range(6):
        tokens = [(7 * i + key * i * i) % VOCABULARY for i in range(9)]
        one = request(tokens, SETTINGS[kind])
        chain, tree = (
            drafter.propose([Ask(2 * key + width, one, Ledger(tokens, len(tokens)), 8, "match", branches=width)])[0]
            for width in (1, 2)
        )
        spine: list[int] = []
        while children := tree.children(spine[-1] if spine else -1):
            spine.append(children[0])
        assert tree.follow(chain.tokens) == spine
        deepest = max(deepest, len(spine))
    assert deepest >= 3
