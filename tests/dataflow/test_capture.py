"""Captured streams in files and on sockets: what comes out went in, or an error says why not."""

from __future__ import annotations

import doctest
import io
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.dataflow import (
    INT,
    UNIT,
    Bounded,
    DeterministicCluster,
    Event,
    EventQueue,
    EventReader,
    EventReceiver,
    EventWriter,
    Messages,
    Order,
    Probe,
    Product,
    Progress,
    Worker,
)
from tidegauge.dataflow.capture.form import Encoder
from tidegauge.dataflow.capture.frames import LARGEST, Packer
from tidegauge.dataflow.capture.notation import Notation, encode_batch
from tidegauge.dataflow.capture.receiver import AHEAD
from tidegauge.dataflow.order import PARTITIONED, Interval, Lex
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.dataflow import InvalidGraph, OperatorFailed
from tidegauge.errors.events import (
    DamagedEvents,
    EventsOfAnotherOrder,
    EventTooLarge,
    IllegalEvent,
    NewerEvents,
    NotEvents,
    NotWritable,
    WriterBroken,
)


@dataclass(frozen=True)
class Days:
    """An order of a user's own, whose times are no JSON values."""

    minimum: date = date(2026, 1, 1)
    total: bool = True

    def less_equal(self, a: date, b: date, /) -> bool:
        return a <= b

    def sort_key(self, time: date, /) -> date:
        return time

    def encode(self, time: date, /) -> str:
        return time.isoformat()

    def decode(self, value: str, /) -> date:
        return date.fromisoformat(value)


LOOP = Product(INT, INT)
DAILY = Product(Days(), INT)


def later(order: Order[Any], time: Any, by: int) -> Any:
    """A time at or beyond `time`."""
    if isinstance(order, Product | Lex):
        return (later(order.outer, time[0], by // 2), later(order.inner, time[1], by % 3))
    return time + timedelta(days=by % 1000) if isinstance(order, Days) else time + by


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
arrow = st.lists(st.integers(-9, 9) | st.none(), max_size=3).map(
    lambda n: pa.record_batch({"n": pa.array(n, pa.int64())})
)
anything = plain | st.binary(max_size=20) | arrow | arrow.map(lambda batch: pa.Table.from_batches([batch, batch]))


@st.composite
def captured(draw: st.DrawFn, order: Order[Any]) -> list[Event]:
    """What a capture may have recorded: every message and every gain is covered by a count that was positive."""
    counts = {order.minimum: 1}
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 6))):
        if not counts:
            break
        held = draw(st.sampled_from(list(counts)))
        times = [later(order, held, by) for by in draw(st.lists(st.integers(0, 2**70), max_size=2))]
        if draw(st.booleans()):
            events.append(Messages(tuple(times), draw(anything)))
        else:
            changes = [(held, -1)] + [(time, 1) for time in times]
            for time, delta in changes:
                counts[time] = counts.get(time, 0) + delta
            counts = {time: count for time, count in counts.items() if count}
            events.append(Progress(tuple(changes)))
    return events


def written(events: list[Event], order: Order[Any] = INT) -> bytes:
    file = io.BytesIO()
    writer = EventWriter(file, order)
    for event in events:
        writer.append(event)
    return file.getvalue()


def read(data: bytes, order: Order[Any] = INT) -> tuple[list[Event], TidegaugeError | None, Any]:
    """All events up to the end or an error; the error; the ending."""
    events: list[Event] = []
    try:
        reader = EventReader(io.BytesIO(data), order)
        for event in reader:
            events.append(event)  # noqa: PERF402 - what came before an error counts
    except TidegaugeError as error:
        return events, error, None
    return events, None, reader.ending


def exact(events: list[Event]) -> list[Any]:
    """Events so that 1, 1.0 and True differ, and NaN is itself."""
    return [repr(e) if isinstance(e, Progress) else (repr(e.stamp), *shown(e.batch)) for e in events]


