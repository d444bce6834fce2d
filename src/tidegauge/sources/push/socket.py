"""`SocketSource`: newline-delimited JSON over TCP, from a service that keeps a log of its records.

The protocol, version 1. Every line is one JSON object in UTF-8, at most `LONGEST` bytes. The flow connects and says
where it begins; what it does not name begins at 0:

    {"version": 1, "from": {"p0": 5}}

The server answers with the identity of its log, which changes when the log is replaced or restored from a backup, and
with the oldest record that it still has of each partition, 0 where it names none. Then it sends records, in each
partition in ascending order, and lines that say how far it has come. Everything before `frontier` has been sent; a
record counts once such a line has followed. `end` says how far the log goes at present. It names every partition that
has records, and is never before `frontier`; an end before the flow's own frontier is a loss, and fails the source. A
server that leaves it out must itself refuse to begin beyond its end:

    {"version": 1, "log": "6f1b", "oldest": {"p0": 2}}
    {"stream": "orders", "partition": "p0", "offset": 5, "row": {"id": 17}}
    {"frontier": {"p0": 6}, "end": {"p0": 6}}

A source without several streams leaves `stream` out. `frontier` is the first member of its line, and of no other; it
names every partition that has records. It comes at least after every 65,536 records, and every 10 seconds, also
without news: after 30 seconds of silence the flow connects again. With `"sealed": true` it is the end. The flow sends
a line when everything before a frontier is durable in every output; the server may then delete it:

    {"acknowledge": {"p0": 6}}

There is neither encryption nor authentication: use it inside a network that you trust, or through a tunnel.

>>> SocketSource("localhost", 9000, columns="id long, name string").streams[""].names
['id', 'name']
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.engine import UnknownOperation
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.push import NotHeardYet, StartForgotten, WireBroken
from tidegauge.operations import OP, carries, said_of, unknown
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.ddl import as_schema, to_ddl
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.messages import OnBadMessage
from tidegauge.sources.metadata import with_metadata, without_metadata
from tidegauge.sources.protocol import BadRecord, OnBadRecord
from tidegauge.sources.push.protocol import Received
from tidegauge.sources.readable import readable

__all__ = ["LONGEST", "SocketSource"]

pc: Final[Any] = pyarrow.compute

LONGEST: Final = 16 << 20
"""Bytes of the longest line."""
UNFINISHED: Final = 64 << 20
"""Bytes of records without a line that says how far they go."""
SILENCE: Final = 30.0
"""Seconds after which a server that says nothing is taken to be away."""
_SHOWN: Final = 200
_PROGRESS: Final = re.compile(rb'\s*\{\s*"frontier"\s*:')
_ENVELOPE: Final = Json("stream string, partition string, offset long")


@dataclass(frozen=True)
class SocketSource:
    """Records that a service pushes over TCP, one JSON object a line; see the module for the protocol.

    Args:
        host: the name or address of the service.
        port: its port.
        columns: a DDL string or an Arrow schema of each record's `row`; for several streams, one for each by name.
        metadata: add `_partition` and `_offset`. False, to keep rows narrow.
        timeout: seconds to wait for a connection and its first line. 10, so that a service that is away is soon seen.

    Raises `InvalidArgument`, `InvalidSchema`, `ReservedColumn`.
    """

    host: str
    port: int
    columns: str | pa.Schema | Mapping[str, str | pa.Schema]
    metadata: bool = False
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.host, str) or not self.host:
            raise InvalidArgument(parameter="host", value=self.host, expected="a name or an address")
        if not isinstance(self.port, int) or not 0 < self.port < 1 << 16:
            raise InvalidArgument(parameter="port", value=self.port, expected="a port, 1 to 65535")
        if not isinstance(self.timeout, int | float) or not self.timeout > 0:
            raise InvalidArgument(parameter="timeout", value=self.timeout, expected="seconds, above 0")
        if not self.streams:
            raise InvalidArgument(parameter="columns", value=self.columns, expected="at least one stream")

    @property
    def unit(self) -> str:
        """Positions count records."""
        return "records"

    @property
    def streams(self) -> Mapping[str, pa.Schema]:
        """The columns of each stream, metadata columns included."""
        return self._streams

    @cached_property
    def _streams(self) -> Mapping[str, pa.Schema]:
        several = self.columns if isinstance(self.columns, Mapping) else {"": self.columns}
        return {name: self._declared(columns) for name, columns in several.items()}

    def _declared(self, columns: str | pa.Schema) -> pa.Schema:
        schema = as_schema(columns)
        if schema is None or not len(schema):
            raise InvalidArgument(parameter="columns", value=columns, expected="a DDL string or an Arrow schema")
        return with_metadata(Json(schema).schema, metadata=self.metadata, where="the socket")

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        columns = {
            name: to_ddl(without_metadata(found, metadata=self.metadata)) for name, found in self.streams.items()
        }
        return {
            "kind": "socket",
            "host": self.host,
            "port": self.port,
            "columns": columns,
            "metadata": self.metadata,
            "timeout": self.timeout,
        }

    def connect(self, start: Frontier, bound: Bound) -> _Wire:  # noqa: ARG002 - the seam's shape
        """Return a connection that gives every record from `start` on. Raises `StartForgotten`."""
        return _Wire(self, start)

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of lines; a `row` that is missing, or that does not fit the columns, makes a bad record."""
        columns = without_metadata(self.streams[stream], metadata=self.metadata)
        wanted = pa.schema([pa.field("row", pa.struct(list(columns)), nullable=False)])
        lines = batch["_line"].to_pylist()
        partitions, offsets = batch["_partition"], batch["_offset"]

        def bad(i: int, code: str, message: str) -> None:
            on_bad_record(BadRecord(partitions[i].as_py(), offsets[i].as_py(), lines[i], code, message))

        found = Json(wanted).decode_messages(lines, schema=wanted, on_bad=bad)
        rows, indices = found.rows["row"], found.indices
        if carries(columns):
            rows, indices = _operating(rows, indices, bad)
        arrays = rows.flatten()
        if self.metadata:
            kept = batch if indices is None else batch.take(indices)
            arrays += [kept["_partition"], kept["_offset"]]
        return pa.RecordBatch.from_arrays(arrays, schema=self.streams[stream])


