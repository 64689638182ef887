"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner import types
from sooner.errors import InputError

Model = Annotated[str, typer.Argument(help="smollm2, a .gguf file, a Hugging Face folder, or org/name on the hub")]
OptionalModel = Annotated[str | None, typer.Argument(help="as for sooner generate")]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft",
        help="drafters, comma-separated: ngram, suffix, prediction, grammar, model:PATH, model:self/N, eagle:PATH, "
        "medusa:PATH, mtp (the model's own), package:Class",
    ),
]
DraftTokens = Annotated[
    str, typer.Option("--draft-tokens", help="auto (what pays), or a number of tokens to draft every round")
]
DraftBranches = Annotated[
    int, typer.Option("--draft-branches", help="alternatives at one place of a draft; above 1 drafts are trees")
]
Verify = Annotated[str, typer.Option("--verify", help="auto, match, rejection or block")]
Weights = Annotated[
    str, typer.Option("--weights", help="weights in memory: auto (as in the file), f32, bf16, f16, q8 or q4")
]
Activations = Annotated[
    str,
    typer.Option(
        "--activations",
        help="what products with 4 and 8 bit weights read: float32, or int8, which is faster and rounds them",
    ),
]
Kernels = Annotated[str, typer.Option("--kernels", help="auto, cpu (C++) or torch")]
Device = Annotated[str, typer.Option("--device", help="cpu or cuda")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="processor threads [default: all cores]")]
MaxContext = Annotated[
    int | None, typer.Option("--max-context", help="tokens of prompt and answer [default: the model's, at most 4096]")
]
SharedHistory = Annotated[
    bool, typer.Option("--shared-history", help="draft from other requests' answers too; not between strangers")
]
Plan = Annotated[
    Path | None, typer.Option("--plan", help="start from a plan of `sooner plan --out`: its drafters, costs and worth")
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]


def draft_tokens(text: str) -> types.DraftTokens:
    """What --draft-tokens says; `Speculation` checks the number."""
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--draft-tokens is {text!r}, must be auto or a number; for example 4") from None