def shown(batch: Any) -> tuple[type, str]:
    rows = batch.to_pylist() if isinstance(batch, pa.Table | pa.RecordBatch) else batch
    return type(batch), repr(rows)


def frames(data: bytes) -> list[bytes]:
    """The whole frames after the version, the header among them."""
    found, at = [], 10
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "little") + 4
        found.append(data[at:end])
        at = end
    return found


EVENTS: list[Event] = [
    Messages((0,), ["tea", {"amount": 0.1}]),
    Progress(((0, -1), (3, 1))),
    Messages((3, 4), b"salt"),
    Messages((2**70,), pa.record_batch({"n": [1, 2]})),
    Progress(((3, -1),)),
]

# What is written.


@pytest.mark.parametrize("order", [INT, LOOP, Product(INT, LOOP), Lex(INT, INT), Days(), DAILY], ids=str)
@given(data=st.data())
def test_what_was_written_is_read_exactly(order: Order[Any], data: st.DataObject) -> None:
    events = data.draw(captured(order))
    found, error, ending = read(written(events, order), order)
    assert exact(found) == exact(events)
    assert error is None
    assert ending.torn == 0


def test_times_of_partitions_come_back_as_they_were() -> None:
    times = PARTITIONED.frontier({"salt": 3, "tea": 2**70})
    changes = ((PARTITIONED.minimum, -1), *((time, 1) for time in times))
    [got], error, ending = read(written([Progress(changes)], PARTITIONED), PARTITIONED)
    assert error is None
    assert got == Progress(changes)
    assert all(type(time[0]) is Interval for time in ending.frontier)
    assert PARTITIONED.mapping(ending.frontier) == {"salt": 3, "tea": 2**70}


@pytest.mark.parametrize("codec", ["arrow", "table"])
def test_arrow_comes_back_with_its_schema_and_metadata(codec: str) -> None:
    schema = pa.schema(
        [pa.field("s", pa.dictionary(pa.int8(), pa.string()), metadata={"k": "v"})], metadata={"a": "b"}
    )
    batch = pa.record_batch([pa.array(["x", "y", None]).dictionary_encode().cast(schema[0].type)], schema=schema)
    sent = batch.slice(1) if codec == "arrow" else pa.Table.from_batches([], schema)
    [got], _, _ = read(written([Messages((0,), sent)]))
    assert isinstance(got, Messages)
    assert got.batch.equals(sent)
    assert got.batch.schema.equals(schema, check_metadata=True)


GOLDEN = """
8954 4745 0d0a 1a0a 0100 2900 0000 a83f 7efc 7b22 6f72 6465 7222 3a22 496e 7465
6765 7273 222c 2262 6174 6368 6573 223a 226c 6574 7465 7265 6422 7d77 d693 871e
0000 00b0 ff82 914a 0300 0000 5b30 5d5b 2274 6561 222c 7b22 616d 6f75 6e74 223a
302e 317d 5dd9 2498 680f 0000 004a cf27 7950 5b5b 302c 2d31 5d2c 5b33 2c31 5d5d
0d48 9c55 0e00 0000 2fa8 9bc1 4205 0000 005b 332c 345d 7361 6c74 19dc 845e 0900
0000 9690 4c5c 505b 5b33 2c2d 315d 5d08 7628 4d
"""


def test_a_file_of_version_1_stays_readable() -> None:
    events, error, ending = read(bytes.fromhex(GOLDEN))
    assert error is None
    assert exact(events) == exact(EVENTS[:3] + EVENTS[4:])
    assert ending.complete
    assert written(events) == bytes.fromhex(GOLDEN)


@settings(deadline=None, max_examples=15)
@given(captured(INT))
def test_cut_off_at_any_byte_it_holds_the_whole_events_before(events: list[Event]) -> None:
    data = written(events)
    starts = [10]
    for frame in frames(data):
        starts.append(starts[-1] + len(frame))
    for cut in range(len(data)):
        found, error, ending = read(data[:cut])
        whole = sum(start <= cut for start in starts[2:])
        assert error is None
        assert exact(found) == exact(events[:whole])
        assert (ending.torn > 0) == (cut not in (0, *starts))
        assert ending.at + ending.torn == cut


