"""Where an output begins: what its user said, and the epoch that this comes to, by the timeline alone.

    "now"                 the epoch after the newest bound one
    7                     that epoch
    "2026-11-20 17:00"    the newest epoch minted by then; a time without a zone is UTC
    {"0": 1200}           the first epoch with a record at or beyond these positions

An epoch is taken whole, as everywhere: what epoch 7 holds is the same for every table that holds it. So a position
brings the records that share an epoch with it, too.

Invariants. The answer depends on the timeline and the clock alone, so it is asked for once and then kept: the newest
epoch is another one later. It never names an epoch that cannot be told from those before it, which
would be another beginning.

>>> from tidegauge.remap.frontier import Frontier
>>> table = RemapTable("orders")
>>> for epoch, position in enumerate([5, 9, 9, 14]):
...     table.append(epoch, Frontier({"0": position}))
>>> def begins(said):
...     return OutputStart.of(said).epoch("late", table, times=EpochTimes, now=datetime(2026, 11, 20, tzinfo=UTC))
>>> begins("now"), begins(2), begins({"0": 5}), begins({"0": 9}), begins({"0": 14})
(4, 2, 1, 3, 4)
>>> begins(9)
Traceback (most recent call last):
tidegauge.errors.outputs.StartNotThere: TG-0227: output 'late' cannot begin at epoch 9: the flow has bound 4 epochs...
>>> OutputStart.of("2026-11-20 18:00+01:00") == OutputStart.of(datetime(2026, 11, 20, 17))
True
>>> OutputStart.of({"b": 1, "a": 2}).said
'{"a": 2, "b": 1}'
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import index
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.outputs import StartNotThere
from tidegauge.remap.table import LARGEST, RemapTable
from tidegauge.remap.times import EpochTimes, shown

__all__ = [
    "WITH_SOURCE",
    "OutputStart",
    "StampMode",
    "StampRecord",
    "StartRecord",
    "Starting",
    "epoch_at",
    "start_text",
]

Starting: TypeAlias = int | str | datetime | Mapping[str, int]
"""What users write: `"now"`, an epoch, a time, or positions by partition."""

WITH_SOURCE: Final = "null"
"""The words of an output that begins with its source."""

_NOW: Final = "now"
_EXPECTED: Final = (
    '"now", an epoch counted from 0, a time like 2026-11-20 17:00, or positions by partition like {"0": 1200}'
)
_NAMED: Final = 5
"""How many partitions an error names."""


@dataclass(frozen=True, slots=True)
class OutputStart:
    """Where an output is to begin, in its user's words: JSON, equal for values that mean the same."""

    said: str

    @staticmethod
    def of(value: Any) -> OutputStart:
        """Return what a user said. Raises `InvalidArgument`."""
        return OutputStart(json.dumps(_plain(value), sort_keys=True))

    def epoch(self, output: str, table: RemapTable, *, times: Callable[[], EpochTimes], now: datetime) -> int:
        """Return the first epoch of an output, given the remap table of its source. Raises `StartNotThere`.

        times: when every bound epoch was minted, asked for where that matters. now: the instant of asking.
        """
        value, upper, since = json.loads(self.said), table.upper, table.since

        def refused(why: str) -> StartNotThere:
            return StartNotThere(output=output, start=start_text(self.said), why=why)

        if isinstance(value, dict):
            found = _of_positions(value, table, refused)
        elif isinstance(value, int):
            found = value
            if value >= max(upper, 1):
                raise refused(f"the flow has bound {upper} epochs, counted from 0")
        elif value == _NOW:
            found = upper
        else:
            found = epoch_at(datetime.fromisoformat(value), times, now, refused)
        if since and found <= since:
            raise StartRecord(self.said, found).compacted(output, since=since)
        return found


StampMode: TypeAlias = Literal["faithful", "collapse", "as_of"]
"""Which epochs the rows of the past have: those of their records, the newest published one, or one that was given."""


