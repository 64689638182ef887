"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="smollm2, a .gguf file, a Hugging Face folder, or org/name on the hub")]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft",
        help="drafters, comma-separated: ngram, suffix, prediction, grammar, model:PATH, model:self/N, package:Class",
    ),
]
DraftTokens = Annotated[int, typer.Option("--draft-tokens", help="most tokens drafted a round")]
Verify = Annotated[str, typer.Option("--verify", help="auto, match, rejection or block")]
Weights = Annotated[
    str, typer.Option("--weights", help="weights in memory: auto (as in the file), f32, bf16, f16, q8 or q4")
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
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