@settings(deadline=None, max_examples=15)
@given(events=captured(INT), flip=st.integers(1, 255))
def test_with_any_byte_changed_it_is_refused_and_no_wrong_event_comes(events: list[Event], flip: int) -> None:
    data = written(events)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= flip
        found, error, _ = read(bytes(changed))
        assert error is not None
        assert exact(found) == exact(events[: len(found)])


@pytest.mark.parametrize("change", ["left out", "doubled", "moved"])
def test_a_frame_that_is_not_in_its_place_is_refused(change: str) -> None:
    start, (header, *rest) = written(EVENTS)[:10], frames(written(EVENTS))
    moved = {"left out": rest[:2] + rest[3:], "doubled": rest[:3] + rest[2:], "moved": [*rest[:2], rest[3], rest[2]]}
    found, error, _ = read(start + header + b"".join(moved[change]))
    assert isinstance(error, DamagedEvents)
    assert len(found) == (3 if change == "doubled" else 2)


def test_what_the_page_of_the_format_shows_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "dataflow-events.md"
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert (failed, tried) == (0, 10)


# What cannot be written.


class Picklable:
    def __reduce__(self) -> Any:
        raise AssertionError("it was pickled")


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "batch",
    [("a", 1), {1: "a"}, {"a": {1, 2}}, [Picklable()], bytearray(b"a"), [b"a"], nested(101), 10**5000, pa.array([1])],
    ids=lambda batch: type(batch).__name__,
)
def test_a_batch_without_a_written_form_is_refused_and_nothing_of_it_written(batch: Any) -> None:
    file = io.BytesIO()
    writer = EventWriter(file, INT)
    with pytest.raises(NotWritable, match="batch"):
        writer.append(Messages((0,), batch))
    writer.append(Messages((0,), nested(100)))
    found, error, _ = read(file.getvalue())
    assert error is None
    assert found == [Messages((0,), nested(100))]


@pytest.mark.parametrize("time", [0.5, True, (1, 0.5), b"a", date(2026, 1, 1), [1]], ids=repr)
def test_a_time_without_a_written_form_is_refused(time: Any) -> None:
    with pytest.raises(NotWritable, match="time"):
        EventWriter(io.BytesIO(), INT).append(Messages((time,), 1))


def test_a_frame_of_more_than_the_limit_is_refused_when_written() -> None:
    file = io.BytesIO()
    writer = EventWriter(file, INT)
    size = len(file.getvalue())
    with pytest.raises(EventTooLarge) as caught:
        writer.append(Messages((0,), bytes(LARGEST)))
    assert caught.value.evidence["limit"] == LARGEST
    assert len(file.getvalue()) == size
    writer.append(Progress(((0, -1),)))
    assert read(file.getvalue())[0] == [Progress(((0, -1),))]


ILLEGAL: list[tuple[list[Event], Event]] = [
    ([Progress(((0, -1), (3, 1)))], Messages((2,), "late")),
    ([Progress(((0, -1), (3, 1)))], Messages((4, 2), "late in part")),
    ([Progress(((0, -1), (3, 1)))], Progress(((2, 1), (3, -1)))),
    ([Progress(((0, -1),))], Messages((9,), "after the end")),
    ([], Progress(((0, -2),))),
    ([], Progress(((5, -1),))),
]


