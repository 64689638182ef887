"""Opens a model's files: configuration, tensors under our names, tokenizer. Nothing is computed, little is copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from sooner.errors import ModelError
from sooner.kernels.formats import Stored, dequantise, store
from sooner.models.config import ModelConfig
from sooner.models.families import FAMILIES
from sooner.models.sources import from_gguf, from_hugging_face
from sooner.models.tokenizer import Tokenizer
from sooner.weights.files import read_json
from sooner.weights.gguf import read_gguf
from sooner.weights.names import HF_NAMES, half_split, rename
from sooner.weights.safetensors import read_folder


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`tensors` by our names (weights/names.py), views of the mapped files; `description` is one line for people."""

    path: Path
    config: ModelConfig
    tensors: dict[str, Stored]
    tokenizer: Tokenizer
    description: str


def open_checkpoint(path: Path) -> Checkpoint:
    """A .gguf file or a Hugging Face folder. Raises ModelError, which begins with the path."""
    with naming(path):
        return _checked(path, *(_from_folder(path) if path.is_dir() else _from_gguf(path)))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What is wrong with a model's files is said with their path, while they are opened or packed."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}; check the path and its permissions") from None


def _from_gguf(path: Path) -> tuple[ModelConfig, dict[str, Stored], Tokenizer]:
    file = read_gguf(path)
    config = from_gguf(file.metadata, file.tensors)
    family = FAMILIES[config.architecture]
    tensors = rename(file.tensors, family.gguf_names, config.shapes())
    if family.interleaved:
        for name, stored in tensors.items():
            heads = {"q": config.heads, "k": config.kv_heads}.get(name.split(".")[-1].removesuffix("_bias"))
            if heads is not None:
                tensors[name] = half_split(stored, heads)
    return config, tensors, Tokenizer.from_gguf(file.metadata)


def _from_folder(folder: Path) -> tuple[ModelConfig, dict[str, Stored], Tokenizer]:
    generation = folder / "generation_config.json"
    settings = read_json(folder / "config.json")
    config = from_hugging_face(settings, read_json(generation) if generation.is_file() else {})
    family = FAMILIES[config.architecture]
    tensors = read_folder(folder)
    if config.tied:
        _drop_copied_head(tensors)
    placed = rename(tensors, family.hf_names, config.shapes())
    if family.norm_offset:
        for name, stored in placed.items():
            if name.endswith("norm"):
                placed[name] = store(dequantise(stored) + family.norm_offset)
    return config, placed, Tokenizer.from_folder(folder)


def _drop_copied_head(tensors: dict[str, Stored]) -> None:
    """Some writers save a tied matrix twice."""
    embed, head = (HF_NAMES.names[name] for name in ("embed", "head"))
    copy = tensors.pop(head, None)
    if copy is not None and embed in tensors and not torch.equal(copy.data, tensors[embed].data):
        raise ModelError(f"{head} differs from {embed}, but config.json ties them; correct tie_word_embeddings")


def _checked(path: Path, config: ModelConfig, tensors: dict[str, Stored], tokenizer: Tokenizer) -> Checkpoint:
    if tokenizer.vocabulary > config.vocabulary:
        sizes = f"the tokenizer has {tokenizer.vocabulary} tokens, the model {config.vocabulary}"
        raise ModelError(f"{sizes}; they do not belong together")
    return Checkpoint(path, config, tensors, tokenizer, _description(config, tensors))


def _description(config: ModelConfig, tensors: dict[str, Stored]) -> str:
    """For example "llama, 134.5 M parameters, 30 layers, q4_1 x 210, f32 x 61, q8_0"."""
    parameters = sum(prod(stored.shape) for stored in tensors.values())
    formats = Counter(stored.format for stored in tensors.values())
    kinds = ", ".join(f"{name} x {count}" for name, count in formats.most_common())
    return f"{config.architecture}, {parameters / 1e6:.1f} M parameters, {config.layers} layers, {kinds}"
