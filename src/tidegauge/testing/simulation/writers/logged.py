"""A dataflow of bytewax that writes a log for a flow, and what the flow has to make of it.

The log is written by the code that `tidegauge.bytewax.LogSink` stands on, and beside it a recovery store as bytewax
has it, both in a temporary folder that is gone with the world. The dataflow numbers its rows. Each goes to a
partition of the sink, and each partition to a worker, which does one step after the other, some at each act:

    append      rows come; the epoch ends, or goes on. Each worker seals its partitions when it comes to the end of an
                epoch, writes their states, and then how far it is: one may be epochs ahead of another
    transact    the dataflow is killed. At the next act it resumes, and makes its rows again, in other epochs
    compact     bytewax removes states that newer ones have replaced
    grow        the dataflow is killed, and resumes with another number of workers, and of partitions

Invariant: a published piece is one that bytewax cannot take back, and no row is in two of them.

>>> import tidegauge as tg
>>> source = tg.BytewaxLogSource("/log", recovery="/recovery", columns="id long")
>>> upstream = LoggedUpstream("clicks", source, seed=1)
>>> for number in range(8):
...     upstream.act(Act(number + 0.5, "append", "clicks", 3))
>>> sum(upstream.there().values()) > 0, upstream.broken
(True, None)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.sources.batches.manifest import read_manifest
from tidegauge.sources.bytewax.log import LogEnd, LogWriter, begin, published_in
from tidegauge.sources.bytewax.logged import BytewaxLogSource
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.counterpart import MetSource
from tidegauge.testing.simulation.upstream.recovery import WrittenRecovery
from tidegauge.testing.simulation.writers.lasting import LastingPlaces
from tidegauge.testing.simulation.writers.staging import StagingFolder
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["LoggedUpstream"]

_STEP: Final = "theirs.out"
_MOST_PARTS: Final = 4
_MOST_WORKERS: Final = 3
_ENDS: Final = 0.6
"""How often an epoch ends with the rows of an act."""


@dataclass(slots=True)
class _LivingDataflow:
    """A dataflow that runs. number: of its execution. fronts: the epoch that each worker is in, durably.

    steps: what each worker has to do. unsealed: the rows since a partition was sealed.
    """

    number: int
    resumed: int
    epoch: int
    writers: dict[str, LogWriter]
    fronts: list[int]
    steps: list[deque[Callable[[], None]]]
    unsealed: dict[str, list[int]] = field(default_factory=dict)


class LoggedUpstream(LastingPlaces):
    """A dataflow that writes, and what it wrote. broken: a law that did not hold."""

    def __init__(self, name: str, source: BytewaxLogSource, *, seed: int) -> None:
        self.overtaken = False
        self.remade = 0
        """How many rows a dataflow has made again, because it resumed before them."""
        self.name: Final = name
        self.schema: Final = source.schema
        self.broken: Broken | None = None
        check_columns(name, self.schema)
        self._seed: Final = seed
        self._folder: Final = StagingFolder()
        self.log: Final = Path(self._folder.path, "log")
        recovery = Path(self._folder.path, "recovery")
        self._recovery: Final = WrittenRecovery(recovery)
        self._source: Final = replace(source, path=str(self.log), recovery=str(recovery))
        self._parts, self._workers, self._executions = 2, 1, 0
        self._made = 0
        """How many rows have been made, in the life of the dataflow that lives."""
        self._made_at: Final = dict[int, int]()
        """How many were made before the end of an epoch."""
        self._states: Final = dict[tuple[str, int], str]()
        """The state of each partition at the end of an epoch."""
        self._sealed: Final = dict[tuple[str, int, str], list[int]]()
        """The rows of each piece, by its partition, number and digest."""
        self._pieces: Final = dict[str, list[list[int]]]()
        """The rows of the published pieces."""
        self._live: _LivingDataflow | None = None
        self._resumes = 1
        """The epoch at which a dataflow would resume."""

    def source(self, meet: Callable[[str], None]) -> MetSource:
        """Return the source, as one driver has it."""
        return MetSource(self._source, meet)

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Take the log away, or bring it back. The dataflow dies of it."""
        if away == self.whole:
            self._live = None
            here = self._place
            self.whole = not away
            if here.exists():
                here.rename(self._place)

    @property
    def _place(self) -> Path:
        """Where the log is, which may be away."""
        return self.log if self.whole else Path(f"{self.log}.away")

    # What the dataflow does.

    def act(self, act: Act) -> None:
        """Do what a dataflow does. number: how many rows come."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        match act.what:
            case _ if not self.whole:
                return
            case "transact":
                self._live = None
            case "grow":
                self._live = None
                self._parts = min(_MOST_PARTS, self._parts + random.randrange(2))
                self._workers = 1 + random.randrange(_MOST_WORKERS)
            case "compact":
                if self._resumes > 1:
                    self._recovery.collect(self._resumes - 1)
            case "append":
                live = self._live = self._live or self._resumed()
                self._feed(live, act.number, ends=random.random() < _ENDS)
                for _ in range(random.randrange(4 * len(live.steps) * _MOST_PARTS)):
                    if due := [steps for steps in live.steps if steps]:
                        random.choice(due).popleft()()

    def _resumed(self) -> _LivingDataflow:
        """Return a dataflow that goes on where its recovery store says."""
        self._hear()  # of all that is published before it resumes
        resume, number = self._resumes, self._executions
        parts = [f"part-{n}" for n in range(self._parts)]
        self._recovery.execution(number, workers=self._workers, resume=resume)
        writers = {part: begin(self.log / part, _STEP, self._resumes_from(part)) for part in parts}
        self._executions += 1
        made, self._made = self._made, self._made_at.get(resume - 1, 0)
        self.remade += made - self._made
        steps = [deque[Callable[[], None]]() for _ in range(self._workers)]
        return _LivingDataflow(number, resume, resume, writers, [resume] * self._workers, steps)

    def _resumes_from(self, part: str) -> str | None:
        """Return the state from which a partition would be resumed."""
        epochs = [epoch for one, epoch in self._states if one == part and epoch < self._resumes]
        return self._states[part, max(epochs)] if epochs else None

    def _feed(self, live: _LivingDataflow, count: int, *, ends: bool) -> None:
        """Give rows to the workers, and perhaps the end of the epoch."""
        parts = [*live.writers]
        for number in range(self._made, self._made + count):
            part = Random(f"{self._seed} {number}").choice(parts)  # noqa: S311 - nothing is secret here
            live.steps[parts.index(part) % len(live.steps)].append(partial(self._write, live, part, number))
        self._made += count
        if ends:
            self._made_at[live.epoch] = self._made
            for worker, steps in enumerate(live.steps):
                steps.extend(self._ending(live, worker, parts[worker :: len(live.steps)], live.epoch))
            live.epoch += 1

    def _ending(
        self, live: _LivingDataflow, worker: int, parts: list[str], epoch: int
    ) -> Iterator[Callable[[], None]]:
        """Yield what a worker does at the end of an epoch."""
        for part in parts:
            yield partial(self._seal, live, part, epoch)
        for part in parts:
            yield partial(self._keep, part, epoch)
        yield partial(self._advance, live, worker, epoch + 1)

    def _write(self, live: _LivingDataflow, part: str, number: int) -> None:
        live.writers[part].write(self._rows([number]))
        live.unsealed.setdefault(part, []).append(number)

    def _seal(self, live: _LivingDataflow, part: str, epoch: int) -> None:
        writer, rows = live.writers[part], live.unsealed.pop(part, [])
        end = writer.seal()
        if rows:
            self._sealed[part, end.pieces - 1, end.digest] = rows
        self._states[part, epoch] = end.text

    def _keep(self, part: str, epoch: int) -> None:
        self._recovery.snap(_STEP, part, epoch, self._states[part, epoch])

    def _advance(self, live: _LivingDataflow, worker: int, frontier: int) -> None:
        self._recovery.front(live.number, worker=worker, frontier=frontier)
        live.fronts[worker] = frontier
        self._resumes = max(live.resumed, min(live.fronts))

    def _rows(self, numbers: list[int]) -> pa.Table:
        batches = [made(self.schema, seed=self._seed, shard=0, lower=n, upper=n + 1) for n in numbers]
        return pa.Table.from_batches(batches, schema=self.schema)

    # What a check may ask.

    def there(self) -> dict[str, int]:
        """Return how many pieces of each partition bytewax cannot take back."""
        ends = {f"part-{n}": LogEnd.of(self._resumes_from(f"part-{n}")) for n in range(_MOST_PARTS)}
        return {part: end.pieces for part, end in ends.items() if end is not None and end.pieces}

    def end(self, place: str) -> int:
        """Return how many pieces of a partition are published."""
        self._hear()
        return len(self._pieces.get(place, ()))

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of some pieces."""
        self.end(place)
        batches: list[Any] = [
            batch for piece in self._pieces.get(place, ())[lower:upper] for batch in self._rows(piece).to_batches()
        ]
        return batches

    def _hear(self) -> None:
        """Learn of the pieces that are new."""
        for part in (f"part-{n}" for n in range(_MOST_PARTS)):
            pieces, folder = self._pieces.setdefault(part, []), self._place / part
            for number in range(len(pieces), published_in(folder)):
                rows = self._sealed.get((part, number, read_manifest(folder, number).digest), [])
                if number >= self.there().get(part, 0):
                    self._break("no piece is published that bytewax may take back", f"piece {number} of {part} is")
                twice = {row for some in self._pieces.values() for piece in some for row in piece} & {*rows}
                if twice or not rows:
                    self._break("a row is in one published piece", f"{sorted(twice)} of {part} are in another one")
                pieces.append(rows)

    def _break(self, law: str, said: str) -> None:
        self.broken = self.broken or Broken(law, f"{self.name}: {said}")
