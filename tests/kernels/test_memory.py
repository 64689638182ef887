"""Room for weights: side by side, apart, and in huge pages where the system gives them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sooner.kernels.memory import HUGE, LINE, PIECE, Rooms, huge

SMAPS = Path("/proc/self/smaps")


def test_rooms_lie_side_by_side_and_apart() -> None:
    rooms, sizes = Rooms(), (1, 64, 65, 1000)
    taken = [rooms.take(size) for size in sizes]
    assert [room.numel() for room in taken] == list(sizes)
    for i, room in enumerate(taken):
        room.fill_(i)
    assert [set(room.tolist()) for room in taken] == [{i} for i in range(len(sizes))]
    starts = [room.data_ptr() - taken[0].data_ptr() for room in taken]
    assert starts == [0, 64, 128, 256]
    assert taken[0].data_ptr() % LINE == 0


def test_what_does_not_fit_begins_a_new_piece() -> None:
    rooms = Rooms()
    first, large, small = rooms.take(LINE), rooms.take(PIECE + 1), rooms.take(LINE)
    assert large.numel() == PIECE + 1
    assert large.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
    assert small.untyped_storage().data_ptr() != large.untyped_storage().data_ptr()  # its piece holds nothing else


@pytest.mark.skipif(not SMAPS.exists(), reason="only Linux tells")
def test_huge_pages_were_asked_for() -> None:
    """`hg` among the flags of its mapping; whether there are any is the system's affair."""
    data = huge(4 * HUGE)
    assert not data.any()
    start = data.data_ptr()
    assert start % HUGE == 0
    places = re.finditer(r"^([0-9a-f]+)-([0-9a-f]+) .*?^VmFlags: (.*?)$", SMAPS.read_text(), re.MULTILINE | re.DOTALL)
    [flags] = [place[3] for place in places if int(place[1], 16) <= start < int(place[2], 16)]
    assert "hg" in flags.split()
