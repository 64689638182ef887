from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from sooner.bench.workloads import CATEGORIES, load_prompts, select
from sooner.errors import InputError
from sooner.llm import LLM


def write(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    return path


def test_ours_hold_enough_of_every_kind() -> None:
    prompts = load_prompts(None)
    counts = Counter(prompt.category for prompt in prompts)
    assert tuple(counts) == CATEGORIES and min(counts.values()) >= 8
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert len({prompt.messages[0]["content"] for prompt in prompts}) == len(prompts)


@pytest.mark.parametrize(
    ("category", "words"), [("summary", (100, 250)), ("question", (100, 250)), ("edit", (70, 250))]
)
def test_ours_bring_the_text_that_they_are_about(category: str, words: tuple[int, int]) -> None:
    for prompt in select(load_prompts(None), [category], None):
        text = prompt.messages[0]["content"]
        assert words[0] <= len(text.split()) <= words[1], prompt.id
        assert category != "edit" or 15 <= len(text.splitlines()) <= 42, prompt.id


def test_three_kinds_of_lines(tmp_path: Path) -> None:
    turns = {"question_id": 82, "category": "writing", "turns": ["Write.", "Again."]}
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    prompts = load_prompts(write(tmp_path / "p.jsonl", turns, {"prompt": "Count."}, {"messages": chat, "id": "m"}))
    assert [(p.id, p.category) for p in prompts] == [("82", "writing"), ("2", "all"), ("m", "all")]
    assert [m["content"] for p in prompts for m in p.messages] == ["Write.", "Count.", "Be brief.", "Hi"]


@pytest.mark.parametrize(
    "row", [{}, {"prompt": " "}, {"prompt": 3}, {"messages": []}, {"messages": ["hi"]}, {"turns": [1]}, []]
)
def test_a_line_without_a_prompt_is_refused_by_its_number(tmp_path: Path, row: object) -> None:
    with pytest.raises(InputError, match="line 2"):
        load_prompts(write(tmp_path / "p.jsonl", {"prompt": "fine"}, row))


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{", encoding="utf-8")
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    for name, message in (("missing.jsonl", "cannot read"), ("bad.jsonl", "not JSON"), ("empty.jsonl", "no prompts")):
        with pytest.raises(InputError, match=message):
            load_prompts(tmp_path / name)


def test_select_takes_the_first_of_each_and_refuses_what_is_not_there() -> None:
    prompts = load_prompts(None)
    assert [p.id for p in select(prompts, ["lists", "chat"], 2)] == ["lists-1", "lists-2", "chat-1", "chat-2"]
    assert len(select(prompts, [], 3)) == 3 * len(CATEGORIES)
    with pytest.raises(InputError, match=r"'poems'.*chat"):
        select(prompts, ["poems"], None)
    for count in (0, 9):
        with pytest.raises(InputError, match=f"--per-category is {count}"):
            select(prompts, [], count)


def test_prompts_go_through_the_chat_template(tiny: LLM) -> None:
    (prompt,) = select(load_prompts(None), ["chat"], 1)
    text = tiny.tokenizer.decode(prompt.token_ids(tiny.tokenizer), skip_special=False)
    assert text.startswith("<|im_start|>user\n") and text.endswith("<|im_start|>assistant\n")
