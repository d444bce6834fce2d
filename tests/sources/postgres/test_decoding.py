"""Messages become rows: the same rows however they were cut into chunks, and nothing of a message that is broken."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.postgressource import ReplicationBroken
from tidegauge.operations import OP
from tidegauge.sources.database.sequence import SEQUENCE, SEQUENCE_TYPE
from tidegauge.sources.postgres import gathering as gathering_of
from tidegauge.sources.postgres import tuples
from tidegauge.sources.postgres.chunks import SNAPSHOT, Chunk, ManyChunks, batch_of, decoded
from tidegauge.sources.postgres.gathering import Gathering
from tidegauge.sources.postgres.replication import payload
from tidegauge.sources.postgres.wire import TableShape, commit_of, relation_of, truncated
from tidegauge.sources.protocol import BadRecord

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("_op", pa.string()), ("_sequence", SEQUENCE_TYPE)])
TABLES = {1: "alpha", 2: "beta"}

Value = str | None
Row = tuple[int, Value]


@dataclass(frozen=True)
class Change:
    """A change of a table; old: the row before, whole under FULL, else its key alone where that changed."""

    oid: int
    kind: str
    old: Row | None
    new: Row | None
    full: bool

    def message(self) -> bytes:
        parts = [self.kind.encode() + struct.pack(">I", self.oid)]
        if self.old is not None:
            values = self.old if self.full else (self.old[0], None)
            parts.append((b"O" if self.full else b"K") + _tuple(values))
        if self.new is not None:
            parts.append(b"N" + _tuple(self.new))
        return b"".join(parts)

    def rows(self) -> list[tuple[int, Value, str, int]]:
        """What it means: id, word, operation, and which of the change's rows."""
        gone = [] if self.old is None else [(self.old[0], self.old[1] if self.full else None, "delete", 0)]
        if self.new is None:
            return gone
        word = "update" if self.kind == "U" and self.old is None else "insert"
        return [*gone, (*self.new, word, int(bool(gone)))]


def _tuple(values: Row) -> bytes:
    cells = [b"n" if one is None else b"t" + struct.pack(">I", len(s := str(one).encode())) + s for one in values]
    return struct.pack(">H", len(values)) + b"".join(cells)


rows = st.tuples(
    st.integers(-5, 5), st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6)
)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    kind, full = draw(st.sampled_from("IUUD")), draw(st.booleans())
    old = draw(rows) if kind == "D" or (kind == "U" and draw(st.booleans())) else None
    return Change(draw(st.sampled_from([1, 1, 2, 3])), kind, old, None if kind == "D" else draw(rows), full)


transactions = st.lists(st.lists(changes(), min_size=1, max_size=12), max_size=6)


def relation(oid: int, name: str) -> bytes:
    head = b"R" + struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0d" + struct.pack(">h", 2)
    return head + b"".join(b"\0" + one + b"\0" + struct.pack(">Ii", 25, -1) for one in (b"id", b"word"))


def stream(given: Sequence[Sequence[Change]]) -> list[bytes]:
    found = [relation(oid, name) for oid, name in {**TABLES, 3: "unwanted"}.items()]
    for number, transaction in enumerate(given):
        lsn = 100 * (number + 1)
        found.append(struct.pack(">cQqI", b"B", lsn, number, 7))
        found += [change.message() for change in transaction]
        found.append(struct.pack(">cBQQq", b"C", 0, lsn, lsn + 48, number))
    return found


