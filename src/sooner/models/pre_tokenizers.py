"""What the names in `tokenizer.ggml.pre` stand for: how byte-level vocabularies cut a text before merging.

GGUF names the pre-tokenizer instead of describing it. The patterns are those of the models' own tokenizer.json files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`bos`: a text begins with it when the file does not say. ignore_merges: a piece that is a token as a whole is
    taken as such."""

    build: Callable[[], pre_tokenizers.PreTokenizer]
    normalizer: Callable[[], normalizers.Normalizer] | None = None
    ignore_merges: bool = False
    bos: bool = False


def _gpt2() -> pre_tokenizers.PreTokenizer:
    """GPT-2's own pattern."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _splits(*patterns: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    """One pattern after the other cuts what the ones before have left whole."""

    def build() -> pre_tokenizers.PreTokenizer:
        cuts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns]
        return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    return build


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cl100k(digits: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    """The pattern of cl100k, which Llama 3 and Qwen 2 share but for the digits taken together."""
    words = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
    return _splits(_CONTRACTIONS + words + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _ENDS)


def _o200k(digits: str, contractions: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    """The pattern of o200k, which cuts between lower and upper case; Mistral's Tekken has one much like it."""
    start, upper, lower = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    words = f"{start}{upper}*{lower}+{contractions}|{start}{upper}+{lower}*{contractions}"
    return _splits(words + "|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _ENDS)


# llama.cpp's cuts for files that name none: punctuation, then GPT-2's pattern, then digits in threes.
_DEFAULT = _splits(
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
_LLAMA3, _QWEN2 = _cl100k(r"\p{N}{1,3}"), _cl100k(r"\p{N}")

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer(_DEFAULT),
    "smollm": PreTokenizer(_digits),
    "llama-bpe": PreTokenizer(_LLAMA3, ignore_merges=True, bos=True),
    "qwen2": PreTokenizer(_QWEN2, normalizer=normalizers.NFC),
    "dbrx": PreTokenizer(_LLAMA3),  # OLMo 2
    "tekken": PreTokenizer(_o200k(r"\p{N}", ""), ignore_merges=True, bos=True),
    "gpt-4o": PreTokenizer(_o200k(r"\p{N}{1,3}", f"{_CONTRACTIONS}?")),  # Phi-4-mini
    **dict.fromkeys(("gpt-2", "olmo"), PreTokenizer(_gpt2)),
    **dict.fromkeys(("llama3", "llama-v3"), PreTokenizer(_LLAMA3, ignore_merges=True, bos=True)),
    "deepseek-r1-qwen": PreTokenizer(_QWEN2),
}
