"""Models from a hub that runs on this machine: what is fetched, resumed, checked, cached, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sooner.errors import ModelError
from sooner.models import hub as hub_module
from sooner.models import locate
from sooner.models.checkpoint import open_checkpoint
from sooner.models.hub import HubName, cached, cached_models, pull
from tests.support.fake_hub import COMMIT, FakeHub, serve
from tests.support.tiny_models import write_folder

NAME = HubName("org/tiny")
LARGE = b"GGUF" + bytes(25 << 20)  # the library writes in pieces of 10 MiB


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    written = write_folder(tmp_path_factory.mktemp("folder"), shard="50KB")
    return {path.name: path.read_bytes() for path in written.iterdir()}


@pytest.fixture
def hub(folder: dict[str, bytes]) -> Iterator[FakeHub]:
    others = {"pytorch_model.bin": b"x", "original/model-00001-of-00001.safetensors": b"x", "README.md": b"x"}
    with serve(FakeHub("org/tiny", folder | others | {"q/tiny.Q8_0.gguf": LARGE})) as running:
        yield running


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/name", HubName("org/name")),
        ("Org-1/na.me_2@v1.0", HubName("Org-1/na.me_2", "v1.0")),
        ("org/name@refs/pr/3", HubName("org/name", "refs/pr/3")),
        ("org/name:sub/file-Q4_K_M.gguf", HubName("org/name", None, "sub/file-Q4_K_M.gguf")),
        ("org/name@main:file.gguf", HubName("org/name", "main", "file.gguf")),
        *[(text, None) for text in ("name", "./org/name", "/org/name", "../name", "org/../name", "a/b/c", "~/x")],
        *[
            (text, None)
            for text in ("org/name:file.bin", "org/name:../file.gguf", "", "org/", "-org/name", "org/name@")
        ],
    ],
)
def test_names(text: str, name: HubName | None) -> None:
    assert HubName.parse(text) == name
    if name is not None:
        assert str(name) == text


def test_a_folder_is_fetched_once_and_then_used_from_the_cache(hub: FakeHub, tmp_path: Path) -> None:
    assert cached(NAME, tmp_path) is None
    path = pull(NAME, tmp_path, hub.endpoint)
    assert {file.name for file in path.iterdir()} == hub.files.keys() - {
        *("pytorch_model.bin", "README.md", "q/tiny.Q8_0.gguf", "original/model-00001-of-00001.safetensors")
    }
    assert open_checkpoint(path).config.layers == 2
    before = hub.requests
    assert cached(NAME, tmp_path) == cached(HubName("org/tiny", COMMIT), tmp_path) == path
    assert hub.requests == before
    assert [(model.name, model.path) for model in cached_models(tmp_path)] == [("org/tiny", path)]


def test_a_folder_with_a_missing_shard_is_not_in_the_cache(hub: FakeHub, tmp_path: Path) -> None:
    path = pull(NAME, tmp_path, hub.endpoint)
    shard = next(path.glob("model-00002-*"))
    shard.unlink()
    assert cached(NAME, tmp_path) is None
    assert cached_models(tmp_path) == []
    assert pull(NAME, tmp_path, hub.endpoint) == path
    assert shard.is_file()


def test_a_file_that_broke_off_is_resumed(hub: FakeHub, tmp_path: Path) -> None:
    name = HubName("org/tiny", None, "q/tiny.Q8_0.gguf")
    hub.cut = 11 << 20
    path = pull(name, tmp_path, hub.endpoint)
    assert path.read_bytes() == LARGE
    assert hub.ranges == ["bytes=10485760-", "bytes=20971520-"]
    assert cached(name, tmp_path) == path
    assert [model.name for model in cached_models(tmp_path)] == ["org/tiny:q/tiny.Q8_0.gguf"]


@pytest.mark.parametrize("file", ["config.json", "model-00001-of-00007.safetensors"])
def test_a_file_with_a_wrong_checksum_is_removed(file: str, hub: FakeHub, tmp_path: Path) -> None:
    assert file in hub.files
    hub.spoilt = {file}
    with pytest.raises(ModelError, match=f"^model 'org/tiny': {file} differs from the hub's checksum and was removed"):
        pull(NAME, tmp_path, hub.endpoint)
    hub.spoilt = set()
    assert (pull(NAME, tmp_path, hub.endpoint) / file).read_bytes() == hub.files[file]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("org/other", "is not on the hub, or private; check the name"),
        ("org/tiny@v9", "has no revision 'v9'; give a branch, a tag or a commit"),
        (
            "org/tiny:no.gguf",
            r"there is no such file; choose one of its files, as in NAME:q/tiny.Q8_0.gguf \(1 in all\)",
        ),
    ],
)
def test_what_is_not_there_is_named(name: str, message: str, hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"^model '{name}'.* {message}"):
        pull(HubName.parse(name) or NAME, tmp_path, hub.endpoint)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ((".json", ".gguf"), "has no safetensors; choose one of its files, as in NAME:q/tiny.Q8_0.gguf"),
        (
            (".json", ".bin"),
            r"comes as a pickle \(pytorch_model.bin\), .* never loaded; .* run `sooner convert FOLDER`",
        ),
        ((".json",), "has no safetensors; it has no GGUF file"),
    ],
)
def test_repositories_without_safetensors(kept: tuple[str, ...], message: str, hub: FakeHub, tmp_path: Path) -> None:
    """Refused before anything is downloaded."""
    hub.files = {name: content for name, content in hub.files.items() if name.endswith(kept) and "index" not in name}
    with pytest.raises(ModelError, match=message):
        pull(NAME, tmp_path, hub.endpoint)
    assert hub.requests == 1


def test_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(FakeHub("org/tiny", {})) as gone:
        pass
    with pytest.raises(
        ModelError, match=r"no local path and not in the cache, and the hub cannot be reached \(.*check"
    ):
        pull(NAME, tmp_path, gone.endpoint)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="and HF_HUB_OFFLINE is set; unset it, or give a local path"):
        pull(NAME, tmp_path, gone.endpoint)
    assert cached_models(tmp_path / "nowhere") == []


def test_names_are_found_in_the_cache_first(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "cached", lambda name: cached(name, tmp_path))
    monkeypatch.setattr(locate, "pull", lambda name: pull(name, tmp_path, hub.endpoint))
    path = locate.find_model("org/tiny")
    before = hub.requests
    assert locate.find_model("org/tiny") == path
    assert hub.requests == before
    assert hub_module.cached(NAME, tmp_path) == path