@given(transactions, st.integers(1, 200), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_rows_are_those_of_the_changes_however_they_are_cut_and_spilled(
    given: list[list[Change]], spill: int, groups: list[int], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering_of, "SPILL", spill)
        patch.setattr(gathering_of, "_FILED", spill // 2)

        def write(lsn: int, written: bytes) -> tuple[str, int]:
            path = Path(folder, str(lsn))
            start = path.stat().st_size if path.exists() else 0
            with path.open("ab") as file:
                file.write(written)
            return str(path), start

        gathering = Gathering({("public", name): name for name in TABLES.values()}, 0, write)
        chunks: dict[str, list[Chunk | ManyChunks]] = {name: [] for name in TABLES.values()}
        for message in stream(given):
            gathering.take(message)
            gathering.progress(1)  # which tells nothing while a transaction is under way
            if data.draw(st.booleans()):
                for name, found in gathering.taken().items():
                    chunks[name] += found
        for name, found in gathering.taken().items():
            chunks[name] += found
        assert gathering.reached == (100 * len(given) + 1 if given else 1)
        for oid, name in TABLES.items():
            wanted = [
                (*row, (100 * (number + 1) << 32) + 2 * count + second)
                for number, transaction in enumerate(given)
                for count, change in enumerate(one for one in transaction if one.oid == oid)
                for *row, second in change.rows()
            ]
            came: list[tuple[Any, ...]] = []
            bad: list[BadRecord] = []
            at = 0
            while at < len(chunks[name]):
                size = groups[at % len(groups)]
                batch = batch_of(chunks[name][at : at + size])
                came += [tuple(row.values()) for row in decoded(batch, SCHEMA, name, bad.append).to_pylist()]
                at += size
            assert came == wanted
            assert bad == []


@given(changes(), st.integers(0, 60))
def test_a_change_that_is_cut_off_is_broken_and_gives_no_row(change: Change, length: int) -> None:
    message = change.message()
    cut = message[: min(length, len(message) - 1)]
    data = np.frombuffer(cut + b"\7", np.uint8)
    with pytest.raises(ReplicationBroken):
        tuples.read(data, np.array([0]), np.array([len(cut)]), 2)
    with pytest.raises(ReplicationBroken):
        tuples.read(np.frombuffer(message, np.uint8), np.array([0]), np.array([len(message)]), 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: payload(b"w" + bytes(20)),
        lambda: payload(b"k" + bytes(5)),
        lambda: payload(b"x"),
        lambda: commit_of(b"C\0"),
        lambda: relation_of(relation(1, "alpha")[:-1]),
        lambda: relation_of(relation(1, "alpha") + b"\0"),
        lambda: truncated(b"T" + struct.pack(">IB", 3, 0)),
        lambda: Gathering({}, 0, lambda _lsn, _data: ("", 0)).take(b"S" + bytes(9)),
        lambda: Gathering({}, 0, lambda _lsn, _data: ("", 0)).take(b"I" + struct.pack(">I", 9) + b"N\0\0"),
        lambda: Gathering({}, 0, lambda _lsn, _data: ("", 0)).take(struct.pack(">cBQQq", b"C", 0, 1, 2, 3)),
    ],
)
def test_what_is_no_message_is_named(call: Any) -> None:
    with pytest.raises(ReplicationBroken):
        call()


def test_first_rows_beyond_four_billion_are_told_apart_and_lie_before_every_change(tmp_path: Path) -> None:
    lines = b"".join(b'"%d"\n' % number for number in range(4))
    path = tmp_path / "rows.csv"
    path.write_bytes(lines)
    shape, place = TableShape(1, "public", "events", ("id",)).encoded(), (1 << 40) + 4
    piece = Chunk(place, 0, SNAPSHOT, shape, (1 << 32) - 2, 4, file=str(path), size=len(lines))
    columns = pa.schema([("id", pa.int64()), (OP, pa.string()), (SEQUENCE, SEQUENCE_TYPE)])
    bad: list[BadRecord] = []
    rows = decoded(batch_of([piece]), columns, "public.events", bad.append)
    found = [int(one) for one in rows[SEQUENCE].to_pylist()]
    assert bad == []
    assert len(set(found)) == 4
    assert max(found) < (place + 1) << 32
    assert found[0] == (place << 32) + (1 << 32) - 2
