"""The flow's remap tables in memory, one for each source, under one count of epochs.

Invariant: append-only. What an operator reads below its input frontier never changes again, so the operators of a
flow may share one timeline although only the remap operator appends to it.

>>> from tidegauge.remap.frontier import Frontier
>>> timeline = Timeline({"orders": RemapTable("orders")})
>>> timeline.append(0, {"orders": Proposal(frontier=Frontier({"p0": 5}))})
>>> timeline.upper, timeline.bound("orders").frontier
(1, Frontier({'p0': 5}))
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from tidegauge.remap.binding import Bound, Detail, Observation, Proposal
from tidegauge.remap.fromtime.state import SourceState
from tidegauge.remap.table import RemapTable
from tidegauge.remap.times import EpochTimes

__all__ = ["Timeline"]


class Timeline:
    """Epochs `0 ..

    upper - 1` are bound. `tables` answers for each source; `bound` is what its next probe starts from.
    """

    def __init__(
        self,
        tables: Mapping[str, RemapTable],
        *,
        upper: int = 0,
        details: Mapping[str, Mapping[str, Detail]] | None = None,
        schemas: Mapping[str, pa.Schema | None] | None = None,
        identities: Mapping[str, str] | None = None,
        states: Mapping[str, SourceState | None] | None = None,
        incarnations: Mapping[str, int] | None = None,
        times: EpochTimes | None = None,
    ) -> None:
        self.tables = dict(tables)
        self.upper = upper
        self._times = EpochTimes() if times is None else times
        self._details = {name: dict((details or {}).get(name, {})) for name in self.tables}
        self._identities = {name: (identities or {}).get(name, "") for name in self.tables}
        self._schemas = {name: (schemas or {}).get(name) for name in self.tables}
        self._states = {name: (states or {}).get(name) for name in self.tables}
        self._incarnations = dict(incarnations or {})
        self._last: dict[str, Observation] = {}

    def append(self, epoch: int, proposals: Mapping[str, Proposal], *, at: datetime | None = None) -> None:
        """Take in a binding that is durable. Epochs are dense: `epoch` is the present upper.

        at: when it was minted, which `at_time` has to know of every epoch.
        """
        if epoch != self.upper:
            raise ValueError(f"epoch {epoch} does not follow {self.upper - 1}")
        for source, proposal in proposals.items():
            self.tables[source].append(epoch, proposal.frontier)
            self._details[source].update(proposal.details)
            self._identities[source] = self._identities[source] or proposal.identity
            self._states[source] = proposal.state or self._states[source]
        self.upper = epoch + 1
        if at is not None and self._times.upper == epoch:
            self._times.append(at)
        for table in self.tables.values():
            table.advance(self.upper)

    def bound(self, source: str) -> Bound:
        """Return the durable knowledge about a source, and its last answer."""
        return Bound(
            frontier=self.tables[source].frontier,
            details=self._details[source],
            schema=self._schemas[source],
            identity=self._identities[source],
            state=self._states[source],
            incarnation=self._incarnations.get(source, 0),
            last=self._last.get(source),
        )

    def look(self, source: str, observed: Observation) -> None:
        """Take in what a source said last, bound or not; it is all that is not durable here."""
        self._last[source] = observed

    def at_time(self, when: datetime) -> int | None:
        """Return the greatest epoch minted at or before a time (with its zone), None when there is none.

        Times of minting never go back: see `EpochTimes`. Raises ValueError when not all of them were told.
        """
        if self._times.upper != self.upper:
            raise ValueError(f"of {self.upper} epochs, the times of {self._times.upper} are known")
        return self._times.at_time(when)

    def identity(self, source: str) -> str:
        """Return what upstream said of itself when the source was first bound, "" where it says nothing."""
        return self._identities[source]

    def states(self) -> dict[str, SourceState]:
        """Return the newest states that are bound, of the sources that keep any."""
        return {source: state for source, state in self._states.items() if state is not None}

    def fix_schema(self, source: str, schema: pa.Schema) -> None:
        """Take in a schema that is durable. A source's schema is set once."""
        self._schemas[source] = schema
