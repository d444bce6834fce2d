"""The writers of the rows that a connector of bytewax reads, and what its flow has to make of them.

The flow's own code reads, stages and binds. In place of its connector it has one over rows in memory (`served`,
`connectors`), of the same kind, whose partitions are actors of the driver.

Invariant: no driver resumes from a state that was not told, or from one before the items that it knows to be staged.

>>> import tidegauge as tg
>>> from bytewax.testing import TestingSource
>>> user = tg.BytewaxSource(TestingSource([]), columns="id long, n long", staging="/nowhere")
>>> upstream = BytewaxUpstream("orders", user.placed("shop", "orders"), VirtualClock(), seed=1)
>>> upstream.act(Act(0.5, "append", "orders", 3))
>>> upstream.there(), upstream.end("polls")
({'polls': 1}, 0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.remap.fromtime.polled import POLLS, SourceState
from tidegauge.sources.bytewax.source import BytewaxSource
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.apart import in_actors
from tidegauge.testing.simulation.upstream.counterpart import MetSource
from tidegauge.testing.simulation.upstream.served import Item, ServedParts, ServedQueue, ServedReader, is_left_out
from tidegauge.testing.simulation.writers.lasting import LastingPlaces
from tidegauge.testing.simulation.writers.staging import PollsSeen, hearing_of_polls
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["BytewaxUpstream"]

_TIMEOUT: Final = 5.0
"""Seconds that a partition may take for one call, at most: calls are to come that take longer."""


class BytewaxUpstream(LastingPlaces):
    """What writers write to, and a flow's connector reads."""

    def __init__(self, name: str, source: BytewaxSource, clock: VirtualClock, *, seed: int) -> None:
        from bytewax.inputs import FixedPartitionedSource  # an extra

        self.overtaken = False
        self.name: Final = name
        self.schema: Final = source.schema
        check_columns(name, self.schema)
        random = Random(f"{seed} {name}")  # noqa: S311 - nothing is secret here
        self.served: Final[ServedParts | ServedQueue] = (
            ServedParts(random) if isinstance(source.connector, FixedPartitionedSource) else ServedQueue(random)
        )
        self._clock: Final = clock
        self._seed: Final = seed
        self._staged: Final = PollsSeen(source.owner)
        self._source: Final = replace(
            source, staging=self._staged.path, row=self._row, timeout=min(source.timeout, _TIMEOUT)
        )
        self._polls: Final[list[list[Item]]] = []
        """The items that each staged poll has to have."""

    @property
    def broken(self) -> Broken | None:
        """A law that does not hold."""
        return self.served.broken

    def source(self, meet: Any) -> MetSource:
        """Return the source, as one driver has it."""
        from tidegauge.testing.simulation.upstream.connectors import SimulatedParts, SimulatedQueue

        reader = ServedReader(meet.gone, self.end(POLLS))
        self.served.readers.append(reader)
        connector: Any = (
            SimulatedParts(self.served, reader, meet, self._clock.now)
            if isinstance(self.served, ServedParts)
            else SimulatedQueue(self.served, reader, meet)
        )

        def staged() -> None:
            reader.known += 1

        def within(env: Env) -> Env:
            return hearing_of_polls(env, staged)

        def more(env: Env) -> Mapping[str, Any]:
            connector.now = env.now
            return {"apart": in_actors(meet, env)}

        return MetSource(replace(self._source, connector=connector), meet, within, more)

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Let nobody answer, or somebody again."""
        self.served.away = away

    # What writers do.

    def act(self, act: Act) -> None:
        """Do what a writer does. number: how many rows."""
        self.served.write(act.what, act.number)

    def _row(self, item: Item) -> Mapping[str, Any] | None:
        """Return the row of an item, as the `row=` of a user does."""
        if isinstance(self.served, ServedParts) and is_left_out(item):
            return None
        [row] = self._rows([item]).to_pylist()
        found: Mapping[str, Any] = row
        return found

    def _rows(self, items: Sequence[Item]) -> pa.Table:
        batches = [made(self.schema, seed=self._seed, shard=part, lower=at, upper=at + 1) for part, at in items]
        return pa.Table.from_batches(batches, schema=self.schema)

    # What a check may ask.

    def there(self) -> dict[str, int]:
        """Return how many polls have to arrive: those that are staged, and one if there is more to come."""
        found = self.served.heard(self.end(POLLS)) + self.served.coming()
        return {POLLS: found} if found else {}

    def end(self, place: str) -> int:  # noqa: ARG002
        """Return how many polls are staged."""
        for manifest in self._staged.further():
            value: Any = SourceState.decode(manifest.state).value
            fitting = self._fitting(self._staged.rows(manifest))
            self._polls.append(self.served.has_come(value["parts"], fitting))
        return len(self._polls)

    def _fitting(self, rows: pa.Table) -> Callable[[Sequence[Item]], bool]:
        """Return whether these are the rows of some items, in their order."""
        return lambda items: self._rows(items).to_pylist() == rows.to_pylist()

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of some polls."""
        self.end(place)
        batches = self._rows([item for items in self._polls[lower:upper] for item in items]).to_batches()
        return list(batches)
