"""Ids, text and streaming against transformers and the `tokenizers` library."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, pre_tokenizers

from sooner.errors import InputError, ModelError
from sooner.models.gguf_tokenizer import build_tokenizer
from sooner.models.locate import find_model
from sooner.models.tokenizer import TextStream, Tokenizer
from sooner.weights.gguf import read_gguf
from tests.support.tiny_models import CHAT, TOKENS, tiny_metadata, tiny_tokenizer, write_gguf

PAGE = """# A page of everything
Dear reader, it's 2026-11-29 at 07:05; we've paid 1234567.89 EUR (that's 3% more). "Don't!", they'll say.

def f(x: int) -> int:
\treturn x**2 + 0xFF  # tabs,   runs   of spaces\r\n    if (a != b) && !c { return [1, 22, 333]; }

Grüße, naïve café, Ελληνικά, Привет, 中文字符, 日本語テキスト, 한국어, עברית, हिन्दी, ภาษาไทย.
Emoji: 😀 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 and signs ∑ ∞ → ± § © \u00a0nbsp \u200bzero
<|im_start|>user
What is <|endoftext|> and <|im_end|><|im_start|> <|nonsense|>?<repo_name>sooner<file_sep>

\n\n   trailing   \n"""
DIGITS = "٣٤ ½ x² Ⅷ १२३ ①② ５"  # noqa: RUF001, numeric characters that are not 0-9
CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "12 + 30?\n"}],
    [
        {"role": "user", "content": "Write a poem, 3 lines."},
        {"role": "assistant", "content": "Roses 🌹\nare\nred"},
        {"role": "user", "content": "  Again!  "},
    ],
]


@cache
def smollm2() -> Tokenizer:
    return Tokenizer.from_gguf(read_gguf(find_model("smollm2")).metadata)


@pytest.fixture(scope="module")
def reference() -> Any:
    """transformers' reading of the same GGUF file. It drops the file's pre-tokenizer; its name is "smollm", which is
    llama.cpp's for splitting every digit off before GPT-2's pattern, as the model's own tokenizer.json does."""
    from transformers import AutoTokenizer

    path = find_model("smollm2")
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), tokenizer.backend_tokenizer.pre_tokenizer]
    )
    return tokenizer


@pytest.mark.slow
def test_ids_and_chats_agree_with_transformers(reference: Any) -> None:
    tokenizer = smollm2()
    for text in (PAGE, DIGITS, "", " ", "a", *PAGE.splitlines(), *(PAGE[i : i + 9] for i in range(0, len(PAGE), 7))):
        ids = tokenizer.encode(text)
        assert ids == reference.encode(text), text
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)
        assert tokenizer.decode(ids, skip_special=False) == reference.decode(ids)
    for messages in CHATS:
        for prompt in (True, False):
            ours = tokenizer.chat(messages, add_generation_prompt=prompt)
            assert ours == reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
            ids = reference.apply_chat_template(messages, add_generation_prompt=prompt)["input_ids"]
            assert tokenizer.encode(ours, add_special=False) == ids


def test_known_ids_of_the_real_model() -> None:
    """Digits stand alone; the control tokens are themselves."""
    tokenizer = smollm2()
    assert tokenizer.vocabulary == 49152
    ids = tokenizer.encode("<|im_start|>user\nHello 1234 wörld<|im_end|>")
    assert ids == [1, 4093, 198, 19556, 216, 33, 34, 35, 36, 267, 29989, 400, 2]
    assert [tokenizer.text_of(token) for token in ids[:8]] == [
        "<|im_start|>",
        "user",
        "\n",
        "Hello",
        " ",
        "1",
        "2",
        "3",
    ]
    assert {0, 1, 2, 16} <= tokenizer.specials
    assert len(tokenizer.specials) == 17


def test_building_the_real_tokenizer_is_quick() -> None:
    metadata = read_gguf(find_model("smollm2")).metadata
    start = time.process_time()
    Tokenizer.from_gguf(metadata)
    assert time.process_time() - start < 2.0  # 0.2 s on an idle machine


