"""docs/models.md, written from the tests: `python -m tests.support.models_page`.

A cell is filled when a test has that case among its parameters, so the page says what is checked and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import tests.models.test_families as hub
import tests.models.test_pre_tokenizers as pre_tokenizers
import tests.models.test_sentencepiece as sentencepiece
import tests.parity.test_families as parity
import tests.parity.test_formats as whole_models
import tests.weights.test_gguf as numbers
from sooner.kernels.cpu.library import FORMATS as KERNEL_FORMATS
from sooner.kernels.formats import DTYPES, FORMATS, LAYOUTS, kept_as
from sooner.models.families import FAMILIES as SUPPORTED
from sooner.models.pre_tokenizers import PRE_TOKENIZERS
from sooner.models.sources import from_hugging_face
from tests.support.families import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "models.md"

INTRODUCTION = """# Models

This page is written from the tests (`python -m tests.support.models_page`); a test fails when it is not current.

`sooner generate MODEL` takes a short name (`smollm2`), a `.gguf` file, a Hugging Face folder, or a name on the hub:
`org/name`, `org/name@revision`, `org/name:file.gguf`. `sooner pull` fetches a model, resumes what broke off and checks
every file; `sooner models` lists what is there without a network; `sooner convert` turns a pickled checkpoint into
safetensors in a process that loads weights only. A model, a setting or a format that is not on this page is refused by
name when it is opened.

## Families

A tiny checkpoint of each, with random weights, is written by transformers and read by Sooner, from the folder and from
a GGUF file. In the cells:

- **L**: logits within 1e-4 of transformers' in float32, in one pass, token by token, in chunks and beyond the sliding
  window; on the C++ kernels and on the torch twin. From the GGUF file, the tensors are those of the folder to the bit.
- **R**: a row's logits have the same bits whatever rows share its pass.
- **M**: `match` with `suffix` gives the tokens of plain decoding.
- **B**: matrices of the format give the very logits of the same numbers in float32.
"""
FORMATS_TEXT = """## Formats

Each is compared with the `gguf` package's own dequantiser, bit for bit, and a whole model with transformers. What the
C++ kernels lack they keep in the format named here, which holds the same numbers; `--weights q8` and
`q4` round to less. Safetensors come as F32, F16 and BF16. Products compute in float32; with
`--activations int8` those with the formats from Q8_0 down read inputs rounded to 8 bits, with a scale for each 32 along
a row, which is faster and changes the numbers. Drafts still change nothing: `certify` takes the option, too.
"""
TOKENIZERS_TEXT = """## Tokenizers

Token ids equal transformers' on a page of prose, code, many scripts, emoji, special tokens and white space, cut at
every place, and on chats of several turns. From GGUF files:
"""
HUB_TEXT = """## Configurations

These, as the hub has them, mean to Sooner what they mean to transformers, rotary scaling included:
"""


def page() -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        families(),
        FORMATS_TEXT,
        formats(),
        TOKENIZERS_TEXT,
        tokenizers(),
        HUB_TEXT,
        configurations(),
    ]
    return "\n".join(parts)


def cases(test: Callable[..., Any]) -> set[tuple[Any, ...]]:
    """The values that a test is run with, in the order of its parametrize marks from the bottom up."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    return set(product(*(mark.args[1] for mark in marks)))


def families() -> str:
    logits = {case[0] for case in cases(parity.test_logits)}
    rows = {name for (name,) in cases(parity.test_on_the_cpu_kernels_rows_are_exact)}
    match = {name for (name,) in cases(parity.test_match_with_suffix_gives_plain_tokens)}
    gguf = {name for (name,) in cases(parity.test_a_gguf_file_holds_the_same_model)}
    kinds = cases(parity.test_matrices_of_a_format_are_used_as_they_are)
    columns = parity.MATRIX_TYPES

    def row(name: str) -> list[str]:
        marks = ("L" * (name in logits), "R" * (name in rows), "M" * (name in match))
        tiny = FAMILIES[name]
        cells = ["L" if name in gguf else "", *("B" if (name, kind) in kinds else "" for kind in columns)]
        return [name, f"`{tiny.model_type}`", " ".join(marks), f"`{tiny.arch}`" if tiny.arch else "", *cells]

    title = ["", "`model_type`", "folder", "in GGUF", "F32", *columns]
    missing = SUPPORTED.keys() - {tiny.model_type for tiny in FAMILIES.values()}
    assert not missing, f"no test has {missing}"
    return table(title, map(row, FAMILIES))


def formats() -> str:
    bits = {name.lower() for (name,) in cases(numbers.test_every_format_dequantises_to_the_same_bits)}
    whole = {name for (name,) in cases(whole_models.test_the_files_numbers_are_used_as_they_are)}

    def row(name: str) -> list[str]:
        kept = LAYOUTS[kept_as(name, KERNEL_FORMATS)]
        size = f"{8 * kept.block_bytes / kept.block:g}"
        return [name.upper(), mark(name in bits), mark(name in whole or name in DTYPES), kept.name.upper(), size]

    return table(["", "numbers", "whole model", "C++ kernels keep", "bits a weight there"], map(row, FORMATS))


def tokenizers() -> str:
    checked = {name for (name,) in cases(pre_tokenizers.test_ids_and_chats_agree_with_transformers)}
    checked |= {"smollm"}  # tests/models/test_tokenizer.py, with the real model
    pieces = {name for name, _ in cases(sentencepiece.test_ids_text_and_chats_agree_with_transformers)}
    rows = [[f"byte-level, `{name}`", mark(name in checked)] for name in PRE_TOKENIZERS]
    rows += [[f"SentencePiece, as {name}", mark(True)] for name in sorted(pieces)]
    return table(["", "checked"], rows)


def configurations() -> str:
    def row(name: str) -> list[str]:
        config = from_hugging_face(hub.SIZES | hub.HUB[name], {})
        windows = {attention.window for attention in config.attention} - {None}
        scaling: dict[str, Any] = hub.HUB[name].get("rope_scaling") or {}
        heads = f"{config.heads} / {config.kv_heads} x {config.head_size}"
        return [name, heads, ", ".join(map(str, windows)), scaling.get("rope_type") or scaling.get("type", "")]

    names = sorted(name for (name,) in cases(hub.test_old_words_and_transformers_own_mean_the_same))
    return table(["", "heads / key-value heads x size", "sliding window", "rotary scaling"], map(row, names))


def mark(yes: bool) -> str:
    return "yes" if yes else ""


def table(title: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [title, ["---"] * len(title), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