@pytest.mark.parametrize(("before", "event"), ILLEGAL)
def test_an_illegal_event_is_neither_written_nor_read(before: list[Event], event: Event) -> None:
    file = io.BytesIO()
    writer = EventWriter(file, INT)
    for legal in before:
        writer.append(legal)
    with pytest.raises(IllegalEvent):
        writer.append(event)
    assert read(file.getvalue())[0] == before
    forged = Packer("forged")
    data = forged.start() + forged.pack(frames(written([]))[0][8:-4])
    for each in [*before, event]:
        if isinstance(each, Progress):
            data += forged.pack(b"P", json.dumps(each.changes).encode())
        else:
            stamp = json.dumps(each.stamp).encode()
            data += forged.pack(b"J", len(stamp).to_bytes(4, "little"), stamp, json.dumps(each.batch).encode())
    found, error, _ = read(data)
    assert found == before
    assert isinstance(error, IllegalEvent)


# What cannot be read.


def forged(*bodies: bytes) -> bytes:
    """A file whose frames are whole, whatever is in them."""
    packer = Packer("forged")
    header = frames(written([]))[0][8:-4]
    return packer.start() + b"".join(packer.pack(body) for body in (header, *bodies))


def stamped(letter: bytes, payload: bytes, stamp: bytes = b"[0]") -> bytes:
    return letter + len(stamp).to_bytes(4, "little") + stamp + payload


def compressed() -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"n": list(range(1000))})
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def wrong_offsets() -> bytes:
    good = encode_batch(pa.record_batch({"s": ["abc", "defg"]}))[1]
    return good.replace(b"\x03\x00\x00\x00\x07\x00\x00\x00", b"\x03\x00\x00\x00\x7f\xff\x00\x00")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"X",
        b"P{",
        b"P[[0]]",
        b"P[[0,0]]",
        b"P[[0,1.5]]",
        b"P[[0,true]]",
        b"P7",
        b'P[["a",1]]',
        b"P[[0.5,1]]",
        b"P" + b"[" * 100_000,
        b"P[[" + b"9" * 5000 + b",1]]",
        b"J\xff\xff\xff\x7f[0]1",
        b"J\x01",
        b"B\x07\x00\x00\x00[0]",
        stamped(b"J", b"", b"[0]"),
        stamped(b"J", b"\xff"),
        stamped(b"J", b"[" * 200 + b"]" * 200),
        stamped(b"J", b"1", b'[{"a":1}]'),
        stamped(b"J", b"1", b'["a"]'),
        stamped(b"K", b"cos\nsystem\n(S'true'\ntR."),
        stamped(b"R", b""),
        stamped(b"R", b"\xff" * 100),
        stamped(b"R", compressed()),
        stamped(b"R", wrong_offsets()),
        stamped(b"R", encode_batch(pa.Table.from_batches([pa.record_batch({"n": [1]})] * 2))[1]),
    ],
    ids=lambda body: repr(bytes(body[:12])),
)
def test_a_whole_frame_of_nonsense_is_damage(body: bytes) -> None:
    found, error, _ = read(forged(stamped(b"J", b'"before"'), body))
    assert found == [Messages((0,), "before")]
    assert isinstance(error, DamagedEvents)


@pytest.mark.parametrize("data", [b"id,user\n1,a\n", b"\x89PNG\r\n\x1a\n....", b"TG", b"\x89TGE\n\x1a\n12345"])
def test_what_is_no_capture_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(NotEvents):
        EventReader(io.BytesIO(data), INT)


def test_newer_versions_and_forms_are_refused() -> None:
    data = bytearray(written([]))
    data[8] = 2
    with pytest.raises(NewerEvents, match="version 2"):
        EventReader(io.BytesIO(bytes(data)), INT)
    packer = Packer("newer")
    newer = packer.start() + packer.pack(b'{"order":"Integers","batches":"columns"}')
    with pytest.raises(NewerEvents, match="columns"):
        EventReader(io.BytesIO(newer), INT)


@pytest.mark.parametrize("other", [LOOP, Bounded(7), UNIT, Days()], ids=str)
def test_another_order_is_refused(other: Order[Any]) -> None:
    with pytest.raises(EventsOfAnotherOrder):
        EventReader(io.BytesIO(written(EVENTS)), other)


