"""The sources of a flow that push: their connections, and their records on the way to a job.

```text
 scope of the source         scope of the flow
   reader ── records ──────► reclock_stream ── records with their epochs ──► pieces    (planned by the jobs of stage)
```

Invariant: a source has one connection while the flow stays open, from the first epoch that an output lacks. A source
that has failed or is sealed is connected only where an output lacks epochs that are bound. When the flow is opened
anew, everything begins anew: the records are those of before, and get the epochs of before.

Upstream may have forgotten what one output lacks, which is new, or whose table is an older one, while others have it.
Then that output fails (`left_behind`), and the flow is opened anew: the connection begins where the others are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from tidegauge.dataflow import INT, EventQueue, Stream, Worker
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.outputs import OutputLeftBehind
from tidegauge.flow.opening import Opened
from tidegauge.flow.spec import FlowSpec
from tidegauge.reclock.bindings import bindings_of
from tidegauge.reclock.pushed import PartitionedRecords
from tidegauge.reclock.room import Room
from tidegauge.reclock.stream import reclock_stream
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import GAUGE
from tidegauge.remap.operator import Span
from tidegauge.remap.round import Answer
from tidegauge.sources.push.law import AT_ONCE
from tidegauge.sources.push.pieces import Pieces, pieces
from tidegauge.sources.push.reader import PushReader, PushSetup, push_reader
from tidegauge.sources.push.source import PushedSource, StreamPlaces

__all__ = ["Pushing"]


class Pushing:
    """The connections and the pieces of one worker. `close` it in any case.

    readers: those of the sources that are connected. behind: the outputs that were left behind in this run, and why;
    more may come. anew: has the flow opened again.
    """

    def __init__(self, flow: FlowSpec, *, behind: dict[str, OutputLeftBehind], anew: Callable[[], None]) -> None:
        self.behind: Final = behind
        self._anew: Final = anew
        self.pieces: Final[Mapping[str, Pieces]] = {
            name: Pieces(flow.name, name, source)
            for name, source in flow.sources.items()
            if isinstance(source, PushedSource)
        }
        self.acknowledgements: Final[dict[str, EventQueue]] = {}
        self.readers: Final[dict[str, PushReader]] = {}
        self._arrivals: Final[dict[str, EventQueue]] = {}

    @property
    def received(self) -> dict[str, Pieces]:
        """The pieces of the sources that are connected: their outputs are staged as far as these are whole."""
        return {name: self.pieces[name] for name in self.readers}

    @property
    def answers(self) -> dict[str, Callable[[int, Bound], Answer]]:
        """The answers of the sources that are connected."""
        return {name: reader.answer for name, reader in self.readers.items()}

    def connect(
        self,
        worker: Worker,
        flow: Opened,
        *,
        live: Collection[str],
        limits: Mapping[str, int],
        env: Env,
        spawn: Spawn,
        going: Callable[[], bool],
        taking_on: Collection[str] = (),
        hurry: Callable[[], object] | None = None,
    ) -> None:
        """Build the reader of each source in a scope of its own.

        live: the sources that are asked how far they are. limits: the epochs at which outputs end. taking_on: the
        sources whose further columns outputs take on. hurry: see `PushSetup`.
        """
        for name, kept in self.pieces.items():
            uppers = self._uppers(flow, name)
            end = flow.timeline.upper
            if name not in live and all(upper >= min(end, limits.get(one, end)) for one, upper in uppers.items()):
                continue
            self.acknowledgements[name] = EventQueue(INT)
            reader = self.readers[name] = PushReader(
                PushSetup(
                    name=name,
                    source=kept.source,
                    pieces=kept,
                    room=Room(4 * AT_ONCE),
                    start=flow.timeline.tables[name].inverse(min(uppers.values(), default=end)),
                    bound=partial(flow.timeline.bound, name),
                    mints=name in live,
                    acknowledgements=self.acknowledgements[name],
                    confirm=flow.lease.confirm,
                    env=env,
                    spawn=spawn,
                    going=going,
                    left_behind=partial(self._leave, flow, name),
                    takes_on=name in taking_on,
                    passed_over=flow.passed_over.get(name),
                    hurry=hurry,
                )
            )
            with worker.dataflow(f"{flow.spec.name}/{name}", order=GAUGE) as scope:
                self._arrivals[name] = push_reader(scope, reader).capture()

    def reclock(self, spans: Stream[Span], flow: Opened) -> None:
        """Give the records their epochs, in the flow's scope, and keep them as pieces."""
        for name, reader in self.readers.items():
            # One epoch before the first that an output lacks: everything bound up to there counts as bound there.
            least = min(self._uppers(flow, name).values(), default=flow.timeline.upper)
            start = max(least - 1, flow.since)
            bound = bindings_of(spans, flow.timeline, name, as_of=start)
            records = PartitionedRecords(name, StreamPlaces())
            rows = reclock_stream(bound, self._arrivals[name], records, reader.setup.room, as_of=start)
            pieces(rows, self.pieces[name])

    def _uppers(self, flow: Opened, source: str) -> dict[str, int]:
        """Return the first epoch that each open output of a source lacks, but for those that were left behind."""
        return {
            name: upper
            for name, upper in flow.uppers.items()
            if flow.spec.outputs[name].source == source and name not in self.behind
        }

    def _leave(self, flow: Opened, source: str, error: TidegaugeError) -> bool:
        """Leave those outputs of a source behind that lack most of it; not if they all lack the same."""
        table, uppers = flow.timeline.tables[source], self._uppers(flow, source)
        begins = {name: table.inverse(upper) for name, upper in uppers.items()}
        least = table.inverse(min(uppers.values(), default=0))
        behind = [name for name, begin in begins.items() if begin == least]
        if len(behind) == len(begins):
            return False
        for name in behind:
            self.behind[name] = OutputLeftBehind(
                output=name, epoch=uppers[name], source=source, detail=f"{error.code}, {error.summary}"
            )
        self._anew()
        return True

    def close(self) -> None:
        """Close the connections, and let go of the records that were received and wait."""
        for reader in self.readers.values():
            reader.close()
        for kept in self.pieces.values():
            kept.close()