def stream_of(tokenizer: Tokenizer, ids: list[int], skip_special: bool = True) -> list[str]:
    stream = TextStream(tokenizer, skip_special)
    return [*(stream.push(token) for token in ids), stream.flush()]


@pytest.mark.parametrize("skip_special", [True, False])
def test_streaming_equals_decoding(skip_special: bool) -> None:
    tokenizer = smollm2()
    ids = tokenizer.encode(PAGE + DIGITS)
    pieces = stream_of(tokenizer, ids, skip_special)
    assert "".join(pieces) == tokenizer.decode(ids, skip_special)
    assert "\ufffd" not in "".join(pieces)
    for count in range(0, len(ids), 11):  # what is out at any time is the beginning of the end
        assert tokenizer.decode(ids, skip_special).startswith("".join(pieces[:count]))


def test_a_split_character_waits_and_an_unfinished_one_is_replaced() -> None:
    tokenizer = smollm2()
    ids = tokenizer.encode("👩", add_special=False)
    assert len(ids) > 1
    assert stream_of(tokenizer, ids) == [*[""] * (len(ids) - 1), "👩", ""]
    assert stream_of(tokenizer, ids[:-1])[-1] == tokenizer.decode(ids[:-1]) == "\ufffd"
    assert stream_of(tokenizer, [*ids[:-1], 19556]) == [*[""] * (len(ids) - 1), "\ufffdHello", ""]


@settings(max_examples=300, derandomize=True, deadline=None)
@given(ids=st.lists(st.one_of(st.integers(0, 49151), st.integers(0, 300), st.integers(49000, 60000)), max_size=40))
def test_streaming_equals_decoding_for_any_ids(ids: list[int]) -> None:
    """Random ids are mostly broken UTF-8: both must replace it alike. Ids beyond the vocabulary are padding."""
    for skip_special in (True, False):
        assert "".join(stream_of(smollm2(), ids, skip_special)) == smollm2().decode(ids, skip_special)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(ids=st.lists(st.sampled_from([i for i, token in enumerate(TOKENS) if len(token) == 1]), max_size=12))
def test_streaming_equals_decoding_for_any_bytes(ids: list[int]) -> None:
    tokenizer = tiny()
    assert "".join(stream_of(tokenizer, ids)) == tokenizer.decode(ids)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_text_survives_the_way_to_tokens_and_back(text: str) -> None:
    tokenizer = tiny()
    assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text
    assert (
        b"".join(tokenizer.token_bytes(token, skip_special=False) for token in tokenizer.encode(text)) == text.encode()
    )


def tiny(**changes: object) -> Tokenizer:
    """From the tiny model's GGUF metadata, as the reader hands it over."""
    return Tokenizer.from_gguf(_arrays(tiny_metadata() | {f"tokenizer.{key}": value for key, value in changes.items()}))


def _arrays(metadata: dict[str, Any]) -> dict[str, Any]:
    types = metadata["tokenizer.ggml.token_type"]
    return metadata | {"tokenizer.ggml.token_type": np.array(types) if isinstance(types, list) else types}


def test_streaming_takes_constant_time_for_a_token() -> None:
    """A run of broken bytes does not make the stream look back: ten times the tokens, ten times the time."""
    tokenizer = tiny()
    broken = tokenizer.encode("é", add_special=False)
    ids = [TOKENS.index("Ĥ")] * 20_000  # the byte 0x84 continues a character that never began
    start = time.process_time()
    assert "".join(stream_of(tokenizer, ids)) == "\ufffd" * len(ids)
    assert time.process_time() - start < 1.0
    assert broken == [TOKENS.index("Ã©")]


