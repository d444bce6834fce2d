"""What a subscription asks of a server, so that a simulation can answer in its place.

Invariant: whatever a subscription knows of a server it knows by these calls. So what it decides depends on answers
alone, and not on who gave them.

>>> server = DistantServer(DatabasePlace("postgresql://ada@db/shop", None))
>>> server.clock.monotonic() <= server.clock.monotonic()
True
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tidegauge.errors.base import TidegaugeError
from tidegauge.sources.database.clock import HERE, ServerClock
from tidegauge.sources.database.folder import SnapshotPiece
from tidegauge.sources.postgres.catalog import CatalogLook, RowsQuestion, look, old_rows
from tidegauge.sources.postgres.partitions import KnownPartitions
from tidegauge.sources.postgres.replication import LogSender
from tidegauge.sources.postgres.sessions import DatabasePlace, nudged, session
from tidegauge.sources.postgres.snapshot import SnapshotReading, SnapshotTask

__all__ = ["AnsweringServer", "DistantServer", "ReadingSteps", "SendingLog", "SnapshotRows"]

CatalogQuestion: TypeAlias = Callable[[str, Sequence[tuple[str, str]], str], CatalogLook]


class SendingLog(Protocol):
    """A session of a sender of the log, see `LogSender`."""

    def identity(self) -> str: ...  # noqa: D102
    def history(self, timeline: int) -> str: ...  # noqa: D102
    def drop(self) -> None: ...  # noqa: D102
    def make(self, *, kind: str = "") -> None: ...  # noqa: D102
    def made(self, seconds: float) -> tuple[int, str] | None: ...  # noqa: D102
    def awaits(self) -> TidegaugeError | None: ...  # noqa: D102
    def start(self, publication: str, lsn: int) -> None: ...  # noqa: D102
    def frames(self) -> Iterator[bytes]: ...  # noqa: D102
    def more(self) -> bool: ...  # noqa: D102
    def wait(self, seconds: float) -> None: ...  # noqa: D102
    def tell(self, received: int, flushed: int, *, now: bool = False) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class ReadingSteps(Protocol):
    """Work that is done a little at a time, see `Steps`."""

    def go_on(self, seconds: float) -> bool: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class SnapshotRows(Protocol):
    """First rows that are being read, see `SnapshotReading`."""

    @property
    def steps(self) -> ReadingSteps: ...  # noqa: D102
    @property
    def pieces(self) -> Mapping[str, Sequence[SnapshotPiece]]: ...  # noqa: D102
    @property
    def shapes(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def partitions(self) -> Mapping[str, KnownPartitions | None]: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


class AnsweringServer(Protocol):
    """A server, and the time that passes while it answers."""

    def looking(self) -> AbstractContextManager[CatalogQuestion]:
        """Lend what looks at the catalog: given a publication, tables and a slot."""
        ...

    def old_rows(self, questions: Sequence[RowsQuestion]) -> Collection[RowsQuestion]:
        """Return the questions to which the answer is that there are such rows."""
        ...

    def sender(self, slot: str) -> SendingLog:
        """Begin a session of a sender of the log."""
        ...

    def reading(self, task: SnapshotTask) -> SnapshotRows:
        """Begin to read the first rows."""
        ...

    def nudge(self) -> None:
        """Make the log grow, where it may stand still."""
        ...

    def beside(self, name: str, work: Callable[[], object]) -> None:
        """Begin work beside the stream. name: for people."""
        ...

    @property
    def clock(self) -> ServerClock:
        """The time that passes while it answers."""
        ...


@dataclass(frozen=True, slots=True)
class DistantServer:
    """A real one."""

    place: DatabasePlace
    clock: ServerClock = HERE

    @contextmanager
    def looking(self) -> Iterator[CatalogQuestion]:
        """Lend it, in a session. Raises what `sessions.explained` does."""
        with session(self.place) as connection:

            def looked(publication: str, tables: Sequence[tuple[str, str]], slot: str) -> CatalogLook:
                found = look(connection.cursor(), publication, tables, slot)
                connection.rollback()
                return found

            yield looked

    def old_rows(self, questions: Sequence[RowsQuestion]) -> Collection[RowsQuestion]:
        """Ask, in a session. Raises what `sessions.explained` does."""
        if not questions:
            return ()
        with session(self.place) as connection:
            return [one for one in questions if old_rows(connection.cursor(), one)]

    def sender(self, slot: str) -> SendingLog:
        """Begin a session. Raises what `sessions.explained` does."""
        return LogSender(self.place, slot)

    def reading(self, task: SnapshotTask) -> SnapshotRows:
        """Begin to read."""
        return SnapshotReading(task)

    def nudge(self) -> None:
        """Write a message to nobody. Raises what `sessions.explained` does."""
        nudged(self.place)

    def beside(self, name: str, work: Callable[[], object]) -> None:
        """Begin it in a thread."""
        threading.Thread(target=work, name=name, daemon=True).start()
