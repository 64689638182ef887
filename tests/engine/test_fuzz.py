"""Random drafts, settings, stop rules and aborts against the plain oracle, in whatever order hypothesis thinks of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from sooner.draft.eagle_files import read_eagle
from sooner.draft.heads import Head, HeadDrafter
from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Ask, Drafter, branches
from sooner.engine.engine import Engine
from sooner.types import Request, Rule, SamplingParams, Speculation
from tests.support.drafters import SamplingDrafter, Stateless
from tests.support.engines import VOCABULARY, Answer, engine, request, run, tiny_decoder
from tests.support.heads import eagle1_tensors, layer_settings, write_head

ROUNDS = 2_000
PAGES = 7  # for up to six requests of up to three pages each: some are preempted
EOS = 7
TARGET = tiny_decoder(layers=1)

tokens = st.integers(0, VOCABULARY - 1)
options = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 0.0, 0.7, 1.5]), "seed": st.integers(0, 2**64 - 1)},
    optional={
        "top_k": st.integers(1, 6),
        "top_p": st.sampled_from([0.3, 0.9]),
        "min_p": st.sampled_from([0.05, 0.3]),
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "presence_penalty": st.sampled_from([-1.0, 0.5]),
        "frequency_penalty": st.sampled_from([-2.0, 2.0]),
        "logit_bias": st.dictionaries(tokens, st.sampled_from([-100.0, -2.0, 3.0]), max_size=3),
        "stop_token_ids": st.lists(tokens, max_size=3),
        "stop": st.lists(st.text("abcdefgh", min_size=1, max_size=2), max_size=3),
        "include_stop_str_in_output": st.booleans(),
        "ignore_eos": st.booleans(),
        "min_tokens": st.integers(0, 6),
    },
)


@cache
def head() -> Head:
    """An EAGLE-1 head with random weights."""
    with TemporaryDirectory() as folder:
        return read_eagle(write_head(Path(folder), layer_settings(), eagle1_tensors()), TARGET, "auto")


class Letters:
    """Token 0 is "a", 1 is "b", and so on."""

    def push(self, token: int) -> str:
        return chr(97 + token)

    def flush(self) -> str:
        return ""


@cache
def oracle() -> Engine:
    return engine(None, TARGET, cache_tokens=64, prefix_cache=False, detokenizer=Letters)[0]


class Guesser(Stateless):
    """Knows the answers; now right, now wrong, now short, now silent, as the ledger's length has it."""

    def __init__(self) -> None:
        self.answers: dict[str, Sequence[int]] = {}

    def tokens(self, ask: Ask) -> Sequence[int]:
        rng = random.Random(f"{ask.request.seed} {ask.ledger.tokens}")
        known = self.answers[ask.request.id][ask.ledger.output_length :]
        right = list(known[: rng.randint(0, ask.limit)])
        return [token if rng.random() < 0.8 else rng.randrange(VOCABULARY) for token in right]


