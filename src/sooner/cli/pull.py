"""`sooner pull`: fetches a model from the hub into the local cache."""

from __future__ import annotations

from typing import Annotated

import typer

from sooner.errors import InputError


def pull(
    name: Annotated[str, typer.Argument(help="org/name[@revision], or org/name:file.gguf")],
) -> None:
    """Fetch a model from the Hugging Face hub, resuming and checking it, and print where it lies."""
    from sooner.models.hub import HubName
    from sooner.models.hub import pull as fetch

    parsed = HubName.parse(name)
    if parsed is None:
        raise InputError(f"{name!r} is no name on the hub; write org/name, org/name@revision or org/name:file.gguf")
    print(fetch(parsed))
