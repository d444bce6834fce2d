"""`as_output`: a sink of bytewax as an output, which is given the rows of one epoch after the other.

    flow.sink("archive", orders, as_output(FileSink(Path("archive.txt")), "progress/archive", item=line_of))

It is a `ForeachEpochSink`, in whose folder the resume states of the partitions are kept:

    <path>/bytewax.json    {"owner": [flow, output, incarnation], "epoch": 7, "parts": [[name, encoded state], ...]}

The order of an epoch, each step safe to crash after:

    build       the partitions from the states after the last epoch that is kept, unless they are there
    write       the items of the epoch, each to its partition
    keep        the epoch and the states after it
    return      the progress of the output is noted

Invariant: the states that are kept are those after the items of `epoch`, and an epoch that is kept is not written
again. So a `FixedPartitionedSink` that resumes where its `snapshot()` was has each row once, as in a bytewax
dataflow; any other one, and a `DynamicSink`, has it at least once.

>>> import tempfile
>>> from bytewax.connectors.files import FileSink
>>> with tempfile.TemporaryDirectory() as root:
...     given = Path(root, "out.txt")
...     write = _TheirSink(FileSink(given), root, lambda row: ("", str(row["n"])), stateful=True)
...     for epoch in (0, 0, 1):
...         rows = pa.table({"n": [epoch, 10 + epoch]}).to_reader()
...         write(rows, EpochAttempt("shop", "archive", "0" * 32, epoch, "1" * 32))
...     given.read_text().split()
['0', '10', '1', '11']
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from bytewax.outputs import DynamicSink, FixedPartitionedSink

from tidegauge.disk import synchronise, write_durably
from tidegauge.errors.bytewax import SinkUnfit
from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.fromtime.encoding import JsonValue
from tidegauge.sinks.foreach.function import EpochAttempt
from tidegauge.sinks.foreach.sink import ForeachEpochSink
from tidegauge.sources.polls.states import decoded, encoded

__all__ = ["as_output"]

_STATES: Final = "bytewax.json"
_BATCH: Final = 10_000
"""Rows that become items at a time."""


def as_output(sink: Any, path: str, *, item: Callable[[dict[str, Any]], Any] | None = None) -> ForeachEpochSink:
    """Return a sink of bytewax as the sink of an output.

    Args:
        sink: a `FixedPartitionedSink` or a `DynamicSink`. It lives in the driver, and is built as for the one worker
            of a dataflow.
        path: a folder of its own that the tasks see too, for the output's progress, its states and its staged rows.
        item: a function of a row, as a dict with `_epoch`, that returns its item: for a `FixedPartitionedSink` a pair
            of a key (a text) and a value. Without it, a `DynamicSink` gets the dicts.

    Raises `InvalidArgument`, `UnsupportedLocation`. An item that is no such pair, and a state of a type that is not
    kept, fail the output (`SinkUnfit`).
    """
    if not isinstance(sink, FixedPartitionedSink | DynamicSink):
        raise InvalidArgument(parameter="sink", value=sink, expected="a bytewax FixedPartitionedSink or DynamicSink")
    stateful = isinstance(sink, FixedPartitionedSink)
    if not callable(item) and (stateful or item is not None):
        raise InvalidArgument(parameter="item", value=item, expected="a function of a row that returns (key, value)")
    found = ForeachEpochSink(_nothing, path)
    return ForeachEpochSink(_TheirSink(sink, found.path, item, stateful=stateful), path)


def _nothing(_rows: pa.RecordBatchReader, _attempt: EpochAttempt) -> None:
    """Stand for the function until the folder is known."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What the file says. epoch: the last one whose items are written, -1 before the first."""

    owner: tuple[str, str, str]
    epoch: int = -1
    parts: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(eq=False)