class Fuzz(RuleBasedStateMachine):
    rounds = 0
    finished = 0
    ids = count()

    def __init__(self) -> None:
        super().__init__()
        self.guesser = Guesser()
        self.head = HeadDrafter("head", head(), VOCABULARY, PAGES)  # it never needs more pages than the target
        drafters: dict[str, Drafter] = {
            "guesser": self.guesser,
            "model": ModelDrafter("model", tiny_decoder(9, 1), VOCABULARY, 2 * PAGES),
            "target": ModelDrafter("target", TARGET, VOCABULARY, 2 * PAGES),
            "head": self.head,
            "suffix": load_lookup("suffix"),
            "ngram": load_lookup("ngram"),
            "sampling": SamplingDrafter(VOCABULARY),
        }
        self.machine, self.records = engine(
            drafters, TARGET, cache_tokens=16 * PAGES, max_rows=24, max_sequences=4, detokenizer=Letters
        )
        self.wanted: dict[str, Answer] = {}
        self.got: dict[str, Answer] = {}

    @precondition(lambda self: len(self.machine._sequences) < 6)
    @rule(
        prompt=st.lists(tokens, min_size=1, max_size=24),
        chosen=options,
        length=st.integers(0, 16),
        drafter=st.sampled_from(["guesser", "guesser", "model", "target", "head", "suffix", "ngram", "sampling"]),
        k=st.integers(0, 8),
        verify=st.sampled_from(["match", "rejection", "block"]),
        sample=st.integers(0, 3),
        width=st.integers(1, 3),
    )
    def add(
        self,
        prompt: list[int],
        chosen: dict[str, Any],
        length: int,
        drafter: str,
        k: int,
        verify: Rule,
        sample: int,
        width: int,
    ) -> None:
        chosen["min_tokens"] = min(chosen.get("min_tokens", 0), length)
        params = SamplingParams(max_tokens=length, **chosen)
        how: Rule = verify if params.greedy else "match"  # the other rules keep a law, not the tokens of a seed
        trees = how != "block" and branches(self.machine.parts.drafters[drafter])
        one = request(prompt, params, drafter, k, how, width if trees else 1, sample=sample, eos=frozenset({EOS}))
        self.wanted[one.id] = self.truth(one)
        self.guesser.answers[one.id] = self.wanted[one.id].tokens
        self.got[one.id] = Answer()
        self.machine.add(one)

    def truth(self, one: Request) -> Answer:
        bare = replace(one, id=f"plain-{next(self.ids)}", speculation=Speculation(rule=one.speculation.rule))
        return run(oracle(), [bare])[0]

    @precondition(lambda self: self.machine.busy)
    @rule(times=st.integers(1, 6))
    def step(self, times: int) -> None:
        for _ in range(times):
            for progress in self.machine.step():
                answer = self.got[progress.request_id]
                answer.pieces += progress.pieces
                answer.tokens += [piece.token for piece in progress.pieces]
                answer.text += "".join(piece.text for piece in progress.pieces)
                answer.reason, answer.stats, answer.error = progress.finish_reason, progress.stats, progress.error
                self.compare(progress.request_id)

    def compare(self, name: str) -> None:
        """What came so far is how plain decoding begins; what has ended is all of it."""
        got, wanted = self.got[name], self.wanted[name]
        assert got.tokens == wanted.tokens[: len(got.tokens)]
        assert not got.stats.drafter_error
        if got.reason:
            assert (got.tokens, got.text, got.reason) == (wanted.tokens, wanted.text, wanted.reason)
            assert got.stats.output_tokens == len(got.tokens)
            Fuzz.finished += 1

    @precondition(lambda self: self.machine.busy)
    @rule(which=st.integers(0, 5))
    def abort(self, which: int) -> None:
        names = list(self.machine._sequences)
        self.machine.abort(names[which % len(names)])

    @invariant()
    def cache_is_whole(self) -> None:
        scheduler = self.machine.scheduler
        self.machine.parts.cache.check_integrity([s.table for s in [*scheduler.running, *scheduler.waiting]])
        self.head._cache.check_integrity([state.table for state in self.head._states.values()])

    def teardown(self) -> None:
        while self.machine.busy:
            self.step(1)
        cache = self.machine.parts.cache
        assert cache.free_pages == cache.pages
        assert not any(
            self.machine.parts.drafters[name].cached(key) for name in ("model", "target", "head") for key in range(99)
        )
        Fuzz.rounds += len(self.records)


@pytest.mark.slow
def test_random_drafts_aborts_stop_rules_and_settings_give_plain_answers() -> None:
    Fuzz.rounds = Fuzz.finished = 0
    how = settings(
        max_examples=56,
        stateful_step_count=50,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(Fuzz, settings=how)
    print(Fuzz.rounds, Fuzz.finished)
    assert Fuzz.rounds >= ROUNDS, Fuzz.rounds
    assert Fuzz.finished > 100
