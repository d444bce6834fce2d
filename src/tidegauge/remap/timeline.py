"""The flow's remap tables in memory under one count of epochs.

Invariant. Append-only: what an operator reads below its input frontier never changes again, so the operators of a
flow may share one timeline although only the remap operator appends to it.

>>> from datetime import UTC, timedelta
>>> from tidegauge.remap.frontier import Frontier
>>> timeline = Timeline({"orders": RemapTable("orders")})
>>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
>>> timeline.append(0, {"orders": Proposal(frontier=Frontier({"p0": 5}))}, at=noon)
>>> timeline.upper, timeline.bound("orders").frontier, timeline.at_time(noon + timedelta(days=1))
(1, Frontier({'p0': 5}), 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegauge.remap.binding import Bound, Detail, EarlierColumns, Observation, Proposal
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.table import RemapTable
from tidegauge.remap.times import EpochTimes

if TYPE_CHECKING:
    from tidegauge.remap.history import Link

__all__ = ["Timeline"]


class Timeline:
    """The epochs before `upper` are bound. `tables` answers for each source; its next probe starts from `bound`."""

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
        earlier: Mapping[str, tuple[EarlierColumns, ...]] | None = None,
    ) -> None:
        self.tables = dict(tables)
        self.upper = upper
        self._times = EpochTimes() if times is None else times
        self._details = {name: dict((details or {}).get(name, {})) for name in self.tables}
        self._identities = {name: (identities or {}).get(name, "") for name in self.tables}
        self._schemas = {name: (schemas or {}).get(name) for name in self.tables}
        self._states = {name: (states or {}).get(name) for name in self.tables}
        self._incarnations = dict(incarnations or {})
        self._earlier = dict(earlier or {})
        self._last: dict[str, Observation] = {}

    def append(self, epoch: int, proposals: Mapping[str, Proposal], *, at: datetime | None = None) -> None:
        """Take in a binding that is durable. Epochs are dense: `epoch` is the present upper.

        at: when it was minted, which `at_time` has to know of every epoch.
        """
        if epoch != self.upper:
            raise ValueError(f"epoch {epoch} does not follow {self.upper - 1}")
        if at is not None and self._times.upper == epoch:
            self._times.append(at)
        for source, proposal in proposals.items():
            self.tables[source].append(epoch, proposal.frontier)
            if proposal.details:  # a new mapping: who plans with earlier knowledge still has the old one
                self._details[source] = {**self._details[source], **proposal.details}
            self._identities[source] = self._identities[source] or proposal.identity
            self._states[source] = proposal.state or self._states[source]
        self.upper = epoch + 1
        for table in self.tables.values():
            table.advance(self.upper)

    def follow(self, link: Link) -> None:
        """Take in an epoch that is durable as a link of the history, which is not whole. Costs what it changes."""
        if link.epoch != self.upper:
            raise ValueError(f"epoch {link.epoch} does not follow {self.upper - 1}")
        if self._times.upper == link.epoch:
            self._times.append(link.minted_at)
        for source, moves in link.sources.items():
            if moves.positions or moves.sealed:
                self.tables[source].extend(link.epoch, moves.positions, sealed=moves.sealed)
            if moves.details:
                self._details[source] = {**self._details[source], **moves.details}
            self._identities[source] = self._identities[source] or moves.identity
            if moves.state is not None:
                self._states[source] = SourceState.decode(moves.state)
        self.upper = link.epoch + 1
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
            earlier=self._earlier.get(source, ()),
        )

    def schema(self, source: str) -> pa.Schema | None:
        """Return the columns of a source, None before they are known."""
        return self._schemas[source]

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