def test_bos_and_eos_are_added_when_the_file_says_so() -> None:
    fields = {f"ggml.{name}": value for name, value in {"add_bos_token": True, "add_eos_token": True}.items()}
    tokenizer = tiny(**fields)
    plain = tiny().encode("the")
    assert tokenizer.encode("the") == [1, *plain, 2]
    assert tokenizer.encode("the", add_special=False) == plain
    with pytest.raises(ModelError, match="bos_token_id is 9999, but the file wants bos"):
        tiny(**fields, **{"ggml.bos_token_id": 9999})


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["I", "'m", " ", "1", "2", "3", "4", "5", " x", "!!", "\n\n ", " a"]),
        ("gpt-2", ["I", "'m", " 12345", " x", "!!", "\n\n ", " a"]),
        ("llama-bpe", ["I", "'m", " ", "123", "45", " x", "!!\n\n", " ", " a"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", "5", " x", "!!\n\n", " ", " a"]),
    ],
)
def test_pre_tokenizers_split_as_their_models_do(pre: str, pieces: list[str]) -> None:
    backend = build_tokenizer(
        _arrays(tiny_metadata() | {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": False})
    )
    split = backend.pre_tokenizer.pre_tokenize_str("I'm 12345 x!!\n\n  a")
    assert [text.replace("Ġ", " ").replace("Ċ", "\n") for text, _ in split] == pieces


def test_what_each_pre_tokenizer_brings_along() -> None:
    assert tiny(**{"ggml.pre": "llama-bpe", "ggml.add_bos_token": True}).encode("a")[0] == 1
    without = {key: value for key, value in tiny_metadata().items() if key != "tokenizer.ggml.add_bos_token"}
    assert Tokenizer.from_gguf(_arrays(without | {"tokenizer.ggml.pre": "llama-bpe"})).encode("a")[0] == 1
    assert Tokenizer.from_gguf(_arrays(without)).encode("a")[0] != 1
    composed = tiny(**{"ggml.pre": "qwen2"})
    assert composed.encode("e\u0301") == composed.encode("é")
    assert tiny().encode("e\u0301") != tiny().encode("é")
    whole = {"ggml.merges": ["t h"], "ggml.pre": "llama-bpe"}  # "the" is a token that no merge reaches
    assert tiny(**whole).encode("the", add_special=False) == [TOKENS.index("the")]
    assert len(tiny(**whole | {"ggml.pre": "qwen2"}).encode("the")) == 2


def test_user_defined_tokens_are_found_and_shown_and_unused_ones_do_not_exist() -> None:
    tokens = [*TOKENS, "<tool call>", "[PAD1]", "[PAD2]"]
    types = tiny_metadata()["tokenizer.ggml.token_type"] + [4, 5, 5]
    tokenizer = tiny(**{"ggml.tokens": tokens, "ggml.token_type": types})
    mark = len(TOKENS)
    assert tokenizer.encode("the<tool call>the") == [*tokenizer.encode("the"), mark, *tokenizer.encode("the")]
    assert tokenizer.decode([mark]) == tokenizer.text_of(mark) == "<tool call>"
    assert tokenizer.vocabulary == mark + 1
    assert tokenizer.decode([mark + 1, mark + 500]) == "" == tokenizer.text_of(mark + 1)
    assert "".join(stream_of(tokenizer, [3, mark, 4, mark + 1, 5])) == tokenizer.decode([3, mark, 4, mark + 1, 5])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("ggml.model", None, "tokenizer.ggml.model is None"),
        ("ggml.pre", "x" * 9999, "tokenizer.ggml.pre is 'xxx"),
        ("ggml.tokens", None, "tokenizer.ggml.tokens is missing"),
        ("ggml.tokens", [*TOKENS[:-1], "the"], "token 'the' has the ids"),
        ("ggml.token_type", [1], "tokenizer.ggml.token_type is array"),
        ("ggml.token_type", 7, "tokenizer.ggml.token_type is 7"),
        ("ggml.merges", ["t h", "q qq"], "the merges do not fit the vocabulary"),
        ("ggml.merges", ["nospace"], "the merges do not fit the vocabulary"),
        ("ggml.add_bos_token", "yes", "tokenizer.ggml.add_bos_token is 'yes', must be true or false"),
        ("chat_template", 7, "the chat template is a int"),
    ],
)
def test_spoilt_metadata_is_refused_by_name(field: str, value: object, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        tiny(**{field: value})
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(InputError, match="not valid Unicode"):
        tiny().encode("a\ud800b")


def test_vocabularies_are_compared_token_by_token() -> None:
    mine = tiny()
    padded = tiny(
        **{
            "ggml.tokens": [*TOKENS, "[PAD1]"],
            "ggml.token_type": [*tiny_metadata()["tokenizer.ggml.token_type"], 5],
        }
    )
    assert mine.first_difference(padded) is padded.first_difference(mine) is None
    longer = tiny(**{"ggml.tokens": [*TOKENS, "more"], "ggml.token_type": [1] * (len(TOKENS) + 1)})
    assert mine.first_difference(longer) is None
    assert (mine.vocabulary, longer.vocabulary) == (len(TOKENS), len(TOKENS) + 1)
    other = tiny(**{"ggml.tokens": [*TOKENS[:5], "other", *TOKENS[6:]], "ggml.merges": []})
    assert mine.first_difference(other) == (5, TOKENS[5], "other")
    assert smollm2().first_difference(mine) is not None


# --- Hugging Face folders


def folder(path: Path, backend: Backend | None = None, **settings: Any) -> Path:
    (backend or tiny_tokenizer()).save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def test_a_folder_and_a_gguf_file_of_one_vocabulary_agree(tmp_path: Path) -> None:
    ours, gguf = Tokenizer.from_folder(folder(tmp_path, chat_template=CHAT)), tiny()
    assert ours.first_difference(gguf) is None
    assert ours.encode(PAGE) == gguf.encode(PAGE)
    assert ours.chat(CHATS[2]) == gguf.chat(CHATS[2])
    assert ours.specials == gguf.specials


def test_truncation_and_padding_of_a_folder_are_switched_off(tmp_path: Path) -> None:
    backend = tiny_tokenizer()
    backend.enable_truncation(4)
    backend.enable_padding(length=50)
    assert len(Tokenizer.from_folder(folder(tmp_path, backend)).encode("0123456789")) == 10


def test_the_chat_template_of_a_folder(tmp_path: Path) -> None:
    named = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "{{ bos_token }}{{ eos_token }}"},
    ]
    specials: dict[str, Any] = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}}
    path = folder(tmp_path, chat_template=named, **specials)
    assert Tokenizer.from_folder(path).chat(CHATS[0]) == "<|im_start|><|im_end|>"
    (path / "chat_template.jinja").write_text("{{ messages[0].content }}{{ bos_token }}")
    assert Tokenizer.from_folder(path).chat(CHATS[0]) == "Hi<|im_start|>"
    (path / "chat_template.jinja").unlink()
    with pytest.raises(InputError, match="no chat template; give a plain prompt"):
        Tokenizer.from_folder(folder(path)).chat(CHATS[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "tokenizer.json is missing; let transformers write it"),
        (b"{}", "tokenizer.json cannot be read"),
        (b"\xff\xfe", "tokenizer.json is not UTF-8"),
        (b"[" * 100_000, "tokenizer.json cannot be read"),
    ],
)
def test_a_spoilt_tokenizer_file(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = folder(tmp_path)
    (path / "tokenizer.json").unlink()
    if content is not None:
        (path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        Tokenizer.from_folder(path)


def test_a_decoder_that_is_not_byte_level_is_refused(tmp_path: Path) -> None:
    backend = tiny_tokenizer()
    backend.decoder = decoders.Metaspace()
    with pytest.raises(ModelError, match="decoder is Metaspace, which is not supported; supported: ByteLevel"):
        Tokenizer.from_folder(folder(tmp_path, backend))


def test_the_real_vocabulary_through_a_tokenizer_file(tmp_path: Path) -> None:
    """What GGUF's names stand for, written out: the real model's tokenizer saved and read again."""
    smollm2()._backend.save(str(tmp_path / "tokenizer.json"))
    saved = Tokenizer.from_folder(tmp_path)
    assert saved.first_difference(smollm2()) is None
    assert saved.encode(PAGE + DIGITS) == smollm2().encode(PAGE + DIGITS)


def test_opening_through_a_file_is_the_same(tmp_path: Path) -> None:
    read = Tokenizer.from_gguf(read_gguf(write_gguf(tmp_path / "m.gguf")).metadata)
    assert read.encode(PAGE) == tiny().encode(PAGE)