def _operating(rows: Any, indices: Any, bad: OnBadMessage) -> tuple[Any, Any]:
    """Return the rows that have an operation, and which lines they are; the others are bad records."""
    column = pc.struct_field(rows, OP)
    wrong = unknown(column)
    if wrong is None:
        return rows, indices
    lines = pa.array(range(len(rows)), pa.int64()) if indices is None else indices
    for line, found in zip(lines.filter(wrong).to_pylist(), column.filter(wrong).to_pylist(), strict=True):
        bad(line, UnknownOperation.code, said_of(found))
    good = pc.invert(wrong)
    return rows.filter(good), lines.filter(good)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The lines of records up to a frontier."""

    lines: Sequence[bytes]
    frontier: Frontier
    end: Frontier | None


class _Wire:
    """One connection. What came is kept as whole lines, until the line that says how far they go."""

    def __init__(self, source: SocketSource, start: Frontier) -> None:
        self.address: Final = f"{source.host}:{source.port}"
        self._source: Final = source
        self._rest = b""
        self._lines: list[bytes] = []
        self._size = 0
        self._whole: deque[_Stretch] = deque()
        self._reached = start
        self._progressed = False
        self._hello: Mapping[str, Any] | None = None
        self._heard_at = time.monotonic()
        self._socket: Final = socket.create_connection((source.host, source.port), timeout=source.timeout)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._send({"version": 1, "from": dict(start.items())})
            self.identity = self._greeted(self._first(source.timeout), start)
        except BaseException:
            self._socket.close()
            raise

    def receive(self, limit: int, seconds: float) -> Received | None:
        """Return the records up to the last frontier that came, or wait for one."""
        deadline = time.monotonic() + seconds
        while not self._whole:
            if (left := deadline - time.monotonic()) <= 0:
                if self._silent() > SILENCE:
                    raise TimeoutError(f"{self.address} has said nothing for {SILENCE:.0f} seconds")
                return None
            self._hear(left)
        lines: list[bytes] = []
        frontier, end, forth = self._reached, None, True
        while forth and self._whole and (not lines or len(lines) + len(self._whole[0].lines) <= limit):
            told = self._whole[0].end
            if end is not None and (told is None or not end.less_equal(told)):
                break  # the reader is to hear of both
            stretch = self._whole.popleft()
            lines += stretch.lines
            # If it does not go forth the reader refuses it, before it goes forth again.
            forth = stretch.frontier.follows(frontier) and (told is None or stretch.frontier.less_equal(told))
            frontier, end = stretch.frontier, told
        self._reached = frontier
        return Received(tuple(self._batches(lines)), frontier, end)

    def acknowledge(self, frontier: Frontier) -> None:
        """Send the frontier. A line that is not sent whole is the end of the connection. Raises `NotHeardYet`."""
        if not self._progressed:
            raise NotHeardYet(address=self.address)
        try:
            self._send({"acknowledge": dict(frontier.items())})
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _silent(self) -> float:
        return time.monotonic() - self._heard_at

    def _hear(self, seconds: float) -> None:
        """Take in the bytes that come within these seconds."""
        if not readable(self._socket, seconds):
            return
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError(f"{self.address} closed the connection")
        self._heard_at = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) > LONGEST:
            self._refuse(self._rest, f"it is longer than {LONGEST} bytes")

    def _take(self, line: bytes) -> None:
        if len(line) > LONGEST:
            self._refuse(line, f"it is longer than {LONGEST} bytes")
        if self._hello is None:
            self._hello = self._object(line)
        elif _PROGRESS.match(line):
            found = self._object(line)
            end = None if found.get("end") is None else self._frontier(line, found["end"])
            frontier = self._frontier(line, found["frontier"], sealed=found.get("sealed") is True)
            self._whole.append(_Stretch(self._lines, frontier, end))
            self._progressed = True
            self._lines, self._size = [], 0
        else:
            self._lines.append(line)
            self._size += len(line)
            if self._size > UNFINISHED:
                self._refuse(line, f"{self._size} bytes of records came without a line that says how far they go")

    def _first(self, timeout: float) -> Mapping[str, Any]:
        """Wait for the first line."""
        while (hello := self._hello) is None:
            if self._silent() > timeout:
                raise TimeoutError(f"{self.address} did not answer within {timeout} seconds")
            self._hear(timeout)
        return hello

    def _greeted(self, hello: Mapping[str, Any], start: Frontier) -> str:
        """Return the identity of the log. Raises `StartForgotten` when it no longer has `start`."""
        line = json.dumps(hello).encode()
        if hello.get("version") != 1 or not isinstance(hello.get("log"), str):
            self._refuse(line, "it names neither version 1 nor the identity of a log")
        for partition, oldest in self._frontier(line, hello.get("oldest") or {}).items():
            if oldest > start[partition]:
                raise StartForgotten(source=self.address, partition=partition, oldest=oldest, start=start[partition])
        return str(hello["log"])

    def _object(self, line: bytes) -> Mapping[str, Any]:
        try:
            found = json.loads(line, parse_constant=_no_number, parse_float=_no_number)
        except (ValueError, RecursionError) as error:
            self._refuse(line, str(error)[:_SHOWN])
        if not isinstance(found, dict):
            self._refuse(line, "it is no JSON object")
        return found

    def _frontier(self, line: bytes, positions: object, *, sealed: bool = False) -> Frontier:
        if not isinstance(positions, dict) or not all(
            type(position) is int and 0 <= position < 1 << 63 for position in positions.values()
        ):
            self._refuse(line, "its positions are not from 0 to 2**63 - 1, one for each partition")
        return Frontier(positions, sealed=sealed)

    def _batches(self, lines: Sequence[bytes]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the lines of each stream with the places of their records."""
        if not lines:
            return

        def bad(i: int, _code: str, message: str) -> None:
            self._refuse(lines[i], message)

        found = _ENVELOPE.decode_messages(lines, schema=_ENVELOPE.schema, on_bad=bad).rows
        for name in ("partition", "offset"):
            if found[name].null_count:
                self._refuse(lines[pc.index(found[name].is_null(), True).as_py()], f"it has no {name}")
        if (twice := _not_ascending(found)) is not None:
            self._refuse(lines[twice], "the records of its partition are not in ascending order of their offsets")
        names = found["stream"].fill_null("").dictionary_encode()
        placed = pa.RecordBatch.from_arrays(
            [found["partition"], found["offset"], pa.array(lines, pa.binary())], ["_partition", "_offset", "_line"]
        )
        for code, stream in enumerate(names.dictionary.to_pylist()):
            yield stream, placed if len(names.dictionary) == 1 else placed.filter(pc.equal(names.indices, code))

    def _refuse(self, line: bytes, problem: str) -> NoReturn:
        raw = repr(line[:_SHOWN].decode("utf-8", "backslashreplace")) + ("..." if len(line) > _SHOWN else "")
        raise WireBroken(address=self.address, raw=raw, problem=problem)


def _not_ascending(places: pa.RecordBatch) -> int | None:
    """Return the first record that is not beyond the one before it in its partition, None where all are.

    >>> _not_ascending(pa.record_batch({"partition": ["a", "b", "a", "a"], "offset": [1, 0, 2, 2]}))
    3
    """
    partitions = places["partition"].dictionary_encode()
    offsets = places["offset"].to_numpy()
    codes = partitions.indices.to_numpy()
    found = []
    for code in range(len(partitions.dictionary)):
        rows = np.flatnonzero(codes == code)
        back = np.flatnonzero(np.diff(offsets[rows]) <= 0)
        found += rows[back[:1] + 1].tolist()
    return min(found, default=None)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no whole number")