def test_no_length_makes_the_reader_allocate_more_than_the_limit() -> None:
    asked: list[int] = []
    length = (LARGEST + 1).to_bytes(4, "little")
    file = io.BytesIO(written([]) + length + zlib.crc32(length).to_bytes(4, "little") + b"tail")

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(-1 if size is None else size)
            return file.read(size)

    with pytest.raises(EventTooLarge):
        list(EventReader(Watched(), INT))
    assert max(asked) < 100
    assert min(asked) > 0


# Dataflows.


def keep(path: Path, batches: list[tuple[int, Any]], *, close: bool = True) -> None:
    """Capture batches at their times into a file."""
    worker = Worker(lambda: 0.0, validate=True)
    with worker.dataflow("here", order=INT) as scope:
        handle, stream = scope.input("numbers")
        writer = stream.capture(into=EventWriter(path, INT))
    for now, batch in batches:
        handle.advance_to(now)
        handle.send(batch)
        steps(worker, 2)
    if close:
        handle.close()
        while worker.step():
            pass
    writer.close()


def steps(worker: Worker, count: int) -> None:
    for _ in range(count):
        worker.step()


def replayed(worker: Worker, *sources: Any) -> tuple[list[tuple[Any, Any]], Probe]:
    seen: list[tuple[Any, Any]] = []
    with worker.dataflow("there", order=INT) as scope:
        probe = scope.replay(*sources).inspect(lambda stamp, batch: seen.append((stamp, batch))).probe()
    return seen, probe


def test_c50_two_files_are_replayed_as_one_stream(
    worker: Worker, tmp_path: Path, trace: Callable[[EventQueue], list[Any]], finish: Callable[[Worker], int]
) -> None:
    keep(tmp_path / "a", [(0, [10, 11])])
    keep(tmp_path / "b", [(0, [0]), (1, [1]), (2, [2])])
    with worker.dataflow("there", order=INT) as scope:
        queue = scope.replay(EventReader(tmp_path / "a", INT), EventReader(tmp_path / "b", INT)).capture()
    finish(worker)
    assert trace(queue) == [("M", 0, [10, 11]), ("M", 0, [0]), ("M", 1, [1]), ("M", 2, [2]), ("P", [(0, -1)])]


def test_a_file_is_replayed_as_often_as_it_is_read(
    worker: Worker, tmp_path: Path, finish: Callable[[Worker], int]
) -> None:
    keep(tmp_path / "a", [(0, "x"), (4, "y")])
    for _ in range(2):
        seen, probe = replayed(worker, EventReader(tmp_path / "a", INT))
        finish(worker)
        assert seen == [((0,), "x"), ((4,), "y")]
        assert probe.done()
    reader = EventReader(tmp_path / "a", INT)
    replayed(worker, reader)
    with pytest.raises(InvalidGraph, match="reader already"), worker.dataflow("again", order=INT) as scope:
        scope.replay(reader)


@pytest.mark.parametrize("seed", range(10))
def test_several_workers_replay_files_each_stream_on_one_of_them(tmp_path: Path, seed: int) -> None:
    for name in "abc":
        keep(tmp_path / name, [(time, f"{name}{time}") for time in range(3)])
    seen: list[list[Any]] = [[], []]

    def build(worker: Worker) -> Probe:
        mine = {0: "ac", 1: "b"}[worker.index]
        with worker.dataflow("there", order=INT) as scope:
            stream = scope.replay(*(EventReader(tmp_path / name, INT) for name in mine)).broadcast()
            return stream.inspect(lambda stamp, batch: seen[worker.index].append((stamp[0], batch))).probe()

    probes = DeterministicCluster(peers=2, seed=seed).run(build)
    assert all(probe.done() for probe in probes)
    for here in seen:
        assert sorted(here) == [(time, f"{name}{time}") for time in range(3) for name in "abc"]


