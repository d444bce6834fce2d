"""Sessions with a simulated server: the catalog, a sender of its log, and the reading of first rows.

They answer as a real server does, with the bytes of its protocol, cut where `cut` has it: also in the middle of a
transaction. `meet` is called before a call does anything, and when it is done and has not answered yet
(`DATABASE_POINTS`).

Invariant: a connection that was cut, or whose client is gone, gives nothing and takes nothing any more.

>>> clock = VirtualClock()
>>> table = DatabaseTable("orders", ("public", "orders"), pa.schema([("id", pa.int64())]), 16384)
>>> server = SimulatedServer(PostgresLog([table], clock))
>>> sender = server.sender("s")
>>> sender.make()
>>> place, snapshot = sender.made(1.0)
>>> with server.looking() as look:
...     found = look("p", [("public", "orders")], "s")
>>> found.slot.confirmed == place == found.end, [str(one) for one in found.tables]
(True, ['public.orders'])
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa  # noqa: F401 - for the example

from tidegauge.errors.postgressource import ServerAway, SlotActive, SlotLost
from tidegauge.sources.postgres.catalog import (
    CatalogLook,
    PublicationFacts,
    RowsQuestion,
)
from tidegauge.sources.postgres.server import CatalogQuestion
from tidegauge.sources.postgres.snapshot import SnapshotTask
from tidegauge.testing.simulation.clock import VirtualClock  # noqa: F401 - for the example
from tidegauge.testing.simulation.upstream.database.catalog import published, slot_facts
from tidegauge.testing.simulation.upstream.database.passing import GAP, LEAST, PassingTime
from tidegauge.testing.simulation.upstream.database.reading import SimulatedReading
from tidegauge.testing.simulation.upstream.database.server import LogSlot, PostgresLog
from tidegauge.testing.simulation.upstream.database.tables import (
    DatabaseTable,  # noqa: F401 - for the example
    TablePart,
)
from tidegauge.testing.simulation.upstream.database.texts import (
    data_frame,
    history,
    messages,
    sign_of_life,
)
from tidegauge.testing.simulation.upstream.simulated import unmet

__all__ = ["DATABASE_POINTS", "SimulatedServer"]

DATABASE_POINTS: Final = (
    *("look", "looked", "make slot", "slot is created", "copy rows", "rows are copied"),
    *("start log", "log is started", "report", "reported"),
)
"""What `meet` is called with, besides the calls of a source that pushes."""
_SHOWN: Final = "the simulated database"
_DATABASE: Final = "simulated"
_PROCESS: Final = 4711
_SILENCE: Final = 60.0
"""Seconds after which the server ends a session that says nothing: `wal_sender_timeout`."""


def _all(count: int) -> int:
    return count


def _still_there() -> bool:
    return False


def _now(work: Callable[[], object]) -> object:
    return work()


@dataclass(frozen=True)
class SimulatedServer:
    """A server as one driver meets it.

    cut: how many of the frames that are on their way come at once. wait: returns when something is so, or after a
    number of seconds. gone: whether the driver is dead. spawn: begins work beside the driver's.
    """

    log: PostgresLog
    _: KW_ONLY
    cut: Callable[[int], int] = _all
    meet: Callable[[str], None] = unmet
    wait: Callable[[Callable[[], bool], float], None] | None = None
    gone: Callable[[], bool] = _still_there
    spawn: Callable[[Callable[[], object]], object] = _now

    @contextmanager
    def looking(self) -> Iterator[CatalogQuestion]:
        """Lend what looks at the catalog."""
        yield self._look

    def _look(self, publication: str, tables: Sequence[tuple[str, str]], slot: str) -> CatalogLook:  # noqa: ARG002
        self.meet("look")
        self.answer(self.log.cuts)
        self.log.shown = max(self.log.shown, self.log.end)
        known, there = self.log.database.tables_at(self.log.end).values(), self.log.slots.get(slot)
        found = CatalogLook(
            version=170000,
            wal_level="logical",
            standby=False,
            role="simulated",
            replicates=True,
            database=_DATABASE,
            end=self.log.end,
            publication=PublicationFacts(
                inserts=True, updates=True, deletes=True, truncates=True, root=self.log.spread is None
            ),
            tables=tuple(
                published(one, self.log.database.added, self.log.leaves(one.stream), self.log.attached(one.stream))
                for one in known
                if one.place in tables
            ),
            missing=(),
            slot=None if there is None else slot_facts(there, _DATABASE, _PROCESS),
            horizon=self.log.horizon,
        )
        self.meet("looked")
        return found

    def old_rows(self, questions: Sequence[RowsQuestion]) -> Sequence[RowsQuestion]:
        """Return the questions to which the answer is that there are such rows."""
        return [one for one in questions if any(table.old_rows(one) for table in self.log.parted.values())]

    def sender(self, slot: str) -> SimulatedSender:
        """Begin a session. Raises `ServerAway`."""
        self.answer(self.log.cuts)
        return SimulatedSender(self, slot)

    def reading(self, task: SnapshotTask) -> SimulatedReading:
        """Begin to read the first rows."""
        return SimulatedReading(self, task)

    def nudge(self) -> None:
        """Write a message to nobody."""
        self.answer(self.log.cuts)
        self.log.grow(1)

    def beside(self, name: str, work: Callable[[], object]) -> None:  # noqa: ARG002
        """Begin it beside the driver's worker; do it at once outside of a world."""
        self.spawn(work)

    @cached_property
    def clock(self) -> PassingTime:
        """The time that passes while it answers."""
        return PassingTime(self.log.clock, self.wait)

    def answer(self, line: int) -> None:
        """Raise `ServerAway` where nobody answers, or not on this connection any more. line: its `cuts`."""
        if self.log.away:
            raise ServerAway(source=_SHOWN, detail="nobody answers at present")
        if line != self.log.cuts:
            raise ServerAway(source=_SHOWN, detail="the connection was cut")