class _TheirSink:
    """The function of the output."""

    sink: Any
    folder: str
    item: Callable[[dict[str, Any]], Any] | None
    stateful: bool = field(kw_only=True)
    _live: tuple[_Written, dict[str, Any]] | None = None
    """The partitions, and the states after their last epoch."""

    def __post_init__(self) -> None:
        self.__qualname__ = type(self.sink).__qualname__  # errors show it

    def __call__(self, rows: pa.RecordBatchReader, attempt: EpochAttempt) -> None:
        """Write an epoch, unless it is written. Raises `SinkUnfit`, and what the sink raises."""
        kept = self._read(attempt)
        if attempt.epoch <= kept.epoch:
            return
        live, self._live = self._live, None
        if live is not None and live[0] == kept:
            parts = live[1]
        else:
            self._close({} if live is None else live[1])
            parts = self._built(kept, attempt)
        try:
            for batch in rows:
                for start in range(0, batch.num_rows, _BATCH):
                    self._write(batch.slice(start, _BATCH).to_pylist(), parts, attempt)
            kept = self._keep(kept, parts, attempt)
        except BaseException:
            self._close(parts)
            raise
        self._live = kept, parts

    def _built(self, kept: _Written, attempt: EpochAttempt) -> dict[str, Any]:
        step = f"{attempt.flow}.{attempt.output}"
        if not self.stateful:
            return {"worker": self.sink.build(step, 0, 1)}
        names = sorted(set(self.sink.list_parts()))
        if not names:
            raise self._unfit(attempt, "list_parts() names no partition")
        states = {name: decoded(kept.parts.get(name)) for name in names}
        return {name: self.sink.build_part(step, name, states[name]) for name in names}

    def _write(self, rows: list[dict[str, Any]], parts: dict[str, Any], attempt: EpochAttempt) -> None:
        items = rows if self.item is None else [self.item(row) for row in rows]
        if not self.stateful:
            parts["worker"].write_batch(items)
            return
        names, routed = list(parts), dict[str, list[Any]]()
        for one in items:
            if not (isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)):
                problem = f"item= returned a {type(one).__name__}, which is no pair of a str and a value"
                raise self._unfit(attempt, problem)
            routed.setdefault(names[self.sink.part_fn(one[0]) % len(names)], []).append(one[1])
        for name, values in routed.items():
            parts[name].write_batch(values)

    def _keep(self, kept: _Written, parts: dict[str, Any], attempt: EpochAttempt) -> _Written:
        """Keep the states after an epoch, durably."""
        states = dict(kept.parts)
        if self.stateful:
            for name, part in parts.items():
                try:
                    states[name] = encoded(part.snapshot())
                except TypeError as error:
                    raise self._unfit(attempt, f"the state of partition {name!r} cannot be kept: {error}") from error
        now = _Written(kept.owner, attempt.epoch, states)
        said = {"owner": now.owner, "epoch": now.epoch, "parts": sorted(states.items())}
        beside = Path(self.folder, f"{_STATES}.new")
        write_durably(beside, json.dumps(said).encode())
        beside.replace(Path(self.folder, _STATES))
        synchronise(Path(self.folder))
        return now

    def _read(self, attempt: EpochAttempt) -> _Written:
        owner = attempt.flow, attempt.output, attempt.incarnation
        try:
            said: Any = json.loads(Path(self.folder, _STATES).read_bytes())
            found = _Written(tuple(said["owner"]), said["epoch"], dict(said["parts"]))
        except FileNotFoundError:
            return _Written(owner)
        except (ValueError, KeyError, TypeError) as error:
            raise self._unfit(attempt, f"its states in {self.folder} cannot be read: {error}") from error
        if found.owner != owner:
            raise self._unfit(attempt, f"the states in {self.folder} are those of {':'.join(found.owner)}")
        return found

    def _unfit(self, attempt: EpochAttempt, problem: str) -> SinkUnfit:
        return SinkUnfit(
            connector=type(self.sink).__qualname__, output=f"{attempt.flow}:{attempt.output}", problem=problem
        )

    @staticmethod
    def _close(parts: Mapping[str, Any]) -> None:
        for part in parts.values():
            with suppress(Exception):
                part.close()
