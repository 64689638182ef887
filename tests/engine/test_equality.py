"""`match` equals plain decoding token for token, whatever drafts, on a tiny model whose every token matters."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Drafter
from sooner.types import SamplingParams
from tests.support.drafters import ConstantDrafter, OffByOneDrafter, OracleDrafter, RandomDrafter
from tests.support.engines import VOCABULARY, engine, plain, request, run, tiny_decoder

SETTINGS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=24),
    "sampled": SamplingParams(temperature=0.8, seed=5, top_p=0.9, max_tokens=24),
    "penalties": SamplingParams(
        seed=6, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.6, max_tokens=24
    ),
    "narrow": SamplingParams(seed=7, top_k=5, min_p=0.05, logit_bias={3: 2.0}, min_tokens=6, max_tokens=24),
}


def all_drafters() -> dict[str, Drafter]:
    """Every drafter that Sooner has, and adversarial ones."""
    target = tiny_decoder()
    models = {
        "model:small": tiny_decoder(seed=9, layers=1),
        "model:self/1": target.first_layers(1),
        "model:same": target,
        "model:short": tiny_decoder(seed=9, layers=1, context=32),
        "model:fewer tokens": tiny_decoder(seed=9, layers=1, vocabulary=VOCABULARY - 9),
        "model:padded": tiny_decoder(seed=9, layers=1, vocabulary=VOCABULARY + 9),
    }
    drafters: dict[str, Drafter] = {name: ModelDrafter(name, d, VOCABULARY, 64) for name, d in models.items()}
    drafters |= {name: load_lookup(name) for name in ("ngram", "suffix")}
    drafters |= {
        "random": RandomDrafter(VOCABULARY),
        "constant": ConstantDrafter(7),
        "off by one": OffByOneDrafter(VOCABULARY),
    }
    return drafters


@pytest.mark.parametrize("name", sorted(all_drafters()))
@pytest.mark.parametrize("kind", SETTINGS)
def test_every_drafter_gives_plain_tokens(name: str, kind: str) -> None:
    machine, records = engine(all_drafters())
    prompts = [[1, 2, 3, 1, 2], [5], list(range(40)), [5, 6, 7, 8, 9, 10, 11, 7, 8]]
    for prompt in prompts:
        one = request(prompt, SETTINGS[kind], name)
        assert run(machine, [one])[0].tokens == plain(one).tokens
    assert name == "model:short" or any(record.draft for record in records) or name in ("ngram", "suffix")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40), min_size=1, max_size=6),
    names=st.lists(st.sampled_from(sorted(all_drafters())), min_size=6, max_size=6),
    lengths=st.lists(st.integers(0, 8), min_size=6, max_size=6),
    kinds=st.lists(st.sampled_from(sorted(SETTINGS)), min_size=6, max_size=6),
)
def test_ragged_batches_give_each_its_plain_tokens(
    prompts: list[list[int]], names: list[str], lengths: list[int], kinds: list[str]
) -> None:
    requests = [
        request(prompt, SETTINGS[kind], name, length)
        for prompt, name, length, kind in zip(prompts, names, lengths, kinds)
    ]
    machine, _ = engine(all_drafters(), max_rows=48)
    together = run(machine, requests)
    assert [a.tokens for a in together] == [plain(r).tokens for r in requests]


def test_draft_equals_target_accepts_everything() -> None:
    """CASES.md 16: with the target itself as the draft, n tokens after the prefill take ceil(n / (k + 1)) passes."""
    for rule, params in (("match", SETTINGS["greedy"]), ("match", SETTINGS["sampled"]), ("block", SETTINGS["sampled"])):
        for k in (1, 3, 4, 7):
            machine, records = engine({"model:same": ModelDrafter("model:same", tiny_decoder(), VOCABULARY, 64)})
            [done] = run(machine, [request([3, 1, 4], params, "model:same", k, rule)])  # type: ignore[arg-type]
            rounds = [r for r in records if r.reason != "prefill"]
            assert len(rounds) == -(-(len(done.tokens) - 1) // (k + 1)), (rule, k)
            assert done.stats.acceptance_rate == 1.0


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_an_oracle_accepts_everything_at_every_batch_shape(batch: int) -> None:
    prompts = [list(range(2, 3 + 5 * i)) for i in range(batch)]
    truths = [plain(request(prompt)).tokens for prompt in prompts]
    oracle = OracleDrafter({tuple(p): t for p, t in zip(prompts, truths)})
    machine, records = engine({"oracle": oracle})
    run(machine, requests := [request(p, drafter="oracle", draft_tokens=5) for p in prompts])
    for one in requests:
        mine = [r for r in records if r.request_id == one.id and r.reason != "prefill"]
        assert len(mine) == -(-23 // 6)
        assert all(r.accepted == len(r.draft) for r in mine)


def test_acceptance_does_not_decay_along_a_long_generation() -> None:
    params = SamplingParams(temperature=0.0, max_tokens=200)
    machine, records = engine({"m": ModelDrafter("m", tiny_decoder(), VOCABULARY, 64)})
    run(machine, [request([1, 2], params, "m", 4)])
    assert {r.accepted - len(r.draft) for r in records} == {0}


def test_sampling_has_entropy_and_seeds_decide() -> None:
    """CASES.md 14 and 15."""

    def tokens(seed: int | None, sample: int = 0, extra: Sequence[int] = ()) -> list[int]:
        params = SamplingParams(temperature=1.0, seed=seed, max_tokens=16)
        machine, _ = engine({"m": ModelDrafter("m", tiny_decoder(9, 1), VOCABULARY, 64)})
        one = request([1, 2, 3], params, "m", sample=sample)
        others = [request([4, 5], params, "m") for _ in extra]
        return run(machine, [one, *others])[0].tokens

    assert len({tuple(tokens(seed)) for seed in range(8)}) == 8
    assert tokens(3) == tokens(3, extra=range(7))
    assert tokens(3) != tokens(3, sample=1)
