"""Models from the Hugging Face hub: `org/name`, `org/name@revision`, `org/name:file.gguf`.

What is in the local cache is used without asking the network. `pull` asks it, resumes what was broken off, and checks
every file against the hub's own checksum.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

from sooner.errors import ModelError
from sooner.weights.files import read_json
from sooner.weights.safetensors import INDEX, SINGLE

# What is read of a folder: names that begin with its top, so that copies in other forms stay where they are.
WANTED = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    *(SINGLE, INDEX, "model-*-of-*.safetensors"),
)
_NAME = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*?)(?:@(?P<revision>[\w./-]+?))?(?::(?P<file>[\w./ -]+\.gguf))?")
_PICKLES = ("*.bin", "*.pt", "*.pth")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository, at a revision (a branch, tag or commit), and one of its files or the whole folder."""

    repo: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return self.repo + (f"@{self.revision}" if self.revision else "") + (f":{self.file}" if self.file else "")

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """None where `text` is no name of this form."""
        match = _NAME.fullmatch(text)
        if match is None or ".." in text:
            return None
        return cls(match["repo"], match["revision"], match["file"])


@dataclass(frozen=True, slots=True)
class Cached:
    """A model that lies in the cache, ready to be opened."""

    name: str
    path: Path
    size: int


def cached(name: HubName, cache: Path | None = None) -> Path | None:
    """The file or folder in the local cache, where all of it is there."""
    from huggingface_hub import try_to_load_from_cache

    sought = name.file or "config.json"
    found = try_to_load_from_cache(name.repo, sought, cache_dir=cache, revision=name.revision)
    if not isinstance(found, str):
        return None
    path = Path(found)
    return path if name.file else (path.parent if _complete(path.parent) else None)


def _complete(folder: Path) -> bool:
    if not (folder / "tokenizer.json").is_file():
        return False
    if not (folder / INDEX).is_file():
        return (folder / SINGLE).is_file()
    shards = read_json(folder / INDEX).get("weight_map", {})
    return isinstance(shards, dict) and all((folder / str(shard)).is_file() for shard in set(shards.values()))


def pull(name: HubName, cache: Path | None = None, endpoint: str | None = None) -> Path:
    """Downloads what the cache lacks, checks it, and returns its path. Progress goes to standard error."""
    from huggingface_hub import HfApi, hf_hub_download

    info = _asked(name, lambda: HfApi(endpoint).model_info(name.repo, revision=name.revision, files_metadata=True))
    commit, files = str(info.sha), {entry.rfilename: entry for entry in info.siblings or []}
    paths = []
    for file in _chosen(name, list(files)):
        download = _asked(
            name,
            lambda file=file: hf_hub_download(  # type: ignore[misc]
                name.repo, file, revision=commit, cache_dir=cache, endpoint=endpoint
            ),
        )
        _check(name, Path(download), files[file])
        paths.append(Path(download))
    _remember(name, paths[0], commit)
    return paths[0] if name.file else paths[0].parent


def _chosen(name: HubName, files: Sequence[str]) -> list[str]:
    """The files of a repository that the name means."""
    if name.file:
        if name.file in files:
            return [name.file]
        raise ModelError(f"model '{name}': there is no such file; {_ggufs(files)}")
    wanted = [file for file in files if any(fnmatch(file, pattern) for pattern in WANTED)]
    if SINGLE in files or INDEX in files:
        return wanted
    pickles = [file for file in files if any(fnmatch(file, pattern) for pattern in _PICKLES)]
    if pickles and not any(file.endswith(".gguf") for file in files):
        raise ModelError(
            f"model '{name}' comes as a pickle ({pickles[0]}), which can run code and is never loaded; "
            f"download it with `hf download {name.repo}` and run `sooner convert FOLDER`"
        )
    raise ModelError(f"model '{name}' has no safetensors; {_ggufs(files)}")


def _ggufs(files: Sequence[str]) -> str:
    found = sorted(file for file in files if file.endswith(".gguf"))
    return f"choose one of its files, as in NAME:{found[0]} ({len(found)} in all)" if found else "it has no GGUF file"


def _asked(name: HubName, call: Callable[[], T]) -> T:
    """What the hub's library raises, as one line that says what to do."""
    from huggingface_hub import errors

    try:
        return call()
    except errors.GatedRepoError:
        reason = "is gated; ask for access on its page, then log in with `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "is not on the hub, or private; check the name, or log in with `hf auth login`"
    except errors.RevisionNotFoundError:
        reason = f"has no revision {name.revision!r}; give a branch, a tag or a commit"
    except errors.OfflineModeIsEnabled:
        reason = "is no local path and not in the cache, and HF_HUB_OFFLINE is set; unset it, or give a local path"
    except Exception as error:  # HTTP clients have exceptions of their own
        line = " ".join(str(error).split())[:200]
        what = f"is no local path and not in the cache, and the hub cannot be reached ({line})"
        reason = f"{what}; check the network, or give a local path"
    raise ModelError(f"model '{name}' {reason}")


def _check(name: HubName, path: Path, entry: Any) -> None:
    """Large files have the SHA-256 of their content, small ones the SHA-1 that git gives them."""
    if entry.lfs is not None:
        wanted, digest = entry.lfs.sha256, hashlib.sha256()
    else:
        wanted, digest = entry.blob_id, hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != wanted:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise ModelError(f"model '{name}': {path.name} differs from the hub's checksum and was removed; pull it again")


def _remember(name: HubName, file: Path, commit: str) -> None:
    """Files were fetched by commit: the cache learns which one the revision means, for use without a network."""
    snapshot = next(parent for parent in file.parents if parent.name == commit)
    reference = snapshot.parent.parent / "refs" / (name.revision or "main")
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(commit)


def cached_models(cache: Path | None = None) -> list[Cached]:
    """Everything in the cache that `find_model` can open, by name."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir(cache).repos
    except CacheNotFound:
        return []
    found = []
    for repo in sorted(repos, key=lambda repo: repo.repo_id):
        for revision in repo.revisions if repo.repo_type == "model" else ():
            mark = "" if "main" in revision.refs else f"@{min(revision.refs, default=revision.commit_hash)}"
            sizes = {file.file_path.relative_to(revision.snapshot_path): file.size_on_disk for file in revision.files}
            for file in sorted(str(path) for path in sizes if path.suffix == ".gguf"):
                found.append(Cached(f"{repo.repo_id}{mark}:{file}", revision.snapshot_path / file, sizes[Path(file)]))
            if (revision.snapshot_path / "config.json").is_file() and _complete(revision.snapshot_path):
                found.append(Cached(f"{repo.repo_id}{mark}", revision.snapshot_path, sum(sizes.values())))
    return found
