"""Builds a tokenizer from the vocabulary in a GGUF file's metadata: byte-level BPE (Sennrich et al. 2016).

GGUF names the pre-tokenizer instead of describing it; the table below says what each name means, in the words of the
original tokenizer.json files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from sooner.errors import ModelError
from sooner.weights.files import shorten

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # llama.cpp's token types that matter here


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """What a name in `tokenizer.ggml.pre` stands for. `bos`: begins with it when the file does not say."""

    build: Callable[[], pre_tokenizers.PreTokenizer]
    normalizer: Callable[[], normalizers.Normalizer] | None = None
    ignore_merges: bool = False  # a piece that is a token as a whole is taken as such
    bos: bool = False


def _byte_level() -> pre_tokenizers.PreTokenizer:
    """GPT-2's own pattern."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level()])


def _pattern(digits: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    """The pattern of cl100k, which Llama 3 and Qwen 2 share but for the digits taken together."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )

    def build() -> pre_tokenizers.PreTokenizer:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    return build


PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "smollm": PreTokenizer(_digits),
    "gpt-2": PreTokenizer(_byte_level),
    "llama-bpe": PreTokenizer(_pattern(r"\p{N}{1,3}"), ignore_merges=True, bos=True),
    "qwen2": PreTokenizer(_pattern(r"\p{N}"), normalizer=normalizers.NFC),
}


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Raises ModelError, naming the kind of tokenizer, when it is not one of the table."""
    kind = metadata.get("tokenizer.ggml.model")
    if not isinstance(kind, str) or kind != "gpt2":
        raise ModelError(
            f"tokenizer.ggml.model is {shorten(kind)}, which is not supported; supported: 'gpt2' (byte-level BPE)"
        )
    pre = _pre_tokenizer(metadata.get("tokenizer.ggml.pre"))
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    kinds = _kinds(metadata, len(tokens))
    merges = _strings(metadata, "tokenizer.ggml.merges")
    backend = Tokenizer(_bpe(_vocabulary(tokens, kinds), merges, pre.ignore_merges))
    backend.pre_tokenizer = pre.build()
    if pre.normalizer is not None:
        backend.normalizer = pre.normalizer()
    backend.decoder = decoders.ByteLevel()
    _add_tokens(backend, tokens, kinds)
    _add_ends(backend, tokens, metadata, pre)
    return backend


def _pre_tokenizer(name: object) -> PreTokenizer:
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        supported = ", ".join(PRE_TOKENIZERS)
        raise ModelError(f"tokenizer.ggml.pre is {shorten(name)}, which is not supported; supported: {supported}")
    return PRE_TOKENIZERS[name]


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list):
        raise ModelError(f"{key} is missing or no list of strings; the file is damaged")
    return value


def _kinds(metadata: Mapping[str, Any], count: int) -> list[int]:
    """The token type of each id; a file without them has ordinary tokens only."""
    kinds = metadata.get("tokenizer.ggml.token_type")
    if kinds is None:
        return [NORMAL] * count
    if not isinstance(kinds, np.ndarray) or len(kinds) != count:
        raise ModelError(f"tokenizer.ggml.token_type is {shorten(kinds)}, must be a number for each of {count} tokens")
    return [int(kind) for kind in kinds]


def _bpe(vocabulary: Mapping[str, int], merges: Sequence[str], ignore_merges: bool) -> models.BPE:
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    try:
        return models.BPE(vocab=dict(vocabulary), merges=pairs, ignore_merges=ignore_merges)
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"the merges do not fit the vocabulary: {error}") from None


def _vocabulary(tokens: Sequence[str], kinds: Sequence[int]) -> dict[str, int]:
    """Token -> id, without the unused ids that pad a vocabulary."""
    used = [(token, index) for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != UNUSED]
    vocabulary = dict(used)
    for token, index in used:
        if vocabulary[token] != index:
            raise ModelError(f"token {shorten(token)} has the ids {index} and {vocabulary[token]}; the file is damaged")
    return vocabulary


def _add_tokens(backend: Tokenizer, tokens: Sequence[str], kinds: Sequence[int]) -> None:
    """Control tokens become special; user-defined ones are found in text before merging, but shown."""
    for kind, add in ((CONTROL, backend.add_special_tokens), (USER_DEFINED, backend.add_tokens)):
        names = [token for token, its_kind in zip(tokens, kinds, strict=True) if its_kind == kind]
        add([AddedToken(name, normalized=False, special=kind == CONTROL) for name in names])


def _add_ends(backend: Tokenizer, tokens: Sequence[str], metadata: Mapping[str, Any], pre: PreTokenizer) -> None:
    """What `encode` puts around a text: bos, eos, or nothing."""
    before = [_end(metadata, "bos", tokens)] if _flag(metadata, "tokenizer.ggml.add_bos_token", pre.bos) else []
    after = [_end(metadata, "eos", tokens)] if _flag(metadata, "tokenizer.ggml.add_eos_token", False) else []
    if before or after:
        single = [*(token for token, _ in before), "$A", *(token for token, _ in after)]
        try:
            backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=before + after)
        except ValueError as error:
            raise ModelError(f"bos or eos cannot be put around a text: {error}; the file is damaged") from None


def _end(metadata: Mapping[str, Any], end: str, tokens: Sequence[str]) -> tuple[str, int]:
    index = metadata.get(f"tokenizer.ggml.{end}_token_id")
    if not isinstance(index, int) or not 0 <= index < len(tokens):
        raise ModelError(f"tokenizer.ggml.{end}_token_id is {shorten(index)}, but the file wants {end} to be added")
    return tokens[index], index


def _flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    value = metadata.get(key, default)
    if not isinstance(value, bool):
        raise ModelError(f"{key} is {shorten(value)}, must be true or false; the file is damaged")
    return value