def test_a_long_file_is_taken_in_turns(worker: Worker, finish: Callable[[Worker], int]) -> None:
    data = written([Messages((0,), n) for n in range(1000)] + [Progress(((0, -1),))])
    seen, probe = replayed(worker, EventReader(io.BytesIO(data), INT))
    counts = []
    for _ in range(10):
        worker.step()
        counts.append(len(seen))
    assert probe.done()
    assert counts[0] == 256
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 256
    assert [batch for _, batch in seen] == list(range(1000))


@pytest.mark.parametrize("torn", [False, True])
def test_a_file_that_ends_early_keeps_its_frontier(worker: Worker, tmp_path: Path, *, torn: bool) -> None:
    keep(tmp_path / "a", [(0, "x"), (3, "y")], close=False)
    data = (tmp_path / "a").read_bytes()
    if torn:
        data = data[:-1]
    reader = EventReader(io.BytesIO(data), INT)
    seen, probe = replayed(worker, reader)
    for _ in range(10):
        assert worker.step()
    assert seen == [((0,), "x"), ((3,), "y")]
    assert probe.frontier().elements() == ((0,) if torn else (3,))
    assert reader.ending is not None
    assert not reader.ending.complete
    assert (reader.ending.torn > 0) == torn
    [holder] = worker.explain_stuck()
    assert "it ends at byte" in str(holder)


def test_a_damaged_file_gives_what_is_whole_and_then_its_error(worker: Worker) -> None:
    data = written([Messages((0,), n) for n in range(10)] + [Progress(((0, -1),))])
    spoilt = bytearray(data)
    spoilt[data.index(b"[0]7") + 3] ^= 1
    seen, probe = replayed(worker, EventReader(io.BytesIO(bytes(spoilt)), INT))
    with pytest.raises(OperatorFailed) as caught:
        steps(worker, 10)
    assert isinstance(caught.value.__cause__, DamagedEvents)
    steps(worker, 5)
    assert [batch for _, batch in seen] == list(range(7))
    assert probe.frontier().elements() == (0,)


def test_a_capture_and_its_carrier_have_one_order(worker: Worker) -> None:
    with pytest.raises(InvalidGraph, match="cannot be recorded"), worker.dataflow("loop", order=LOOP) as scope:
        scope.input("a")[1].capture(into=EventWriter(io.BytesIO(), INT))
    with pytest.raises(InvalidGraph, match="cannot be replayed"), worker.dataflow("loop", order=LOOP) as scope:
        scope.replay(EventReader(io.BytesIO(written([])), INT))


def test_a_full_disk_stops_the_capture_and_nothing_more_is_written(worker: Worker) -> None:
    room = 120

    class Disk(io.RawIOBase):
        def __init__(self) -> None:
            self.held = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            part = bytes(data)[: min(7, room - len(self.held))]
            if not part:
                raise OSError(28, "No space left on device")
            self.held += part
            return len(part)

    disk = Disk()
    with worker.dataflow("here", order=INT) as scope:
        handle, stream = scope.input("numbers")
        probe = stream.probe()
        writer = stream.capture(into=EventWriter(disk, INT))  # type: ignore[arg-type]
    for n in range(3):
        handle.send(["a batch of some length", n])
    handle.close()
    with pytest.raises(OperatorFailed, match="No space left"):
        steps(worker, 5)
    with pytest.raises(WriterBroken, match="No space left"):
        writer.append(Progress(((0, -1),)))
    assert len(disk.held) == room
    assert not read(disk.held)[2].complete
    steps(worker, 5)
    assert probe.done()
    assert worker.step()


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("precious")
    with pytest.raises(FileExistsError):
        EventWriter(tmp_path / "a", INT)
    assert (tmp_path / "a").read_text() == "precious"
    with pytest.raises(NotEvents):
        EventReader(tmp_path / "a", INT)


# Sockets.


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as there:
        here, _ = server.accept()
        with here:
            yield here, there


