"""Gzip: the bytes that were compressed, or a clear error, in bounded memory."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zlib
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.sources import CorruptFile, SuspiciousCompression, TruncatedFile
from tidegauge.sources.formats import Csv
from tidegauge.sources.formats import gzip as module
from tidegauge.sources.formats.gzip import gunzip


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.integers(0, 600), st.lists(st.integers(1, 999)))
@deep(100)
def test_members_are_one_stream_and_zeros_are_padding(parts: list[bytes], padding: int, sizes: list[int]) -> None:
    data = b"".join(map(gzip.compress, parts)) + bytes(padding)
    with gunzip(io.BytesIO(data)) as text:
        read = [text.read(size) for size in sizes] + [text.read()]
    assert b"".join(read) == b"".join(parts)


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=3), st.data())
@deep(150)
def test_a_cut_anywhere_is_a_truncated_file_except_between_members(parts: list[bytes], data: st.DataObject) -> None:
    members = [gzip.compress(part) for part in parts]
    whole = b"".join(members)
    cut = data.draw(st.integers(0, len(whole) - 1))
    ends = [sum(map(len, members[:i])) for i in range(1, len(members))]
    text = gunzip(io.BytesIO(whole[:cut]))
    if cut in ends:
        assert text.read() == b"".join(parts[: ends.index(cut) + 1])
    else:
        with pytest.raises(TruncatedFile, match=f"after {cut} bytes"):
            text.read()


@given(st.binary(min_size=1, max_size=200), st.integers(0, 10**6), st.integers(1, 255))
@deep(150)
def test_damage_is_never_taken_for_data(content: bytes, at: int, flip: int) -> None:
    data = bytearray(gzip.compress(content, mtime=0))
    at %= len(data)
    data[at] ^= flip
    try:
        found = gunzip(io.BytesIO(bytes(data))).read()
    except (CorruptFile, TruncatedFile):
        return
    assert found == content


def test_what_follows_the_last_member_is_corrupt() -> None:
    with pytest.raises(CorruptFile):
        gunzip(io.BytesIO(gzip.compress(b"x") + b"\0\0tail")).read()
    with pytest.raises(CorruptFile):
        gunzip(io.BytesIO(b'{"a": 1}\n')).read()


def test_a_bomb_is_stopped_once_it_is_large() -> None:
    bomb = gzip.compress(bytes(1 << 20))
    assert len(gunzip(io.BytesIO(bomb)).read()) == 1 << 20
    text = gunzip(io.BytesIO(bomb), free=1 << 16)
    with pytest.raises(SuspiciousCompression) as caught:
        text.read()
    assert caught.value.evidence["compressed"] == len(bomb)
    assert (1 << 16) < caught.value.evidence["decompressed"] <= 1 << 20
    assert len(gunzip(io.BytesIO(bomb), free=1 << 16, ratio=2000).read()) == 1 << 20


def test_a_bomb_is_never_held_in_memory() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    own = tracemalloc.Filter(inclusive=True, filename_pattern=str(module.__file__))  # other threads allocate, too
    held = []
    tracemalloc.start()
    try:
        with gunzip(io.BytesIO(bomb), ratio=10_000) as text:
            while len(text.read(1 << 22)) == 1 << 22:
                held.append(sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([own]).traces))
    finally:
        tracemalloc.stop()
    assert len(held) == 16
    assert max(held) < 8 << 20


def test_a_stream_can_be_rewound_and_not_otherwise_sought() -> None:
    raw = io.BytesIO(b"skipped" + gzip.compress(b"a,b\n1,2\n"))
    raw.seek(7)
    with gunzip(raw) as text:
        fmt = Csv("a long")
        header = fmt.header(text)
        assert (header, text.tell() > 0) == (b"a,b\n", True)
        text.seek(0)
        bad: list[tuple[int, bytes, str]] = []
        [decoded] = fmt.decode(
            text, lower=0, upper=None, header=header, schema=fmt.schema, on_bad=lambda *told: bad.append(told)
        )
        assert decoded.rows.to_pylist() == [{"a": 1}]
        assert bad == []
        with pytest.raises(io.UnsupportedOperation):
            text.seek(0, io.SEEK_END)
    assert not raw.closed


def test_a_stream_that_cannot_seek_is_read_once() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    text = gunzip(cast("BinaryIO", Pipe(gzip.compress(b"abc"))))
    assert (text.read(), text.seekable()) == (b"abc", False)
