"""Files that lie: each ends in one clear line, quickly and without taking memory for what it only claims."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sooner.errors import ModelError, SoonerError
from sooner.models.checkpoint import open_checkpoint
from sooner.weights.gguf import ENTRIES, HEADER_BYTES, HEADER_STRINGS, NAME_BYTES, GgufFile, parse_gguf, read_gguf
from tests.support.forged_gguf import ARRAY, BOOL, F32, I32, STRING, U8, U32, U64, array, forge, key, tensor, text
from tests.support.hostile import EXTREMES, RAW, Edits, refusals, spoil, spoilt_ones
from tests.support.tiny_models import write_gguf

HUGE = 2**64 - 1
MATRIX = tensor("a", (32, 2))  # 256 bytes of F32

HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "has 0 bytes"),
    "only the magic": (b"GGUF", "the version takes 4 bytes at byte 4"),
    "another format": (b"PK\x03\x04" + bytes(60), r"begins with b'PK\x03\x04'"),
    "old version": (forge(version=1), "version 1 is not supported"),
    "future version": (forge(version=4), "version 4 is not supported"),
    "big-endian": (forge(version=0x03000000), "big-endian is not supported"),
    "tensor count": (forge(tensor_count=HUGE), f"the number of tensors is {HUGE}, but there is room for 0"),
    "key count": (forge(key_count=HUGE), f"the number of metadata keys is {HUGE}, but there is room for 0"),
    "counts beyond the limit": (
        forge(key_count=ENTRIES + 1, data=ENTRIES * 32),
        f"the number of metadata keys is {ENTRIES + 1}, but there is room for {ENTRIES}",
    ),
    "key length": (forge([text("k", HUGE)]), f"metadata key 0 has {HUGE} bytes, at most {NAME_BYTES}"),
    "key past the end": (
        forge([text("k", 1000) + bytes(8)]),
        "metadata key 0 takes 1000 bytes at byte 32, past the end",
    ),
    "string value length": (forge([key("k", STRING, text("v", HUGE))]), f"the value of 'k' has {HUGE} bytes"),
    "key not UTF-8": (forge([key("k", U8, b"\0"), text(b"\xff\xfe") + bytes(8)]), "metadata key 1 is not UTF-8"),
    "value not UTF-8": (forge([key("k", STRING, text(b"a\xff"))]), "the value of 'k' is not UTF-8"),
    "element not UTF-8": (forge([array("k", STRING, 2, text("a") + text(b"\xc3"))]), "an element of 'k' is not UTF-8"),
    "key twice": (forge([key("k", U8, b"\0")] * 2), "metadata key 'k' comes twice"),
    "unknown type": (forge([key("k", 13, b"\0" * 8)]), "metadata key 'k' has the unknown type 13"),
    "unknown element type": (forge([array("k", 99, 1, b"\0" * 8)]), "metadata key 'k' has the unknown type 99"),
    "array length": (forge([array("k", U64, HUGE, b"")]), f"the length of 'k' is {HUGE}, but there is room for"),
    "array of 64 bits past the end": (forge([array("k", U64, 9, bytes(16))]), "the value of 'k' takes 72 bytes"),
    "array of strings": (forge([array("k", STRING, 1 << 40, text("a"))]), "the length of 'k' is 1099511627776"),
    "array of strings cut off": (
        forge([array("k", STRING, 3, text("a") + text("b") + text("c", 4000))]),
        "an element of 'k' takes 4000 bytes",
    ),
    "more strings than the limit": (
        forge([array("k", STRING, HEADER_STRINGS, bytes(8 * HEADER_STRINGS)), array("l", STRING, 1, text(""))]),
        "the length of 'l' is 1, but there is room for 0",
    ),
    "array in array": (forge([array("k", ARRAY, 1, struct.pack("<IQ", U8, 0))]), "'k' is an array of arrays"),
    "deep arrays": (forge([array("k", ARRAY, 1, struct.pack("<IQ", ARRAY, 1) * 9999)]), "'k' is an array of arrays"),
    "header past its limit": (
        forge([array(f"k{i}", U8, 1 << 23, bytes(1 << 23)) for i in range(4)]),
        "the length of 'k2' is 8388608, but there is room for",
    ),
    "value past the header's limit": (
        forge([array("k", U64, 1 << 22, bytes(8 << 22))]),
        f"past the header limit at {HEADER_BYTES}",
    ),
    "alignment 0": (forge([key("general.alignment", U32, bytes(4))]), "general.alignment is 0, must be a power of two"),
    "alignment 24": (forge([key("general.alignment", U32, b"\x18\0\0\0")]), "general.alignment is 24"),
    "alignment of a wrong type": (forge([key("general.alignment", STRING, text("32"))]), "general.alignment is '32'"),
    "alignment true": (forge([key("general.alignment", BOOL, b"\1")]), "general.alignment is True"),
    "alignment 2**31": (forge([key("general.alignment", U32, b"\0\0\0\x80")]), "general.alignment is 2147483648"),
    "tensor twice": (forge(tensors=[MATRIX, MATRIX], data=512), "tensor 'a' comes twice"),
    "no dimensions": (forge(tensors=[tensor("a", ())]), "tensor 'a' has 0 dimensions"),
    "five dimensions": (forge(tensors=[tensor("a", (1,) * 5)], data=64), "tensor 'a' has 5 dimensions"),
    "a billion dimensions": (forge(tensors=[tensor("a", (1,), rank=2**30)]), "tensor 'a' has 1073741824 dimensions"),
    "an empty dimension": (forge(tensors=[tensor("a", (32, 0))]), "tensor 'a' has shape (0, 32)"),
    "dimensions that overflow": (forge(tensors=[tensor("a", (2**32, 2**32, 2**32))]), "tensor 'a' has shape"),
    "dimensions that wrap to 0": (forge(tensors=[tensor("a", (2**63, 2))]), f"{2**66} bytes, but the file has"),
    "a known type that is not supported": (
        forge(tensors=[tensor("a", (256,), kind=16)]),
        "tensor 'a' has the type IQ2_XXS, which is not supported; supported are F32, F16",
    ),
    "an unknown tensor type": (
        forge(tensors=[tensor("a", (32,), kind=4000)]),
        "has the type number 4000, which is not",
    ),
    "rows that break a block": (
        forge(tensors=[tensor("a", (33,), kind=8)], data=64),
        "must be whole Q8_0 blocks of 32",
    ),
    "offset not aligned": (forge(tensors=[tensor("a", (8,), offset=4)], data=64), "at offset 4, no multiple of 32"),
    "offset past the end": (forge(tensors=[tensor("a", (8,), offset=2**63)], data=64), "but the file has 128"),
    "offset that wraps": (forge(tensors=[tensor("a", (8,), offset=2**64 - 32)], data=64), "the file is truncated"),
    "data cut off": (forge(tensors=[MATRIX], data=255), "tensor 'a' ends at byte"),
    "two tensors at one place": (
        forge(tensors=[MATRIX, tensor("b", (32, 2))], data=512),
        "lies over 'a', which ends at 256",
    ),
    "overlap in part": (
        forge(tensors=[MATRIX, tensor("b", (8,), offset=224)], data=512),
        "'b' at offset 224 lies over 'a'",
    ),
    "tensor name not UTF-8": (forge(tensors=[text(b"\xff") + bytes(32)]), "the name of tensor 0 is not UTF-8"),
    "tensor name length": (forge(tensors=[text("a", HUGE) + bytes(32)]), f"the name of tensor 0 has {HUGE} bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_each_lie_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_gguf(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def parse(content: bytes) -> GgufFile:
    return parse_gguf(
        content, lambda start, count: torch.tensor(list(content[start : start + count]), dtype=torch.uint8)
    )


def small_file() -> bytes:
    keys = [key("general.architecture", STRING, text("llama")), key("n", U32, bytes(4)), key("x", F32, bytes(4))]
    keys += [array("s", STRING, 2, text("a") + text("bc")), array("i", I32, 3, bytes(12))]
    return forge(keys, [MATRIX, tensor("b", (32,), kind=8, offset=256)], data=256 + 34)


def test_truncation_at_every_byte() -> None:
    whole = small_file()
    assert set(parse(whole).tensors) == {"a", "b"}
    for length in range(len(whole)):
        with pytest.raises(ModelError):
            parse(whole[:length])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_lie_costs_more_than_a_second_or_200_megabytes(tmp_path: Path) -> None:
    lies = [tmp_path / f"{index}.gguf" for index in range(len(HOSTILE))]
    for path, (content, _) in zip(lies, HOSTILE.values()):
        path.write_bytes(content)
    seconds = refusals(write_gguf(tmp_path / "good.gguf"), lies)
    assert seconds.keys() == {path.name for path in lies}
    assert max(seconds.values()) < 1.0, max(seconds, key=seconds.__getitem__)


EDITS = st.lists(
    st.one_of(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([bytes([value]) for value in EXTREMES])),
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)),
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, HUGE).map(lambda value: struct.pack("<Q", value))),
    ),
    min_size=1,
    max_size=4,
)


CUT = st.one_of(st.just(1.0), st.floats(0, 1))
FUZZ = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def parse_or_refuse(spoilt: bytes) -> None:
    try:
        parse(spoilt)
    except ModelError as error:
        assert "\n" not in str(error)


@settings(FUZZ, max_examples=500)
@given(edits=EDITS, cut=CUT)
def test_no_change_of_header_bytes_breaks_the_reader(edits: Edits, cut: float) -> None:
    whole = small_file()
    parse_or_refuse(spoil(whole, len(whole) - 290, edits, cut))


def test_seventy_thousand_spoilt_headers() -> None:
    whole = small_file()
    for spoilt in spoilt_ones(whole, len(whole) - 290, RAW, 70_000):
        parse_or_refuse(spoilt)


@settings(FUZZ, max_examples=300)
@given(edits=EDITS, cut=CUT)
def test_no_change_of_header_bytes_breaks_opening(
    tiny: bytes, tmp_path_factory: pytest.TempPathFactory, edits: Edits, cut: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "spoilt_model.gguf"
    path.write_bytes(spoil(tiny, tiny.index(b"output_norm.weight"), edits, cut))
    try:
        open_checkpoint(path)
    except SoonerError as error:
        assert "\n" not in str(error)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("fuzz") / "tiny.gguf").read_bytes()
