"""Records the traces that the page steps through: `python -m sooner.lab.record [--check]`.

Two are of word models written down here, which run through the real engine: the classic example, prefix "I", draft
"like green tea". The others are of SmolLM2. On the C++ kernels the tokens are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sooner.cache.paged import pages_for
from sooner.draft.model import ModelDrafter
from sooner.engine.engine import Engine
from sooner.kernels import cpu
from sooner.kernels.cpu import CpuKernels
from sooner.kernels.formats import store
from sooner.kernels.reference import TorchKernels
from sooner.lab.chain import Pair, moody_pair, published_pair
from sooner.lab.pages import PAGE
from sooner.lab.wrong import typical_errors
from sooner.llm import LLM
from sooner.models.build import build_decoder
from sooner.models.config import Attention, ModelConfig
from sooner.models.decoder import Decoder
from sooner.models.rope import plain_rope
from sooner.sampling.road import F64
from sooner.types import Logprob, Request, RoundRecord, Rule, SamplingParams, Speculation

DATA = PAGE / "data"
WORDS = ("<start>", "I", " like", " green", " tea", " black", " coffee", ".", "<end>")
END = WORDS.index("<end>")
CONTEXT = 16
DRAFTED = 3

# What follows each word, in percent; what is not named is impossible.
TARGET = {
    "<start>": {"I": 100},
    "I": {" like": 90, " green": 10},
    " like": {" black": 60, " green": 30, " coffee": 10},
    " green": {" tea": 95, " coffee": 5},
    " tea": {".": 85, " black": 15},
    " black": {" tea": 70, " coffee": 30},
    " coffee": {".": 100},
    ".": {"<end>": 100},
    "<end>": {"<end>": 100},
}
DRAFT = TARGET | {
    "I": {" like": 80, " green": 20},
    " like": {" green": 60, " black": 30, " coffee": 10},
    " black": {" tea": 60, " coffee": 40},
}


def table(rows: Mapping[str, Mapping[str, int]]) -> F64:
    """[V, V]: row t is the law of the word after word t."""
    return np.array([[rows[before].get(word, 0) / 100 for word in WORDS] for before in WORDS])


def word_decoder(law: F64) -> Decoder:
    """A decoder whose logits are log law[last word]: one-hot embeddings, an empty layer, the table as head."""
    size = len(WORDS)
    config = ModelConfig(
        architecture="llama", attention=(Attention(plain_rope(10000.0, 16)),), hidden=size, heads=1, kv_heads=1,
        head_size=16, mlp=size, vocabulary=size, context=CONTEXT, norm_eps=0.0, tied=False, eos=frozenset({END}),
    )  # fmt: skip
    logits = np.log(np.maximum(law, 1e-30)).T  # [next, last]; e^-69 beside a probability is 0 in float64
    tensors = {name: store(torch.zeros(shape)) for name, shape in config.shapes().items()}
    tensors["embed"] = store(torch.eye(size))
    tensors["norm"] = store(torch.full((size,), size**-0.5))  # the norm of a one-hot row is that row times sqrt(size)
    tensors["head"] = store(torch.tensor(logits, dtype=torch.float32))
    return build_decoder(config, tensors, TorchKernels() if cpu.unavailable() else CpuKernels(1))


def words(params: SamplingParams, rule: Rule) -> dict[str, Any]:
    """The word models' answer to "<start>", with what p and q say at each row that was looked at.

    The pass that reads the prompt drafts nothing and gives "I"; the round after it is the classic one.
    """
    laws = table(TARGET), table(DRAFT)
    drafter = ModelDrafter("model", word_decoder(laws[1]), len(WORDS), pages_for(CONTEXT))
    records: list[RoundRecord] = []
    engine = Engine(word_decoder(laws[0]), {"model": drafter}, cache_tokens=CONTEXT, trace=records.append)
    speculation = Speculation(("model",), DRAFTED, rule)
    engine.add(
        Request("words", (0,), params, params.seed or 0, True, 0, speculation, frozenset({END}), max_tokens=CONTEXT - 1)
    )
    reason = None
    while engine.busy:
        for progress in engine.step():
            reason = progress.finish_reason or reason
    rounds = [round_of(record, WORDS.__getitem__) for record in records]
    for record, one in zip(records, rounds):
        lasts = [last_before(record, records), *record.committed[:-1]]
        one["laws"] = [{"p": laws[0][last].tolist(), "q": laws[1][last].tolist()} for last in lasts]
    return {"prompt": pieces([0], WORDS.__getitem__), "rounds": rounds, "finish": reason, "words": list(WORDS)}


def last_before(record: RoundRecord, records: Sequence[RoundRecord]) -> int:
    """The last token of the ledger before a round."""
    ledger = [0, *(token for one in records for token in one.committed)]
    return ledger[record.start - 1]


def answer(llm: LLM, prompt: str, params: SamplingParams) -> dict[str, Any]:
    """SmolLM2's answer, with the target's three likeliest tokens at each place."""
    records: list[RoundRecord] = []
    llm.engine.trace = records.append
    ids = llm.chat_prompt([{"role": "user", "content": prompt}])
    output = llm.generate([ids], params)[0]
    text = single(llm)
    rounds, at = [round_of(record, text) for record in records], 0
    for one in rounds:
        scores = output.outputs[0].logprobs[at : at + len(one["committed"])]
        one["top"] = [likeliest(score, text) for score in scores]
        at += len(one["committed"])
    return {"prompt": pieces(ids, text), "rounds": rounds, "finish": output.finish_reason}


def single(llm: LLM) -> Callable[[int], str]:
    return lambda token: llm.tokenizer.decode([token], skip_special=False)


def round_of(record: RoundRecord, text: Callable[[int], str]) -> dict[str, Any]:
    """What the page shows of a round: nothing that depends on the machine."""
    return {
        "start": record.start,
        "drafter": record.drafter,
        "rule": record.rule,
        "draft": pieces(record.draft, text),
        "accepted": record.accepted,
        "committed": pieces(record.committed, text),
        "kind": record.kind,
    }


def pieces(tokens: Sequence[int], text: Callable[[int], str]) -> list[list[int | str]]:
    return [[token, text(token)] for token in tokens]


def likeliest(score: Logprob, text: Callable[[int], str]) -> list[list[str | float]]:
    """Probabilities to three digits: the rest depends on how a machine's log rounds."""
    return [[text(token), round(math.exp(value), 3)] for token, value in score.top]


