"""Structured output is valid, and the same whatever is drafted (CASES.md 32)."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLParserLimits, grammar_from

from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Drafter
from sooner.errors import InputError
from sooner.models.structure import Matched, Structures
from sooner.models.tokenizer import TextStream
from sooner.sampling.road import NoTokenError
from sooner.types import SamplingParams, Structured
from tests.support.drafters import ConstantDrafter, OffByOneDrafter, OracleDrafter, RandomDrafter, SamplingDrafter
from tests.support.engines import VOCABULARY, engine, plain, request, run, tiny_decoder
from tests.support.structures import EOS, FORMS, SCHEMA, compiled, structured, structures, tokenizer

SETTINGS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.2, "seed": 5, "top_p": 0.9},
    "penalties": {"temperature": 0.8, "seed": 6, "repetition_penalty": 1.3, "frequency_penalty": 0.6, "top_k": 9},
}
LONG = 200  # enough for any answer to end by itself


def drafters() -> dict[str, Drafter]:
    return {
        "ngram": load_lookup("ngram"),
        "suffix": load_lookup("suffix"),
        "grammar": load_lookup("grammar"),
        "model": ModelDrafter("model", tiny_decoder(9, 1), VOCABULARY, 64),
        "fewer tokens": ModelDrafter("fewer", tiny_decoder(9, 1, vocabulary=VOCABULARY - 9), VOCABULARY, 64),
        "random": RandomDrafter(VOCABULARY),
        "end": ConstantDrafter(EOS),
        "off by one": OffByOneDrafter(VOCABULARY, load_lookup("grammar")),
        "sampling": SamplingDrafter(VOCABULARY),
    }


def check_form(name: str, text: str) -> None:
    if "schema" in name:
        value = json.loads(text)
        assert list(value) == ["abcde", "fag", "hub"]
        assert 0 <= value["abcde"] <= 999 and value["fag"] in ("a", "bad", "cab")
        assert all(isinstance(item, bool) for item in value["hub"])
    elif name == "gbnf":
        assert re.fullmatch(r"\[*(true|false)\]*", text) and text.count("[") == text.count("]")
    elif name == "lark":
        assert re.fullmatch(r"[abcd,\[\]]+", text) and text.count("[") == text.count("]")
    else:
        assert re.fullmatch(FORMS[name].regex or "", text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", SETTINGS)
def test_every_drafter_gives_plain_tokens_of_the_form(form: str, kind: str) -> None:
    machine, records = engine(drafters(), detokenizer=lambda: TextStream(tokenizer()))
    requests = [
        structured(form, [1, 2, 3], name, k, max_tokens=LONG, **SETTINGS[kind])
        for name, k in zip(drafters(), (1, 4, 8, 4, 2, 4, 3, 4, 4))
    ]
    answers = run(machine, requests)
    wanted = plain(requests[0]).tokens
    for one, answer in zip(requests, answers):
        assert answer.tokens == wanted, one.speculation
        assert (answer.reason, answer.stats.drafter_error) == ("stop", "")
        assert answer.tokens[-1] == EOS
        check_form(form, answer.text)
    assert any(record.draft for record in records)


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("form", FORMS)
def test_rules_that_keep_the_law_stay_within_the_form(form: str, rule: str) -> None:
    """Drafts with impossible tokens, and with tokens after the end, in rows that block verification looks at."""
    machine, _ = engine(drafters(), detokenizer=lambda: TextStream(tokenizer()))
    names = ("sampling", "model", "random", "end", "grammar") * 3
    requests = [structured(form, [i, 2], n, rule=rule, temperature=1.0, max_tokens=LONG) for i, n in enumerate(names)]
    for answer in run(machine, requests):
        assert (answer.reason, answer.stats.drafter_error) == ("stop", "")
        check_form(form, answer.text)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(FORMS)),
    st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 40), st.booleans()), min_size=1, max_size=12),
)
def test_what_is_allowed_depends_on_the_output_alone(form: str, walks: list[tuple[int, int, bool]]) -> None:
    """One matcher is asked about outputs in any order, valid or not, and answers like a new one each time."""
    used = compiled(form)
    for seed, length, valid in walks:
        rng, output = np.random.default_rng(seed), list[int]()
        fresh = compiled(form)
        for _ in range(length):
            mask = fresh.allowed(output)
            choices = np.arange(VOCABULARY) if mask is None or not valid else np.flatnonzero(mask)
            output.append(int(rng.choice(choices)))
        assert used.forced(output) == compiled(form).forced(output)
        mine, other = used.allowed(output), compiled(form).allowed(output)
        assert (mine is None) == (other is None)
        assert mine is None or other is None or (mine == other).all()


def test_the_grammar_drafter_proposes_what_has_to_come() -> None:
    one = structured("schema", [1, 2, 3], "grammar", 8)
    machine, records = engine(drafters())
    [done] = run(machine, [one])
    text = tokenizer().decode(done.tokens)
    drafted = [tokenizer().decode(r.draft) for r in records if r.draft]
    assert 'cde":' in drafted[0] or drafted[0].startswith("bcde")
    assert "".join(drafted) in text or all(piece in text for piece in drafted)
    assert done.stats.acceptance_rate is not None and done.stats.acceptance_rate > 0.6
    assert done.stats.rounds < len(plain(one).tokens) * 0.6
    end = structured("gbnf", [1], "grammar")
    [ended] = run(machine, [end])
    assert records[-1].draft[-1] == EOS and ended.reason == "stop"


def test_a_token_without_alternative_is_never_rejected() -> None:
    machine, records = engine(drafters())
    requests = [structured("schema", [i], "grammar", 6, **SETTINGS["sampled"]) for i in range(8)]
    by_id = {one.id: one for one in requests}
    answers = dict(zip(by_id, run(machine, requests)))
    counts: Counter[bool] = Counter()
    for record in records:
        one = by_id[record.request_id]
        output = answers[one.id].tokens[: record.start - len(one.prompt)]
        for i, token in enumerate(record.draft[: record.accepted + 1]):
            mask = compiled("schema").allowed([*output, *record.draft[:i]])
            assert mask is not None and mask[token]
            counts[int(mask.sum()) == 1] += 1
            assert i < record.accepted or mask.sum() > 1
    assert counts[True] > 40


def test_samples_of_one_prompt_have_matchers_of_their_own() -> None:
    machine, _ = engine(drafters())
    samples = [structured("regex", [3, 1], "model", temperature=1.5, seed=4) for _ in range(4)]
    requests = [replace(one, sample=i) for i, one in enumerate(samples)]
    answers = run(machine, requests)
    assert [a.tokens for a in answers] == [plain(r).tokens for r in requests]
    assert len({tuple(a.tokens) for a in answers}) > 1


def test_a_structure_that_cannot_go_on_ends_its_request_alone() -> None:
    limits = LLParserLimits(step_max_items=60, verbose_errors=False)
    grammar = 'start: start start | "a" | "b" | ""'
    start = LLMatcher(structures()._tokens, grammar_from("grammar", grammar), log_level=0, limits=limits)
    params = SamplingParams(
        structured=Structured(grammar=grammar), temperature=0.0, max_tokens=20, logit_bias={EOS: -100}
    )
    hard = Matched(start, VOCABULARY, frozenset({EOS}))
    stuck = request([1], params, "grammar", eos=frozenset({EOS}), structure=hard)
    machine, _ = engine(drafters())
    fine = structured("schema", [1], "model")
    broken, good = run(machine, [stuck, fine])
    assert (broken.reason, len(broken.tokens) > 2) == ("error", True)
    assert broken.error.startswith("the structure cannot be followed: parser error: Too many items (limit 60")
    assert good.tokens == plain(fine).tokens and not good.stats.drafter_error
    assert hard.allowed([]) is not None
    with pytest.raises(NoTokenError):
        hard.allowed(broken.tokens)


def test_options_and_structure_that_exclude_one_another_end_with_a_reason() -> None:
    machine, _ = engine(drafters())
    one = structured("gbnf", [1], "model", min_tokens=30)
    [done] = run(machine, [one])
    assert (done.reason, done.error) == ("error", "the sampling options leave no token")
    assert done.tokens == plain(one).tokens
    check_form("gbnf", tokenizer().decode(done.tokens))
    assert not done.stats.drafter_error


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"json_schema": {"type": "odd"}}, "json_schema .*odd.* cannot be used: Invalid type: odd"),
        ({"json_schema": "{"}, "json_schema '{' cannot be used"),
        ({"json_schema": {"type": "object", "unevaluatedItems": 1}}, 'Unimplemented keys: ."unevaluatedItems"'),
        ({"json_schema": '{"properties":{"a":' * 900 + "{}" + "}}" * 900}, "recursion limit"),
        ({"regex": "(a"}, "regex .*unclosed group"),
        ({"grammar": "start: foo"}, "unknown name"),
        ({"grammar": "((("}, "grammar .*cannot be used"),
        ({"grammar": "root ::= " + "(" * 3000}, "grammar .*cannot be used"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused_at_the_door(form: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        structures().compile(Structured(**form))  # type: ignore[arg-type]
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_other_refusals() -> None:
    with pytest.raises(InputError, match="must have one; known are json_schema, json_object, regex, grammar"):
        Structured()
    with pytest.raises(InputError, match=r"has \['regex', 'grammar'\], must have one"):
        Structured(regex="a", grammar="b")
    with pytest.raises(InputError, match="ignore_eos does not go with structured output"):
        SamplingParams(structured=Structured(json_object=True), ignore_eos=True)
    with pytest.raises(InputError, match="unknown option of structured output schema; known are"):
        SamplingParams.from_dict({"structured": {"schema": {}}})
    with pytest.raises(InputError, match="the model has none"):
        Structures(tokenizer(), VOCABULARY, frozenset())
    with pytest.raises(InputError, match="structured output needs a tokenizer"):
        engine()[0].add(request([1], SamplingParams(structured=FORMS["gbnf"], max_tokens=9)))


def test_mappings_become_structures() -> None:
    params = SamplingParams.from_dict({"structured": {"json_schema": SCHEMA}})
    assert params.structured == Structured(json_schema=SCHEMA)
    assert Structured(json_object=True).source == ("json_schema", '{"type": "object"}')
    assert Structured(json_schema="{}").source == ("json_schema", "{}")


def test_special_tokens_and_padding_are_never_text() -> None:
    padded = Structures(tokenizer(), VOCABULARY + 9, frozenset({EOS})).compile(Structured(regex="(.|\n)*"))
    mask = padded.allowed([10])
    assert mask is not None and mask.shape == (VOCABULARY + 9,)
    assert mask[:VOCABULARY].all() and not mask[VOCABULARY:].any()
    mask = padded.allowed([EOS])
    assert mask is None


def test_an_oracle_is_accepted_whole() -> None:
    one = structured("schema", [4, 4])
    oracle = OracleDrafter({one.prompt: plain(one).tokens})
    machine, records = engine({"oracle": oracle})
    [done] = run(machine, [structured("schema", [4, 4], "oracle", 5)])
    assert done.tokens == plain(one).tokens
    assert all(r.accepted == min(len(r.draft), len(r.committed)) for r in records)
