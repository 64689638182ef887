"""SentencePiece vocabularies, from GGUF files and from tokenizer.json, against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from sooner.errors import ModelError
from sooner.models.tokenizer import TextStream, Tokenizer
from tests.models.test_tokenizer import CHATS, DIGITS, PAGE
from tests.support.sentencepiece import CHAT, GEMMA, LLAMA2, SPACE, Kind, gguf_metadata, own_tokenizer, tokens

KINDS = {"llama 2": LLAMA2, "gemma": GEMMA}
TEXT = PAGE + DIGITS
SPACES = "a  b   c    d\n\n\ne \n f\t\tg       h  "
PIECES = [*PAGE.splitlines(), *(PAGE[i : i + 9] for i in range(0, len(PAGE), 7)), SPACES, SPACES * 9]
TEXTS = [
    PAGE,
    DIGITS,
    "",
    " ",
    "  ",
    "a",
    " a",
    "<s>",
    "x</s> y<unk>",
    "[INST] Hi [/INST] ok </s><s>[INST]  x",
    *PIECES,
]


def from_gguf(kind: Kind, **changes: Any) -> Tokenizer:
    return Tokenizer.from_gguf(
        gguf_metadata(TEXT, kind) | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    )


def write_folder(folder: Path, kind: Kind) -> Path:
    own_tokenizer(TEXT, kind).save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


@pytest.mark.parametrize("source", ["gguf", "folder"])
@pytest.mark.parametrize("name", KINDS)
def test_ids_text_and_chats_agree_with_transformers(name: str, source: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    kind = KINDS[name]
    folder = write_folder(tmp_path, kind)
    reference = AutoTokenizer.from_pretrained(folder)
    ours = from_gguf(kind) if source == "gguf" else Tokenizer.from_folder(folder)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == reference.encode(text), text
        for skip in (True, False):
            assert ours.decode(ids, skip) == reference.decode(ids, skip_special_tokens=skip), text
    for messages in CHATS:
        prompt = ours.chat(messages)
        assert prompt == reference.apply_chat_template(messages, tokenize=False)
        assert ours.encode(prompt, add_special=False) == reference.apply_chat_template(messages)["input_ids"]


@pytest.mark.parametrize("name", KINDS)
def test_both_sources_have_the_same_tokens(name: str, tmp_path: Path) -> None:
    """So a target from one and a draft from the other fit together."""
    ours, theirs = from_gguf(KINDS[name]), Tokenizer.from_folder(write_folder(tmp_path, KINDS[name]))
    assert ours.first_difference(theirs) is None
    assert ours.vocabulary == theirs.vocabulary == len(tokens(TEXT, KINDS[name]))
    assert ours.specials == theirs.specials == {0, 1, 2}


def stream_of(tokenizer: Tokenizer, ids: list[int], skip_special: bool = True) -> str:
    stream = TextStream(tokenizer, skip_special)
    return "".join(stream.push(token) for token in ids) + stream.flush()


@settings(max_examples=200, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_stream_continues_the_text_of_the_prompt(data: st.DataObject) -> None:
    """A space at its beginning belongs to it: only the one before the prompt is the tokenizer's own. Bytes of a
    character may come in any number; a broken one shows as one U+FFFD."""
    kind = data.draw(st.sampled_from([LLAMA2, GEMMA]))
    tokenizer = from_gguf(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary + 3), max_size=20))
    prompt = tokenizer.encode("The prompt")
    for skip in (True, False):
        assert tokenizer.decode(prompt + ids, skip) == tokenizer.decode(prompt, skip) + stream_of(tokenizer, ids, skip)


def test_a_character_without_a_token_comes_as_bytes() -> None:
    tokenizer = from_gguf(LLAMA2)
    assert "🦊" not in TEXT
    ids = tokenizer.encode("🦊", add_special=False)
    assert [tokenizer.tokens[i] for i in ids] == [SPACE, "<0xF0>", "<0x9F>", "<0xA6>", "<0x8A>"]
    assert tokenizer.decode(ids) == "🦊"
    stream = TextStream(tokenizer)
    assert [stream.push(token) for token in ids] == [" ", "", "", "", "🦊"]
    assert tokenizer.decode(ids[:-1]) == "\ufffd"


def test_tokens_of_one_score_are_merged_in_the_order_of_their_ids() -> None:
    names = list(tokens(TEXT, GEMMA))
    level = from_gguf(GEMMA, scores=np.zeros(len(names), np.float32))
    assert all(level.encode(text) == from_gguf(GEMMA).encode(text) for text in TEXTS)


def test_the_marks_of_phi_3_swallow_the_space_after_them() -> None:
    names = [*tokens(TEXT, LLAMA2), "<|user|>", "<|endoftext|>"]
    scores = gguf_metadata(TEXT, LLAMA2)["tokenizer.ggml.scores"]
    types = gguf_metadata(TEXT, LLAMA2)["tokenizer.ggml.token_type"]
    more = {"scores": np.append(scores, [0, 0]), "token_type": np.append(types, [3, 3]), "tokens": names}
    metadata = gguf_metadata(TEXT, LLAMA2) | {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    phi = Tokenizer.from_gguf(metadata | {"general.architecture": "phi3"})
    mark, end = len(names) - 2, len(names) - 1
    bare = phi.encode("The", add_special=False)
    assert phi.encode("<|user|>\nThe", add_special=False) == [mark, *bare]
    assert phi.encode("<|endoftext|>\nThe", add_special=False) != [end, *bare]
    assert Tokenizer.from_gguf(metadata).encode("<|user|>\nThe", add_special=False) != [mark, *bare]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "tokenizer.ggml.scores is None, must be a number for each of"),
        ({"scores": np.zeros(3, np.float32)}, "tokenizer.ggml.scores is array"),
        ({"scores": np.full(len(tokens(TEXT, LLAMA2)), np.nan, np.float32)}, "tokenizer.ggml.scores is array"),
        ({"remove_extra_whitespaces": True}, "tokenizer.ggml.remove_extra_whitespaces is true, which is not supported"),
        ({"add_space_prefix": 1}, "tokenizer.ggml.add_space_prefix is 1, must be true or false"),
        (
            {"tokens": [f"{i:<300}" for i in range(len(tokens(TEXT, LLAMA2)))]},
            "300 in the longest token; at most 4194304 and 256 are read",
        ),
    ],
)
def test_spoilt_metadata_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        from_gguf(LLAMA2, **changes)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Sequence([decoders.Replace("_", " "), decoders.ByteFallback()]),
        decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Strip(" ", 2, 0)]),
        decoders.Sequence([decoders.Replace(SPACE, " "), decoders.Fuse()]),
    ],
)
def test_other_decoders_are_refused(decoder: Any, tmp_path: Path) -> None:
    backend = own_tokenizer(TEXT, LLAMA2)
    backend.decoder = decoder
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match=r"decoder is Replace, .*which is not supported; supported: ByteLevel, Sent"):
        Tokenizer.from_folder(tmp_path)