class SimulatedSender:
    """A session of a sender of the log, see `LogSender`."""

    def __init__(self, server: SimulatedServer, slot: str) -> None:
        self._server: Final = server
        self._log: Final = server.log
        self._slot: Final = slot
        self._line: Final = server.log.cuts
        self._heard = self._asked = server.clock.monotonic()
        self._closed = self._broken = False
        self._waits: frozenset[int] | None = None
        self._temporary = False
        self._at = 0
        self._described: Final[set[tuple[str, int, TablePart | None]]] = set()
        self._frames: Final[deque[bytes]] = deque()
        self._rest = 0.0
        """The instant from which on more of the frames on their way comes."""

    @property
    def ended(self) -> bool:
        """Whether the server has seen that nobody is there any more."""
        silent = self._server.clock.monotonic() - self._heard > _SILENCE
        return self._closed or self._broken or self._line != self._log.cuts or silent or self._server.gone()

    def identity(self) -> str:
        """Return which server this is."""
        self._answer()
        return f"system 1, timeline {len(self._log.timelines) + 1}, database {_DATABASE}"

    def history(self, timeline: int) -> str:
        """Return which timelines led to one, and where each ended."""
        self._answer()
        return history(self._log.timelines[: timeline - 1])

    def drop(self) -> None:
        """Drop the slot."""
        self._answer()
        self._log.slots.pop(self._slot, None)

    def make(self, *, kind: str = "") -> None:
        """Begin to make the slot: it waits for the transactions that are open now."""
        self._meet("make slot")
        self._answer()
        self._waits, self._temporary = frozenset(self._log.open), bool(kind)

    def awaits(self) -> None:
        """It does not say for whom it waits."""

    def made(self, seconds: float) -> tuple[int, str] | None:
        """Return where the slot begins, and the name of its snapshot; None where it is not made yet."""
        waits = self._waits or frozenset()
        self._server.clock.until(
            lambda: not waits & self._log.open or self._line != self._log.cuts, max(seconds, 0.0)
        )
        self._answer()
        if waits & self._log.open:
            return None
        if self._slot in self._log.slots:
            raise ServerAway(source=_SHOWN, detail=f'replication slot "{self._slot}" already exists')
        place = self._log.end
        self._log.slots[self._slot] = LogSlot(place, place, line=self, temporary=self._temporary)
        self._waits = None
        self._log.follow(place)
        self._meet("slot is created")
        return place, f"snapshot at {place}"

    def start(self, publication: str, lsn: int) -> None:  # noqa: ARG002 - there is one
        """Begin to send from a place on, or from where the slot was told, if that is further."""
        self._meet("start log")
        self._answer()
        slot = self._log.slots.get(self._slot)
        if slot is None or slot.lost:
            raise SlotLost(source=_SHOWN, slot=self._slot, detail="it is not there" if slot is None else slot.lost)
        if slot.line not in (None, self) and not slot.line.ended:
            raise SlotActive(source=_SHOWN, slot=self._slot, detail=f"it is active for PID {_PROCESS}")
        slot.line, self._at = self, max(lsn, slot.confirmed)
        self._log.follow(self._at)
        self._meet("log is started")

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that are here."""
        self._answer()
        self._send()
        if not self._frames or self._gap:
            return
        for _ in range(max(1, self._server.cut(len(self._frames)))):
            yield self._frames.popleft()
        if self._frames:
            self._rest = self._server.clock.monotonic() + GAP

    def more(self) -> bool:
        """Whether something has come."""
        return self._is_cut() or (not self._gap and (bool(self._frames) or self._news()))

    def wait(self, seconds: float) -> None:
        """Wait until something comes, or the time is over."""
        seconds = max(seconds, 0.0)
        if self._gap:
            self._server.clock.until(self._is_cut, min(self._gap, seconds))
        else:
            self._server.clock.until(self.more, seconds)

    def tell(self, received: int, flushed: int, *, now: bool = False) -> None:  # noqa: ARG002
        """Say how far we are: at most once a second, unless `now`. The server answers how far it is."""
        at = self._server.clock.monotonic()
        if not now and at - self._asked < 1.0:
            return
        self._asked = at
        self._meet("report")
        self._answer()
        self._heard = at
        slot = self._log.slots.get(self._slot)
        if slot is not None and flushed:
            self._log.tell(slot, flushed)
        self._send()
        self._log.follow(self._log.end)
        self._frames.append(sign_of_life(self._log.end))
        self._meet("reported")

    def close(self) -> None:
        """End the session, and the slot that goes with it."""
        self._closed = True
        if self._temporary:
            self._log.slots.pop(self._slot, None)
        slot = self._log.slots.get(self._slot)
        if slot is not None and slot.line is self:
            slot.line = None

    @property
    def _gap(self) -> float:
        """Seconds until more of the frames on their way comes, 0 for none."""
        left = self._rest - self._server.clock.monotonic()
        return left if left > LEAST else 0.0

    def _is_cut(self) -> bool:
        return self._line != self._log.cuts

    def _news(self) -> bool:
        return bool(self._log.database.log) and self._log.database.log[-1].place >= self._at

    def _send(self) -> None:
        """Put on the way what committed since."""
        slot = self._log.slots.get(self._slot)
        if slot is None or slot.line is not self or not self._at:
            return
        for transaction in self._log.database.between(self._at, self._log.end):
            place = transaction.place
            end, tables = self._log.end_of(place), self._log.database.tables_at(place)
            sparing, large = self._log.sparing, self._log.large
            for message in messages(transaction, end, tables, self._described, sparing=sparing, large=large):
                self._frames.append(data_frame(transaction.place, message))
            self._at = end
            self._log.follow(end)

    def _meet(self, call: str) -> None:
        """Come to a call. A connection on which a call failed is over."""
        try:
            self._server.meet(call)
        except BaseException:
            self._broken = True
            raise

    def _answer(self) -> None:
        self._server.answer(self._line)
        if self.ended:
            raise ServerAway(source=_SHOWN, detail="it ended the session")
