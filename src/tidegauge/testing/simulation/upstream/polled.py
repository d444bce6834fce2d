"""`PolledService`: what a polled source asks, in memory. A simulation writes it, and a function asks it.

It keeps all rows that it ever had, numbered. What it answers depends on the merge strategy of its source, as services
do:

    append      the rows after the state, some at a time
    upsert      the same; a row may have a key that came before
    ledger      the same, and some rows before the state again
    snapshot    all rows that there are at present, each key once

Its states are numbers: how many rows were given, or the version of what there is.

Invariant: an answer follows from the two states before and after it. So a check knows the fetched rows by the
states alone.

>>> service = PolledService(Merging("snapshot", ("id",), pa.schema([("id", pa.int64()), ("n", pa.int64())])))
>>> for row in ({"id": 1, "n": 5}, {"id": 2, "n": 6}, {"id": 1, "n": 7}):
...     service.add(row)
>>> service.end, service.payload(0, 3), service.answer(None).rows.to_pylist()
(3, (2, 1), [{'id': 1, 'n': 7}, {'id': 2, 'n': 6}])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.operations import OP
from tidegauge.sources.polls.http import HttpSource
from tidegauge.sources.polls.merging import Merging, merging_of
from tidegauge.sources.polls.source import Fetched, PollingSource

__all__ = ["PolledService", "polls_of"]

_PAGE: Final = 4
_AGAIN: Final = 3
"""How many rows before its state a ledger is given again."""
_UNTOLD: Final = 3
"""The answer after every such number of rows does not say that there is more."""


class PolledService:
    """A service that is polled. away: whether nobody answers. rows: all that it ever had."""

    def __init__(self, merging: Merging) -> None:
        self.away = False
        self.merging: Final = merging
        self.rows: Final[list[dict[str, Any]]] = []
        self._now: dict[tuple[Any, ...], int] = {}
        self._versions: Final[list[tuple[int, ...]]] = [()]

    def add(self, row: Mapping[str, Any]) -> None:
        """Have one more row; in a snapshot, in place of the one with its key."""
        self.rows.append(dict(row))
        if self.merging.how == "snapshot":
            self._now[self.key(len(self.rows) - 1)] = len(self.rows) - 1
            self._versions.append(tuple(self._now.values()))

    def remove(self, at: int) -> None:
        """Take a row out of a snapshot, if there is any."""
        if self._now:
            del self._now[[*self._now][at % len(self._now)]]
            self._versions.append(tuple(self._now.values()))

    def key(self, number: int) -> tuple[Any, ...]:
        """Return the key of a row."""
        return tuple(self.rows[number][name] for name in self.merging.key)

    @property
    def end(self) -> int:
        """The state after all there is."""
        return len(self._versions) - 1 if self.merging.how == "snapshot" else len(self.rows)

    def payload(self, before: int, after: int) -> Sequence[int]:
        """Return the numbers of the rows of the answer between two states."""
        if self.merging.how == "snapshot":
            return self._versions[after]
        again = _AGAIN if self.merging.how == "ledger" else 0
        return range(max(0, before - again), after)

    def answer(self, state: int | None) -> Fetched:
        """Answer a poll. Raises `BrokerUnreachable` while it is away."""
        if self.away:
            raise BrokerUnreachable(servers="memory", detail="it is away")
        before = state or 0
        after = self.end if self.merging.how == "snapshot" else min(self.end, before + _PAGE)
        more = after < self.end and after % _UNTOLD != 0
        return Fetched(self.table(self.payload(before, after)), after or None, more=more)

    def table(self, numbers: Sequence[int]) -> pa.Table:
        """Return some rows."""
        return pa.Table.from_pylist([self.rows[number] for number in numbers], schema=self.merging.columns)


def polls_of(source: PollingSource | HttpSource) -> tuple[PollingSource, PolledService]:
    """Return a source with the columns and the merge strategy of a user's, and the service that it is to ask."""
    columns = pa.schema([column for column in source.schema if column.name != OP])
    polls = PollingSource(
        None,
        columns=columns,
        staging=source.staging,
        every=source.every,
        timeout=source.timeout,
        merge=source.merge,
        key=source.key,
        owner=source.owner,
    )
    return polls, PolledService(merging_of(source.merge, source.key, columns))
