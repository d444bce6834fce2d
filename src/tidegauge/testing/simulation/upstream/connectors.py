"""Connectors of bytewax over rows in memory: a `FixedPartitionedSource`, and a `DynamicSource`.

They do what connectors do: some items or none at a time, exceptions before and after the items are read, calls that
take long, states of a kind that cannot be kept. Both meet the world in each method.

Invariant: nobody pickles them, and no partition is asked before it is to wake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from bytewax.inputs import DynamicSource, FixedPartitionedSource, StatefulSourcePartition, StatelessSourcePartition

from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.upstream.served import Item, ServedPart, ServedParts, ServedQueue, ServedReader

__all__ = ["SimulatedParts", "SimulatedQueue"]

_FEW: Final = 7
_ENDS: Final = 0.03
"""How often a partition that has nothing more says that it has ended."""
_WAKES: Final = 0.7
"""Seconds after which a partition that had nothing is to be asked again."""
_LONGEST: Final = 20.0
"""Seconds for which a partition has its caller wait, at most."""


def _refuse(served: ServedParts | ServedQueue) -> None:
    if served.away:
        raise ConnectionError("nobody answers")


class _Unkept:
    """A state that would have to be pickled."""

    def __reduce__(self) -> NoReturn:
        raise AssertionError("somebody pickles a state")


@dataclass(eq=False)
class SimulatedParts(FixedPartitionedSource[Item, Any]):
    """Partitions, as one driver has them. meet: how it meets the world. now: its wall clock."""

    served: ServedParts
    reader: ServedReader
    meet: Any
    now: Callable[[], datetime]

    def list_parts(self) -> list[str]:
        """Return the partitions that are listed at present."""
        self.meet("list")
        _refuse(self.served)
        self.reader.listed = [name for name, part in self.served.parts.items() if part.listed]
        return self.reader.listed

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> _ReadPart:  # noqa: ARG002
        """Return a partition that goes on from a state."""
        self.meet("build")
        _refuse(self.served)
        at = self.served.built(self.reader, for_part, resume_state)
        return _ReadPart(self, for_part, self.served.parts[for_part], at)

    def __reduce__(self) -> NoReturn:
        raise AssertionError("somebody pickles a connector")


@dataclass(eq=False)
class _ReadPart(StatefulSourcePartition[Item, Any]):
    of: SimulatedParts
    name: str
    part: ServedPart
    at: int
    closed: bool = False
    wake: datetime | None = None

    def next_awake(self) -> datetime | None:
        """Return when it is to be asked again: soon, however somebody sets the clock."""
        if self.wake is not None:
            self.wake = min(self.wake, self.of.now() + timedelta(seconds=_WAKES))
        return self.wake

    def next_batch(self) -> list[Item]:
        """Return some rows, none, or that it has ended."""
        served, meet, part = self.of.served, self.of.meet, self.part
        if self.wake is not None and self.of.now() < self.wake:
            served.broken = served.broken or Broken("a partition is not asked before it is to wake", self.name)
        meet("fetch")
        _refuse(served)
        if part.manner == "waits" and part.rows <= self.at:
            meet.wait(lambda: part.rows > self.at or self.of.reader.gone(), _LONGEST)
        count = min(part.rows - self.at, served.random.randrange(_FEW))
        items = [(part.number, at) for at in range(self.at, self.at + count)]
        self.at += count
        idle = part.manner == "wakes" and self.at >= part.rows
        self.wake = self.of.now() + timedelta(seconds=_WAKES) if idle else None
        meet("fetched")
        if not count and self.at >= part.rows and part.manner != "waits" and served.random.random() < _ENDS:
            self.of.reader.ended[self.name] = self.at
            raise StopIteration
        return items

    def snapshot(self) -> Any:
        """Return its state, which now and then is of no kind that is kept."""
        self.of.meet("snapshot")
        if self.of.served.unkept:
            self.of.served.unkept = False
            return _Unkept()
        return self.part.state(self.at)


@dataclass(eq=False)
class SimulatedQueue(DynamicSource[Item]):
    """A queue, as one driver has it. meet: how it meets the world."""

    served: ServedQueue
    reader: ServedReader
    meet: Any

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Taking:  # noqa: ARG002
        """Return what takes from the queue."""
        self.meet("build")
        _refuse(self.served)
        self.reader.reading = True
        return _Taking(self)

    def __reduce__(self) -> NoReturn:
        raise AssertionError("somebody pickles a connector")


@dataclass(eq=False)
class _Taking(StatelessSourcePartition[Item]):
    of: SimulatedQueue

    def next_batch(self) -> list[Item]:
        """Take some rows. They are lost where the answer gets lost."""
        served, meet = self.of.served, self.of.meet
        meet("fetch")
        _refuse(served)
        if not served.waiting:
            meet.wait(lambda: bool(served.waiting) or self.of.reader.gone(), _LONGEST)
        count = min(len(served.waiting), served.random.randrange(_FEW))
        items = [(0, served.waiting.popleft()) for _ in range(count)]
        meet("fetched")
        self.of.reader.taken += items
        return items

    def close(self) -> None:
        """Read no more."""
        self.of.reader.reading = False
