"""The target answers the prompts itself, and invents more of them from its own chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sooner.errors import InputError
from sooner.llm import LLM
from sooner.train.store import Answer, read_answers, write_answers
from sooner.types import SamplingParams

TEMPERATURES = (0.0, 0.8)  # of answers, by turns: a draft serves both
IN_FLIGHT = 64  # answers in progress at once
KEPT_EVERY = 256  # answers between two writes: at their ends places stay empty
MARK = "7f3e9a"


def invent(llm: LLM, count: int, max_tokens: int, seed: int) -> list[str]:
    """At most `count` different user messages, sampled after the chat template's opening."""
    text = llm.tokenizer.chat([{"role": "user", "content": MARK}])
    if MARK not in text:
        raise InputError("the model's chat template changes what the user says; give --prompts and leave --invent out")
    opening = llm.tokenizer.encode(text[: text.index(MARK)], add_special=False)
    params = [
        SamplingParams(temperature=1.0, top_p=0.98, max_tokens=max_tokens, seed=seed * count + i) for i in range(count)
    ]
    outputs = [output.outputs[0] for output in llm.generate([opening] * count, params)]
    whole = [output.text.strip() for output in outputs if output.finish_reason == "stop"]
    return [text for text in dict.fromkeys(whole) if text]


def answer(
    llm: LLM, prompts: Sequence[list[int]], max_tokens: int, seed: int, path: Path, report: Callable[[int, int], None]
) -> list[Answer]:
    """Answers all prompts, those at the front of `path` excepted, and keeps them there. report: done, of how many."""
    answers = read_answers(path)
    while len(answers) < len(prompts):
        report(len(answers), len(prompts))
        places = range(len(answers), min(len(answers) + KEPT_EVERY, len(prompts)))
        params = [
            SamplingParams(temperature=TEMPERATURES[i % len(TEMPERATURES)], max_tokens=max_tokens, seed=seed + i)
            for i in places
        ]
        outputs = llm.generate([prompts[i] for i in places], params)
        answers += [
            Answer(tuple(output.prompt_token_ids), tuple(output.outputs[0].token_ids), param.temperature)
            for output, param in zip(outputs, params)
        ]
        write_answers(path, answers)
    report(len(answers), len(prompts))
    return answers