CHAT = "What is the difference between a lake and a pond? Answer in three short sentences."
EDIT = (
    "Rename the variable tmp to celsius and return the code:\n\n"
    "def to_fahrenheit(tmp):\n    return tmp * 9 / 5 + 32\n\ndef is_cold(tmp):\n    return tmp < 10\n"
)
GREEDY = SamplingParams(temperature=0.0, max_tokens=48, logprobs=3)
SAMPLED = SamplingParams(temperature=0.7, top_p=0.95, seed=7, max_tokens=48, logprobs=3)


def record() -> list[dict[str, Any]]:
    """All traces, in the order of the page."""
    llm = LLM("smollm2", draft="suffix", draft_tokens=4, max_context=512, max_sequences=1, prefix_cache=False)
    seeded = SamplingParams(temperature=1.0, seed=SEED)
    made = [
        ("words-greedy", "Words, greedy: the draft likes green tea, the target black", words(GREEDY_WORDS, "match")),
        ("words-sampled", "Words, sampled: p, q and the correction from the residual", words(seeded, "rejection")),
        ("chat-greedy", "SmolLM2, a chat, greedy", answer(llm, CHAT, GREEDY)),
        ("chat-sampled", "SmolLM2, a chat, sampled with a seed", answer(llm, CHAT, SAMPLED)),
        ("edit-greedy", "SmolLM2, an edit, greedy", answer(llm, EDIT, GREEDY)),
        ("edit-sampled", "SmolLM2, an edit, sampled with a seed", answer(llm, EDIT, SAMPLED)),
    ]
    return [{"key": key, "title": title, **trace} for key, title, trace in made]


GREEDY_WORDS = SamplingParams(temperature=0.0)
SEED = 7  # of a round in which "green" is rejected and the residual gives "black"


def pairs() -> dict[str, Any]:
    """The pairs of matrices that the page needs from here, and how wrong each wrong rule typically is."""

    def rows(pair: Pair) -> dict[str, Any]:
        return {"P": pair.P.tolist(), "Q": pair.Q.tolist()}

    typical = {key: round(value, 3) for key, value in typical_errors().items()}
    return {"published": rows(published_pair()), "moody": rows(moody_pair()), "typical_errors": typical}


def render(data: Any) -> str:
    """JSON with a line for each entry of the outermost list, so that differences can be read."""
    if isinstance(data, list):
        return "[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in data) + "\n]\n"
    return json.dumps(data, ensure_ascii=False) + "\n"


def agree(kept: Any, now: Any) -> bool:
    """Whether both say the same, numbers to twelve digits: the last ones of an exp depend on the processor."""
    if isinstance(kept, dict) and isinstance(now, dict):
        return kept.keys() == now.keys() and all(agree(kept[key], now[key]) for key in kept)
    if isinstance(kept, list) and isinstance(now, list):
        return len(kept) == len(now) and all(map(agree, kept, now))
    if isinstance(kept, float) and isinstance(now, float):
        return math.isclose(kept, now, rel_tol=1e-12, abs_tol=1e-15)
    return bool(kept == now)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record the traces of the lab's page.")
    parser.add_argument("--check", action="store_true", help="compare with what the page holds, write nothing")
    check = parser.parse_args(arguments).check
    wrong = 0
    for name, data in (("traces", record()), ("pairs", pairs())):
        path, text = DATA / f"{name}.json", render(data)
        if check:
            wrong += not agree(json.loads(path.read_text(encoding="utf-8")), json.loads(text))
            print(f"{path.name}: {'as the engine says' if not wrong else 'not what the engine says; record it anew'}")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}, {len(text):,} bytes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