def until(worker: Worker, reached: Callable[[], bool]) -> None:
    """Step until it is so; what never comes is said within half a minute."""
    patience = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < patience, [str(holder) for holder in worker.explain_stuck()]
        worker.step_or_park(1.0)


def test_a_stream_crosses_a_socket(worker: Worker, connection: tuple[socket.socket, socket.socket]) -> None:
    here, there = connection
    sender = Worker(lambda: 0.0, validate=True)
    with sender.dataflow("here", order=INT) as scope:
        handle, stream = scope.input("numbers")
        stream.capture(into=EventWriter(here, INT))
    with EventReceiver(there, INT) as receiver:
        seen, probe = replayed(worker, receiver)
        for now in range(5):
            handle.advance_to(now)
            handle.send(pa.record_batch({"n": [now]}))
            sender.step()
            sender.step()
            until(worker, lambda now=now: len(seen) > now and not probe.less_than(now))  # type: ignore[misc]
            assert not probe.done()
        handle.close()
        while sender.step():
            pass
        here.close()
        until(worker, probe.done)
        until(worker, lambda: receiver.ending is not None)
        assert [batch["n"].to_pylist() for _, batch in seen] == [[n] for n in range(5)]
        assert receiver.ending is not None
        assert receiver.ending.complete


def test_a_connection_that_ends_after_its_dataflow_is_seen_to_end(
    worker: Worker, connection: tuple[socket.socket, socket.socket]
) -> None:
    here, there = connection
    here.sendall(written([Progress(((0, -1),))]))
    with EventReceiver(there, INT) as receiver:
        _, probe = replayed(worker, receiver)
        until(worker, probe.done)
        here.close()
        until(worker, lambda: receiver.ending is not None)
        assert receiver.ending is not None
        assert receiver.ending.complete


@pytest.mark.parametrize("cut", [0, 5])
def test_a_connection_that_breaks_keeps_its_frontier(
    worker: Worker, connection: tuple[socket.socket, socket.socket], cut: int
) -> None:
    here, there = connection
    data = written([Messages((0,), "x"), Progress(((0, -1), (3, 1)))])
    here.sendall(data + written([Messages((0,), "x")])[-cut:][:cut])
    here.close()
    with EventReceiver(there, INT) as receiver:
        seen, probe = replayed(worker, receiver)
        until(worker, lambda: receiver.ending is not None)
        for _ in range(5):
            assert worker.step()
        assert seen == [((0,), "x")]
        assert probe.frontier().elements() == (3,)
        assert receiver.ending is not None
        assert (receiver.ending.complete, receiver.ending.torn, receiver.ending.at) == (False, cut, len(data))
        [holder] = worker.explain_stuck()
        assert "it ends at byte" in str(holder)


def test_damage_on_a_connection_comes_after_what_is_whole(
    worker: Worker, connection: tuple[socket.socket, socket.socket]
) -> None:
    here, there = connection
    here.sendall(written([Messages((0,), "x")]) + bytes(100))
    with EventReceiver(there, INT) as receiver:
        seen, probe = replayed(worker, receiver)
        with pytest.raises(OperatorFailed) as caught:
            until(worker, probe.done)
        assert isinstance(caught.value.__cause__, DamagedEvents)
        until(worker, lambda: bool(seen))
        assert probe.frontier().elements() == (0,)


def test_a_reader_that_does_not_take_makes_the_writer_wait(
    worker: Worker, connection: tuple[socket.socket, socket.socket]
) -> None:
    here, there = connection
    batch = bytes(2**16)
    count = 4 * AHEAD

    def send() -> None:
        writer = EventWriter(here, INT)
        for _ in range(count):
            writer.append(Messages((0,), batch))
        writer.append(Progress(((0, -1),)))
        here.close()

    with EventReceiver(there, INT) as receiver:
        seen: list[int] = []
        with worker.dataflow("there", order=INT) as scope:
            probe = scope.replay(receiver).inspect(lambda _, got: seen.append(len(got))).probe()
        thread = threading.Thread(target=send)
        thread.start()
        full = threading.Event()
        while receiver.waiting < AHEAD - 1 and not full.wait(0.001):
            assert not probe.done()
        assert receiver.waiting <= AHEAD
        assert thread.is_alive()
        until(worker, probe.done)
        thread.join()
        assert seen == [len(batch)] * count


