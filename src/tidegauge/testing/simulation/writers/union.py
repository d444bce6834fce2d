"""The upstream of a union: those of its inputs, which writers write to for themselves.

A place is one of an input, behind the input's name. So a check finds in an epoch of the union what it finds in those
of the inputs.

Invariant: nothing is its own. It is never written to, nor away, but when an input is.

>>> from tidegauge.sources import GeneratorSource
>>> from tidegauge.sources.union import UnionInput
>>> from tidegauge.testing.simulation.clock import VirtualClock
>>> from tidegauge.testing.simulation.writers import upstream_of
>>> columns = {"web": "id long", "shop": "n int"}
>>> inputs = tuple(UnionInput(name, GeneratorSource(columns=said)) for name, said in columns.items())
>>> upstreams = {one.name: upstream_of("f", one.name, one.source, VirtualClock(), seed=1) for one in inputs}
>>> upstreams["web"].act(Act(0.5, "append", "web", 3))
>>> union = UnionUpstream(UnionSource(inputs), upstreams, failed=dict)
>>> [(place.partition("/")[0], end) for place, end in union.there().items()]
[('web', 3)]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.sources.protocol import BadRecord, Source
from tidegauge.sources.union import UnionInput, UnionSource
from tidegauge.sources.union.columns import aligned
from tidegauge.sources.union.places import InputLife, facts_of, split_of
from tidegauge.testing.simulation.evidence import UpstreamEvidence
from tidegauge.testing.simulation.plan import Act

if TYPE_CHECKING:
    from tidegauge.testing.simulation.writers import Upstream

__all__ = ["UnionUpstream"]


class UnionUpstream:
    """The upstreams of a union's inputs, as one. failed: returns the sources that have failed by now."""

    acknowledges: Final = False
    made_anew: Final = 0

    def __init__(
        self, union: UnionSource, upstreams: Mapping[str, Upstream], *, failed: Callable[[], Collection[str]]
    ) -> None:
        self.schema: Final = union.schema
        self._of: Final = {name: upstreams[name] for name in union.made_of}
        self._failed: Final = failed
        self._names: Final[dict[str, str]] = {}
        """What the union calls each place."""

    @property
    def overtaken(self) -> bool:
        """Whether records of an input may be gone that were not read."""
        return any(one.overtaken for one in self._of.values())

    @property
    def spoilt(self) -> bool:
        """Whether an input has a record that cannot be decoded."""
        return any(one.spoilt for one in self._of.values())

    @property
    def whole(self) -> bool:
        """Whether no part of an input is gone at present."""
        return all(one.whole for one in self._of.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(self._of)

    def source_of(self, sources: Mapping[str, Source]) -> UnionSource:
        """Return the union, as one driver has it that has these sources."""
        return UnionSource(tuple(UnionInput(name, sources[name]) for name in self._of))

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Do nothing: the inputs are away, or back."""

    def forget(self, place: str) -> None:
        """Do nothing: what an input's place was, the input knows."""

    def act(self, act: Act) -> None:
        """Do nothing: the inputs are written to."""

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:
        """Return the place of a partition: that of an input, behind its name."""
        life, there = split_of(partition)
        place = InputLife(life.name).partition(self._of[life.name].learn(there, facts_of(details)))
        self._names[place] = partition
        return place

    def there(self) -> dict[str, int]:
        """Return the next position of each place of the inputs that have not failed."""
        failed = self._failed()
        return {
            InputLife(name).partition(place): end
            for name, one in self._of.items()
            if name not in failed
            for place, end in one.there().items()
        }

    def end(self, place: str) -> int:
        """Return the next position of a place."""
        one, there = self._at(place)
        return one.end(there)

    def start(self, place: str) -> int:
        """Return the first position that retention has left."""
        one, there = self._at(place)
        return one.start(there)

    def told(self) -> Mapping[str, int]:
        """Return nothing: the inputs are told."""
        return {}

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a range, with the union's columns."""
        life, there = split_of(place)
        found = self._of[life.name].rows(there, lower, upper)
        return [aligned(batch, self.schema, name=life.name) for batch in found]

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:
        """Return the records of a range that cannot be decoded, as the union names their partitions."""
        one, there = self._at(place)
        return [replace(bad, partition=self._names[place]) for bad in one.bad(there, lower, upper)]

    def blurred(self, place: str, lower: int, upper: int) -> bool:
        """Whether compaction took records of a range."""
        one, there = self._at(place)
        return one.blurred(there, lower, upper)

    def _at(self, place: str) -> tuple[UpstreamEvidence, str]:
        life, there = split_of(place)
        return self._of[life.name], there
