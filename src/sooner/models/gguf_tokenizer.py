"""Builds a tokenizer from the vocabulary in a GGUF file's metadata: byte-level BPE (Sennrich et al. 2016), or
SentencePiece's BPE with its scores turned into merges (Kudo and Richardson 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from sooner.errors import ModelError
from sooner.models.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from sooner.weights.files import shorten

# llama.cpp's token types
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"  # SentencePiece writes it for a space
MOST_CUTS = 1 << 22  # of SentencePiece tokens into two; the largest vocabularies have half as many
MOST_PIECE = 256  # characters of one


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Raises ModelError, naming the kind of tokenizer, when it is not one of the table."""
    kind = metadata.get("tokenizer.ggml.model")
    if not isinstance(kind, str) or kind not in _KINDS:
        supported = ", ".join(map(repr, _KINDS))
        raise ModelError(f"tokenizer.ggml.model is {shorten(kind)}, which is not supported; supported: {supported}")
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    kinds = _kinds(metadata, len(tokens))
    backend, bos = _KINDS[kind](metadata, tokens, kinds)
    _add_tokens(backend, tokens, kinds, _strips(metadata, kind))
    _add_ends(backend, tokens, metadata, bos)
    return backend


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str], kinds: Sequence[int]) -> tuple[Tokenizer, bool]:
    """The tokenizer, and whether a text begins with bos when the file does not say."""
    pre = _pre_tokenizer(metadata.get("tokenizer.ggml.pre", "default"))
    merges = _strings(metadata, "tokenizer.ggml.merges")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    backend = Tokenizer(_bpe(_vocabulary(tokens, kinds), pairs, ignore_merges=pre.ignore_merges))
    backend.pre_tokenizer = pre.build()
    if pre.normalizer is not None:
        backend.normalizer = pre.normalizer()
    backend.decoder = decoders.ByteLevel()
    return backend, pre.bos


def _sentencepiece(metadata: Mapping[str, Any], tokens: Sequence[str], kinds: Sequence[int]) -> tuple[Tokenizer, bool]:
    """As `_byte_level`. A space comes before each stretch of text between special tokens, unless the file says not."""
    if metadata.get("tokenizer.ggml.remove_extra_whitespaces"):
        raise ModelError("tokenizer.ggml.remove_extra_whitespaces is true, which is not supported; supported: false")
    prefix = _flag(metadata, "tokenizer.ggml.add_space_prefix", True)
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == UNKNOWN), None)
    merges = _merges(tokens, kinds, _scores(metadata, len(tokens)))
    model = _bpe(_vocabulary(tokens, kinds), merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = Tokenizer(model)
    spaces = [normalizers.Replace(" ", SPACE)]
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), *spaces] if prefix else spaces)
    text = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*text, decoders.Strip(" ", 1, 0)] if prefix else text)
    return backend, True


_KINDS = {"gpt2": _byte_level, "llama": _sentencepiece}


def _merges(tokens: Sequence[str], kinds: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """SentencePiece merges the two neighbours whose union has the best score. As a list: every way to cut an ordinary
    token into two, the best token first, of equals the one with the lower id, and of its cuts the one with the longest
    left part."""
    ordinary = {token: score for token, kind, score in zip(tokens, kinds, scores, strict=True) if kind == NORMAL}
    longest, total = max(map(len, ordinary), default=0), sum(map(len, ordinary))
    if longest > MOST_PIECE or total > MOST_CUTS:
        sizes = f"{total} characters, {longest} in the longest token"
        raise ModelError(f"the vocabulary has {sizes}; at most {MOST_CUTS} and {MOST_PIECE} are read")
    cuts = [
        (score, -place, at, token[:at], token[at:])
        for place, (token, score) in enumerate(ordinary.items())
        for at in range(1, len(token))
        if token[:at] in ordinary and token[at:] in ordinary
    ]
    return [(left, right) for *_, left, right in sorted(cuts, key=lambda cut: cut[:3], reverse=True)]


def _scores(metadata: Mapping[str, Any], count: int) -> list[float]:
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != count or not np.isfinite(scores).all():
        raise ModelError(f"tokenizer.ggml.scores is {shorten(scores)}, must be a number for each of {count} tokens")
    return [float(score) for score in scores]


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


def _bpe(vocabulary: dict[str, int], merges: list[tuple[str, str]], **options: Any) -> models.BPE:
    try:
        return models.BPE(vocab=vocabulary, merges=merges, **options)
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


def _strips(metadata: Mapping[str, Any], kind: str) -> bool:
    """Phi-3's marks of a turn swallow the white space after them; its GGUF files do not say so."""
    return kind == "llama" and metadata.get("general.architecture") == "phi3"


def _add_tokens(backend: Tokenizer, tokens: Sequence[str], kinds: Sequence[int], strip: bool) -> None:
    """Control tokens become special; user-defined ones are found in text before merging, but shown."""
    whole = ("<unk>", "<s>", "<|endoftext|>")
    for sought, add in (((CONTROL, UNKNOWN), backend.add_special_tokens), ((USER_DEFINED,), backend.add_tokens)):
        names = [token for token, kind in zip(tokens, kinds, strict=True) if kind in sought]
        special = CONTROL in sought
        rstrip = {name for name in names if strip and special and name not in whole}
        add([AddedToken(name, normalized=False, special=special, rstrip=name in rstrip) for name in names])


def _add_ends(backend: Tokenizer, tokens: Sequence[str], metadata: Mapping[str, Any], bos: bool) -> None:
    """What `encode` puts around a text: bos, eos, or nothing."""
    before = [_end(metadata, "bos", tokens)] if _flag(metadata, "tokenizer.ggml.add_bos_token", bos) else []
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
