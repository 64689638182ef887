"""`sooner models`: what can be used without a network."""

from __future__ import annotations

import json

from sooner.cli import options


def models(as_json: options.AsJson = False) -> None:
    """List the models of installed packages and of the hub's cache."""
    from sooner.models.hub import Cached, cached_models
    from sooner.models.locate import installed_models

    found = [Cached(name, path, path.stat().st_size) for name, path in installed_models()] + cached_models()
    if as_json:
        print(json.dumps([{"name": each.name, "path": str(each.path), "bytes": each.size} for each in found]))
        return
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        print(f"{each.name:<{width}}  {each.size / 1e6:>9,.1f} MB  {each.path}")
    if not found:
        print("none; run `make install`, or `sooner pull org/name`")
