"""Frames that are taken in together: what comes of them is what comes of them one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.postgres.test_decoding import SCHEMA, TABLES, Change, changes, relation, transactions

from tidegauge.errors.postgressource import LogRewritten, ReplicationBroken, ServerAway
from tidegauge.sources.database.clock import HERE
from tidegauge.sources.postgres import taking
from tidegauge.sources.postgres.chunks import Chunk, ManyChunks, batch_of, decoded
from tidegauge.sources.postgres.gathering import Gathering, LaterPlaces
from tidegauge.sources.postgres.replication import payload
from tidegauge.sources.postgres.taking import ComingFrames, taken
from tidegauge.sources.postgres.witness import Comparison, LastTransaction, LogWitness
from tidegauge.sources.protocol import BadRecord

HEADER = b"w" + bytes(24)
ALL = {**TABLES, 3: "unwanted"}


def frame(message: bytes) -> bytes:
    return HEADER + message


def alive(lsn: int) -> bytes:
    return b"k" + struct.pack(">Q", lsn) + bytes(9)


def begun(lsn: int) -> bytes:
    return frame(struct.pack(">cQqI", b"B", lsn, lsn // 100, lsn // 100 + 7))


def ended(lsn: int) -> bytes:
    return frame(struct.pack(">cBQQq", b"C", 0, lsn, lsn + 48, 1))


def _described(table: tuple[int, str]) -> bytes:
    return frame(relation(*table))


def whole(lsn: int, given: Sequence[Change]) -> list[bytes]:
    return [begun(lsn), *(frame(one.message()) for one in given), ended(lsn)]


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """What a server may send: transactions, and between their messages everything else that there is."""
    others = st.one_of(
        st.integers(0, 800).map(alive),
        st.just(frame(b"M" + bytes(8))),
        st.sampled_from(sorted(ALL)).map(lambda oid: frame(relation(oid, ALL[oid]))),
        st.sampled_from([(1, "beta"), (1, "moved"), (4, "alpha"), (4, "other")]).map(
            lambda one: frame(relation(*one))
        ),
        st.sampled_from([1, 2, 3]).map(lambda oid: frame(struct.pack(">cIBI", b"T", 1, 0, oid))),
    )
    found = [begun(1), *(frame(relation(oid, name)) for oid, name in ALL.items()), ended(1)]
    for number, listed in enumerate(draw(transactions)):
        lsn = 100 * (number + 1)
        for one in whole(lsn, listed):
            found.append(one)
            if not draw(st.integers(0, 19)):
                found.append(draw(others))
        if not draw(st.integers(0, 4)):
            found += whole(lsn + 10, [])
    return found


def gathering(folder: Path, how: st.DataObject) -> Any:
    """Return what makes gatherings that are alike."""
    since, spill = how.draw(st.sampled_from([0, 0, 101, 250])), how.draw(st.sampled_from([1 << 20, 1 << 20, 60]))
    compared = how.draw(st.sampled_from([None, None, 0, 201]))
    later = {} if how.draw(st.booleans()) else {"beta": LaterPlaces(how.draw(st.sampled_from([0, 150])), 320)}
    oids = how.draw(st.sampled_from([None, {"public.alpha": 1, "public.beta": 2}, {"public.alpha": 9}]))

    def made() -> Gathering:
        written: list[bytes] = []

        def write(_lsn: int, data: bytes) -> tuple[str, int]:
            written.append(data)
            return str(folder), sum(map(len, written[:-1]))

        last = LastTransaction(100, 946_684_800_000_001, 8)
        witness = LogWitness("server", 0, compared or 0, 0, last if compared else None, frozenset({1}))
        comparing = None if compared is None else Comparison(witness, 0)
        places = {("public", name): name for name in TABLES.values()}
        return Gathering(places, since, write, oids, comparing, dict(later), spill)

    return made


def one_by_one(one: Gathering, frames: Sequence[bytes]) -> None:
    for each in frames:
        lsn, message = payload(each)
        if message:
            one.take(message)
        else:
            one.progress(lsn)


def apart(found: dict[str, list[Chunk | ManyChunks]]) -> dict[str, list[Chunk]]:
    return {
        stream: [one for many in listed for one in ([many] if isinstance(many, Chunk) else many.apart())]
        for stream, listed in found.items()
    }


def state(one: Gathering) -> tuple[Any, ...]:
    said = one.reached, one.last, one.chunks, one.size, one.unsaid, dict(one.aside), one.aside_size
    return (*said, apart(one.taken()))


@given(streams(), st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=5), st.data())
def test_frames_taken_in_together_leave_what_they_leave_one_by_one(
    sent: list[bytes], groups: list[tuple[int, bool]], how: st.DataObject
) -> None:
    make = gathering(Path("spilt"), how)
    here, there = make(), make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taking, "_FEW", 1)
        waiting: list[bytes] = []
        at, number = 0, 0
        while at < len(sent):
            size, rest = groups[number % len(groups)]
            waiting += sent[at : at + size]
            at, number = at + size, number + 1
            count, errors = len(waiting), list[str]()
            try:
                count = taken(here, waiting, rest=rest)
            except (ReplicationBroken, LogRewritten) as error:
                errors.append(repr(error))
            try:
                one_by_one(there, waiting[:count])
            except (ReplicationBroken, LogRewritten) as error:
                errors.append(repr(error))
            if errors:
                assert errors == errors[:1] * 2
                return
            assert state(here) == state(there)
            assert count == len(waiting) or not rest
            del waiting[:count]


INSERTS = {oid: Change(oid, "I", None, (7, "ebb"), full=False) for oid in (1, 2, 3, 4)}
UPDATE = Change(1, "U", (6, "tide"), (7, "ebb"), full=True)
OPENING = [begun(1), *(frame(relation(oid, name)) for oid, name in ALL.items()), ended(1)]
USUAL = [one for lsn in range(100, 1100, 100) for one in whole(lsn, [INSERTS[1], INSERTS[2], UPDATE, INSERTS[3]])]
PARTED = [relation(1, "alpha").replace(b"\0id\0", b"\1id\0"), relation(5, "alpha_1")]
SPILL = 60
SEEN = LastTransaction(900, 946_684_800_000_009, 16)


def compared(last: LastTransaction | None) -> Comparison:
    return Comparison(LogWitness("server", 0, 950, 0, last, frozenset({1})), 0)


@pytest.mark.parametrize(
    ("sent", "made"),
    [
        pytest.param(USUAL, {}, id="nothing special"),
        pytest.param(USUAL, {"oids": {"public.alpha": 1}}, id="one table is watched"),
        pytest.param([*USUAL, *whole(1100, [INSERTS[2]])], {"oids": {"public.alpha": 1}}, id="another changed last"),
        pytest.param(USUAL, {"oids": {"public.alpha": 1}, "comparing": compared(SEEN)}, id="compared, and the same"),
        pytest.param(
            USUAL,
            {"oids": {"public.alpha": 1}, "comparing": compared(replace(SEEN, xid=3))},
            id="compared, and another",
        ),
        pytest.param(USUAL, {"reached": 450}, id="some were given before"),
        pytest.param(USUAL, {"later": {"beta": LaterPlaces(50, 450)}}, id="a table came later"),
        pytest.param(USUAL, {"later": {"beta": LaterPlaces(1 << 63)}}, id="a table is passed over"),
        pytest.param([*USUAL, *whole(1100, [UPDATE] * 9), *USUAL], {"spill": SPILL}, id="one is written to a file"),
        pytest.param(
            [begun(50), *map(frame, PARTED), ended(50), *USUAL], {}, id="old rows of a partition are not told"
        ),
        pytest.param(
            [
                begun(50),
                frame(relation(4, "alpha")),
                ended(50),
                *whole(60, [INSERTS[1], INSERTS[4], INSERTS[1]]),
                *USUAL,
            ],
            {},
            id="two tables of one name",
        ),
        pytest.param(
            [*USUAL[:6], begun(150), frame(relation(1, "moved")), ended(150), *USUAL[6:]],
            {"oids": {"public.alpha": 1}},
            id="a table was renamed",
        ),
        pytest.param(
            [begun(50), frame(relation(4, "alpha")), ended(50), *USUAL],
            {"oids": {"public.alpha": 1}},
            id="a table was made again",
        ),
        pytest.param([*USUAL[:11], ended(777), *USUAL[12:]], {}, id="a commit of another place"),
        pytest.param([*USUAL[:6], alive(190), *USUAL[6:], alive(2000)], {}, id="signs of life"),
        pytest.param([*USUAL[:6], frame(b"M" + bytes(8)), *USUAL[6:]], {}, id="a message of somebody"),
        pytest.param([begun(50), *USUAL, alive(900)], {}, id="a transaction without an end"),
        pytest.param([*USUAL[:3], alive(900), *USUAL[3:]], {}, id="a sign of life within a transaction"),
        pytest.param([*USUAL[:6], *whole(150, []), *USUAL[6:]], {}, id="a transaction without changes"),
        pytest.param([*USUAL, frame(b"I\0\0"), ended(2000)], {}, id="a change that is cut off"),
        pytest.param([*USUAL, *whole(1100, [replace(UPDATE, oid=9)])], {}, id="a table that was not described"),
    ],
)
def test_what_is_to_be_decided_one_by_one_is(sent: list[bytes], made: dict[str, Any]) -> None:
    left: list[Any] = []
    for together in (True, False):
        comparing = made.get("comparing")
        own = made if comparing is None else {**made, "comparing": Comparison(comparing.witness, 0)}
        places = {("public", name): name for name in TABLES.values()}
        one = Gathering(places, **{"reached": 0, "write": lambda _lsn, data: ("file", len(data)), **own})
        error: Exception | None = None
        try:
            if together:
                assert taken(one, [*OPENING, *sent], rest=True) == len(OPENING) + len(sent)
            else:
                one_by_one(one, [*OPENING, *sent])
        except (ReplicationBroken, LogRewritten, struct.error) as raised:
            error = raised
        one.progress(3000)
        left.append((type(error), str(error), *(() if error else state(one))))
    assert left[0] == left[1]


@given(st.lists(st.lists(changes(), min_size=1, max_size=5), min_size=3, max_size=9), st.integers(1, 40))
def test_rows_of_transactions_taken_in_at_once_are_those_of_the_changes(given: list[list[Change]], size: int) -> None:
    one = Gathering({("public", name): name for name in TABLES.values()}, 0, lambda _lsn, _data: ("", 0))
    sent = [begun(1), *(frame(relation(oid, name)) for oid, name in ALL.items()), ended(1)]
    for number, listed in enumerate(given):
        sent += whole(100 * (number + 1), listed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taking, "_FEW", 1)
        assert taken(one, sent, rest=True) == len(sent)
    found = one.taken()
    assert all(isinstance(many, ManyChunks) for listed in found.values() for many in listed)
    bad: list[BadRecord] = []
    for oid, name in TABLES.items():
        if name not in found:
            assert not any(change.oid == oid for listed in given for change in listed)
            continue
        wanted = [
            (*row, (100 * (number + 1) << 32) + 2 * count + second)
            for number, listed in enumerate(given)
            for count, change in enumerate(change for change in listed if change.oid == oid)
            for *row, second in change.rows()
        ]
        batch = batch_of(found[name])
        parts = [batch.slice(at, size) for at in range(0, batch.num_rows, size)]  # pieces are of parts of batches
        assert wanted == [
            tuple(row.values()) for part in parts for row in decoded(part, SCHEMA, name, bad.append).to_pylist()
        ]
    assert bad == []


def test_chunks_of_both_kinds_are_one_batch_in_their_order() -> None:
    change = INSERTS[1]
    one = Gathering({("public", "alpha"): "alpha"}, 0, lambda _lsn, _data: ("", 0))
    taken(one, [begun(1), frame(relation(1, "alpha")), ended(1)], rest=True)
    few, many = whole(100, [change]), [one for lsn in range(200, 3000, 100) for one in whole(lsn, [change])]
    for sent in (few, many, [begun(3000), *few[1:2], ended(3000)]):
        taken(one, sent, rest=True)
    [(first, between, last)] = one.taken().values()
    assert isinstance(first, Chunk)
    assert isinstance(between, ManyChunks)
    assert isinstance(last, Chunk)
    other = replace(last, shape=last.shape.replace("word", "term"))
    batch = batch_of([first, between, last, other])
    shapes = batch["_shape"].to_pylist()
    assert batch["_offset"].to_pylist() == [*range(100, 3001, 100), 3000]
    assert pa.types.is_dictionary(batch["_shape"].type)
    assert {*shapes[:-1]} == {first.shape}
    assert shapes[-1] == other.shape


class Sending:
    """A server that sends these frames, some at a time, and goes away behind them."""

    def __init__(self, *parts: Sequence[bytes], gone: bool = False) -> None:
        self.parts, self.gone = list(map(list, parts)), gone

    def frames(self) -> Iterator[bytes]:
        part = self.parts[0] if self.parts else []
        while part:
            yield part.pop(0)
        self.parts[:1] = []
        if self.gone and not self.parts:
            raise ServerAway(source="db", detail="it ended the stream")

    def more(self) -> bool:
        return bool(self.parts) or self.gone


def coming(*parts: Sequence[bytes], gone: bool = False) -> tuple[ComingFrames, Gathering]:
    one = Gathering({("public", "alpha"): "alpha"}, 0, lambda _lsn, _data: ("", 0))
    taken(one, [begun(1), frame(relation(1, "alpha")), ended(1)], rest=True)
    sender: Any = Sending(*parts, gone=gone)
    return ComingFrames(sender, HERE), one


MANY = [one for lsn in range(100, 5100, 100) for one in whole(lsn, [INSERTS[1]])]


def test_all_that_came_is_taken_in_before_anybody_waits() -> None:
    frames, one = coming(MANY[:71], [*MANY[71:], alive(9_000)])
    frames.take(one, 65_536)
    assert (one.reached, one.chunks) == (9_000, 50)


def test_no_more_frames_are_taken_in_than_were_asked_for() -> None:
    frames, one = coming(MANY)
    for most, chunks in ((3, 1), (1, 1), (5, 3), (100, 36), (1, 36), (1, 36), (1000, 50)):
        frames.take(one, most)
        assert one.chunks == chunks


def test_what_came_before_an_error_is_taken_in() -> None:
    frames, one = coming(MANY, [begun(5100), frame(b"S" + bytes(9))], gone=True)
    with pytest.raises(ReplicationBroken):
        frames.take(one, 65_536)
    frames, one = coming(MANY, [begun(5100)], gone=True)
    with pytest.raises(ServerAway):
        frames.take(one, 65_536)
    assert one.chunks == 50
