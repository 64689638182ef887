"""Text to token ids and back, over the `tokenizers` library; streaming; what the engine asks of a vocabulary."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from sooner.errors import InputError, ModelError
from sooner.models.chat import NOTHING, ChatTemplate, Message
from sooner.models.gguf_tokenizer import SPACE, build_tokenizer
from sooner.weights.files import check_counts, read_json, read_text

TOKENIZER_BYTES = 40 << 20
# Gemma 3's, the largest in use, has 33 MB, 1.3 million commas and 0.3 million colons.
TOKENIZER_MARKS = {",": 3 << 19, ":": 1 << 19}
_SPECIALS = ("bos", "eos", "unk", "pad")


class Tokenizer:
    """Ids that no token has (a padded embedding) decode to nothing."""

    def __init__(self, backend: tokenizers.Tokenizer, template: ChatTemplate | None) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._spelling = _spelling(backend)
        self._backend = backend
        self._template = template

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """From a GGUF file's metadata. Raises ModelError."""
        backend = build_tokenizer(metadata)
        ids = {f"{name}_token": metadata.get(f"tokenizer.ggml.{_GGUF_SPECIALS[name]}_token_id") for name in _SPECIALS}
        specials = {name: backend.id_to_token(i) for name, i in ids.items() if isinstance(i, int) and i >= 0}
        source = metadata.get("tokenizer.chat_template")
        return cls(backend, _template(source, {name: token for name, token in specials.items() if token is not None}))

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """From tokenizer.json, tokenizer_config.json and chat_template.jinja of a Hugging Face folder."""
        settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
        jinja = folder / "chat_template.jinja"
        source = read_text(jinja, 1 << 20) if jinja.is_file() else _default_template(settings.get("chat_template"))
        specials = {
            key: text for name in _SPECIALS if (text := _text(settings.get(key := f"{name}_token"))) is not None
        }
        return cls(_backend(folder / "tokenizer.json"), _template(source, specials))

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Special tokens written out in `text` become themselves. `add_special`: bos and the like around it."""
        try:
            return list(self._backend.encode(text, add_special_tokens=add_special).ids)
        except (TypeError, UnicodeEncodeError):
            raise InputError(f"the text {text[:40]!r}... is not valid Unicode; remove the lone surrogates") from None

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """A text from its beginning. A malformed part of UTF-8 shows as one U+FFFD."""
        text = b"".join(self.token_bytes(token, skip_special) for token in ids).decode(errors="replace")
        return text.removeprefix(" ") if self._spelling.prefix else text

    def as_json(self) -> str:
        """What a tokenizer.json of it holds."""
        return str(self._backend.to_str())

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def template_mentions(self, text: str) -> bool:
        return self._template is not None and self._template.mentions(text)

    def chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] = NOTHING,
    ) -> str:
        """The text of a conversation. It holds its own bos: encode it with add_special=False."""
        if self._template is None:
            raise InputError("the model has no chat template; give a plain prompt with --raw")
        return self._template.render(messages, add_generation_prompt, variables)

    @cached_property
    def tokens(self) -> list[str | None]:
        """The token of each id, None where there is none."""
        known = self._backend.get_vocab(with_added_tokens=True)
        tokens: list[str | None] = [None] * (1 + max(known.values(), default=-1))
        for token, index in known.items():
            tokens[index] = self._spelling.common(token)
        return tokens

    @property
    def vocabulary(self) -> int:
        """The number of ids that have a token; a model's embedding may have more rows."""
        return len(self.tokens)

    @cached_property
    def specials(self) -> frozenset[int]:
        """Ids of the special tokens."""
        return frozenset(i for i, token in self._backend.get_added_tokens_decoder().items() if token.special)

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        """The bytes that a token adds to a text that it continues."""
        name = self._backend.id_to_token(token)
        if name is None or (skip_special and token in self.specials):
            return b""
        return self._spelling.bytes_of(name)

    def text_of(self, token: int) -> str:
        """One token for people to look at; a piece of a character shows as U+FFFD."""
        return self.token_bytes(token, skip_special=False).decode(errors="replace")

    def first_difference(self, other: Tokenizer) -> tuple[int, str | None, str | None] | None:
        """The first id below both vocabularies' ends whose tokens differ, with both tokens; None when they agree."""
        pairs = enumerate(zip(self.tokens, other.tokens, strict=False))
        return next(((index, mine, theirs) for index, (mine, theirs) in pairs if mine != theirs), None)


class TextStream:
    """Tokens in, valid text out: a character split over tokens waits for its last byte.

    The pieces joined are what the tokens add to `Tokenizer.decode` of the prompt before them, since both replace each
    malformed part of UTF-8 by one U+FFFD. Constant time for each byte.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that is certain now and was not before."""
        return self._decoder.decode(self._tokenizer.token_bytes(token, self._skip_special))

    def flush(self) -> str:
        """No token follows: what waited is shown as U+FFFD. The stream is as new afterwards."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


_GGUF_SPECIALS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}


def _byte_alphabet() -> dict[str, int]:
    """The characters in which byte-level vocabularies write bytes (GPT-2): printable Latin-1 as it is, then 256 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How the names of tokens stand for bytes. prefix: a text's first space was put there by `encode`."""

    bytes_of: Callable[[str], bytes]
    common: Callable[[str], str] = str  # the name, as every file of such a vocabulary has it
    prefix: bool = False


def _byte_level(name: str) -> bytes:
    try:
        return bytes(_BYTES[character] for character in name)
    except KeyError:  # an added token with characters of its own
        return name.encode()


def _sentencepiece(name: str) -> bytes:
    byte = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
    return bytes.fromhex(byte[1]) if byte else name.replace(SPACE, " ").encode()


def _with_marks(name: str) -> str:
    """GGUF files write the spaces of tokens like "  " as spaces."""
    return name.replace(" ", SPACE)


def _spelling(backend: tokenizers.Tokenizer) -> _Spelling:
    """Told by the decoder: byte-level, or SentencePiece's with byte fallback. Streaming takes tokens for bytes."""
    decoder = {"type": None} if backend.decoder is None else json.loads(backend.decoder.__getstate__())
    steps = {step["type"]: step for step in decoder.get("decoders", [decoder])}
    if steps.keys() == {"ByteLevel"}:
        return _Spelling(_byte_level)
    space = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    known = {"Replace", "ByteFallback"} <= steps.keys() <= {"Replace", "ByteFallback", "Fuse", "Strip"}
    if known and steps["Replace"] == space and steps.get("Strip", strip) == strip:
        return _Spelling(_sentencepiece, _with_marks, "Strip" in steps)
    kinds = ", ".join(map(str, steps))
    raise ModelError(f"the tokenizer's decoder is {kinds}, which is not supported; supported: ByteLevel, SentencePiece")


def _backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise ModelError(
            "tokenizer.json is missing; let transformers write it: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    text = read_text(path, TOKENIZER_BYTES)
    check_counts(path.name, text, TOKENIZER_MARKS)
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"tokenizer.json cannot be read: {error}; download it again") from None


def _template(source: object, specials: Mapping[str, str]) -> ChatTemplate | None:
    if source is None:
        return None
    if not isinstance(source, str):
        raise ModelError(f"the chat template is a {type(source).__name__}, must be text")
    return ChatTemplate(source, specials)


def _default_template(source: object) -> object:
    """tokenizer_config.json holds one template, or a list of named ones."""
    if not isinstance(source, list):
        return source
    named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
    return named.get("default")


def _text(token: object) -> str | None:
    """A special token is written as text or as an object with its `content`."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None