def test_a_receiver_can_be_closed_while_it_waits(
    worker: Worker, connection: tuple[socket.socket, socket.socket]
) -> None:
    _, there = connection
    receiver = EventReceiver(there, INT)
    _, probe = replayed(worker, receiver)
    worker.step()
    receiver.close()
    until(worker, lambda: receiver.ending is not None)
    assert probe.frontier().elements() == (0,)
    assert "closed here" in str(receiver.ending)


CHILD = """
import socket, sys
from tidegauge.dataflow import INT
from tidegauge.dataflow import EventWriter
from tidegauge.dataflow import Worker
worker = Worker(lambda: 0.0)
with worker.dataflow("here", order=INT) as scope:
    inputs = [scope.input(name) for name in ("whole", "broken")]
    for _, stream in inputs:
        stream.capture(into=EventWriter(socket.create_connection(("127.0.0.1", int(sys.argv[1]))), INT))
(whole, _), (broken, _) = inputs
for time in range(3):
    for handle in (whole, broken):
        handle.send({"time": time})
        handle.advance_to(time + 1)
    worker.step()
whole.close()
while True:
    worker.step_or_park(1.0)
"""


def test_a_stream_crosses_from_process_to_process_and_a_killed_one_releases_nothing(worker: Worker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen([sys.executable, "-c", CHILD, str(server.getsockname()[1])])
        receivers = [EventReceiver(server.accept()[0], INT) for _ in range(2)]
    with closing(receivers[0]), closing(receivers[1]):
        seen, probes = [], []
        with worker.dataflow("there", order=INT) as scope:
            for receiver in receivers:
                stream = scope.replay(receiver).inspect(lambda stamp, batch: seen.append((stamp[0], batch)))
                probes.append(stream.probe())
        until(worker, lambda: probes[0].done() and not probes[1].less_than(3))
        process.kill()
        process.wait()
        until(worker, lambda: all(receiver.ending is not None for receiver in receivers))
        assert sorted(time for time, _ in seen) == [0, 0, 1, 1, 2, 2]
        assert all(batch == {"time": time} for time, batch in seen)
        assert receivers[0].ending is not None
        assert receivers[0].ending.complete
        assert receivers[1].ending is not None
        assert receivers[1].ending.frontier == (3,)
        assert probes[1].frontier().elements() == (3,)


def test_an_encoder_that_refused_goes_on_as_if_nothing_had_been() -> None:
    encoder = Encoder("here", INT)
    data = encoder.start()
    with pytest.raises(NotWritable):
        encoder.encode(Messages((0,), {1}))
    with pytest.raises(IllegalEvent):
        encoder.encode(Progress(((7, -1),)))
    data += encoder.encode(Messages((0,), "x"))
    assert read(data)[0] == [Messages((0,), "x")]


@pytest.mark.parametrize(
    ("order", "value"),
    [
        (PARTITIONED, [[[1, 5, 0], [1, 5, 0]], 0]),  # no key is in the interval
        (PARTITIONED, [[[1, "five", 0], [1, 6, 0]], 0]),  # the keys do not sort
        (PARTITIONED, [[[0], [3]], 0]),  # no cut
        (PARTITIONED, [[[0], [2]], -1]),
        (INT, -1),
        (INT, "1"),
        (Product(INT, INT), [1]),
        (Product(INT, PARTITIONED), [1, [[[1, 5, 0], [1, 5, 0]], 0]]),
    ],
)
def test_what_is_no_time_of_the_order_is_not_read_as_one(order: Any, value: Any) -> None:
    with pytest.raises(ValueError):
        Notation.of(order).decode(value)