@dataclass(frozen=True, slots=True)
class StampRecord:
    """Which epoch the past of an output has: the words of an `OutputStamps`, and the epoch that they came to."""

    said: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StartRecord:
    """Where an output begins: the words of an `OutputStart`, and the epoch that they came to.

    stamps: which epoch its past has; None where every row has the epoch of its record.
    """

    said: str
    epoch: int
    stamps: StampRecord | None = None

    @property
    def stamp(self) -> int:
        """The epoch that all rows of earlier ones have."""
        return 0 if self.stamps is None else self.stamps.epoch

    @property
    def past(self) -> range | None:
        """The epochs that are one in the table, None where each is itself."""
        return range(self.epoch, self.stamp + 1) if self.epoch < self.stamp else None

    def compacted(self, output: str, *, since: int) -> StartNotThere:
        """Return the error that says that the epoch is folded into others."""
        why = f"the epochs up to {since} were compacted, and can no longer be told apart"
        return StartNotThere(output=output, start=start_text(self.said), why=why)

    def gone(self, output: str, *, last: int) -> StartNotThere:
        """Return the error that says that nobody can read these records, up to the epoch `last`."""
        why = f"up to epoch {last} the records are of an upstream that was recreated since"
        return StartNotThere(output=output, start=start_text(self.said), why=why)


def start_text(said: str) -> str:
    """Return the words of an `OutputStart`, or of an `OutputStamps`, for people.

    >>> [start_text(OutputStart.of(said).said) for said in ("now", 7, "2026-11-20 17:00", {"0": 1200})]
    ["'now'", 'epoch 7', "'2026-11-20 17:00:00+00:00'", "the positions {'0': 1200}"]
    """
    value = json.loads(said)
    if value is None:
        return "the start of its source"
    if isinstance(value, dict):
        return f"the positions {value}"
    if isinstance(value, int):
        return f"epoch {value}"
    with suppress(ValueError):
        return repr(shown(datetime.fromisoformat(value)))
    return repr(value)


def _plain(value: Any) -> Any:
    """Return the words of a user as JSON data."""
    if isinstance(value, str) and value != _NOW:
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        time = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return time.astimezone(UTC).isoformat()
    if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
        found = {key: _count(position) for key, position in value.items()}
        if None not in found.values():
            return found
    elif value == _NOW or (value := _count(value)) is not None:
        return value
    raise InvalidArgument(parameter="start", value=value, expected=_EXPECTED)


def _count(value: Any) -> int | None:
    """Return a number from 0 that the store can hold, None for anything else."""
    if not isinstance(value, bool):
        with suppress(TypeError):
            return found if 0 <= (found := index(value)) <= LARGEST else None
    return None


def epoch_at(
    time: datetime, times: Callable[[], EpochTimes], now: datetime, refused: Callable[[str], TidegaugeError]
) -> int:
    """Return the newest epoch minted by a time. Before the first one everything is later: that is epoch 0."""
    known = times()
    found = known.at_time(time)
    if time > now and (found is None or found == known.upper - 1):  # epochs to come may be minted by then
        raise refused(f"the clock of this machine says {shown(now)}")
    return found or 0


def _of_positions(positions: Mapping[str, int], table: RemapTable, refused: Callable[[str], StartNotThere]) -> int:
    """Return the first epoch with a record at or beyond one of these positions; the next where there is none yet."""
    bound, found = table.frontier, table.upper
    for partition, position in positions.items():
        if partition not in bound:
            known = ", ".join(sorted(bound)[:_NAMED]) + (", ..." if len(bound) > _NAMED else "")
            raise refused(f"source {table.source!r} has no partition {partition!r} bound, only {known or 'none'}")
        if position > bound[partition]:
            raise refused(f"partition {partition!r} of source {table.source!r} is bound up to {bound[partition]}")
        if position < bound[partition]:
            found = min(found, table.epoch_of(partition, position))
    return found
