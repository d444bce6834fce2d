"""What the server does for a session of ours that hears nothing: asked by another session.

A server may be silent for hours because it works, or waits for somebody. Something between the two, such as a proxy,
may be silent for ever: it takes in every byte and passes none on, and no kernel finds that out. Only the server knows
which of both it is.

    it works, or waits for a lock               the session goes on
    it waits for us to speak or to read, or     what we said, or what it answered, was lost: the session is over
    knows nothing of the session

Invariant: a session is given up on the server's word alone. Where nobody answers, nothing is known yet.

>>> WorkAtServer(works=True, awaits="process 7").works
True
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.store import silence
from tidegauge.remap.store.silence import heard
from tidegauge.sources.postgres.sessions import DatabasePlace, session

__all__ = ["PatientListener", "WorkAtServer", "work_at_server"]

_WORK: Final = """
    SELECT a.state = 'active' AND a.wait_event_type IS DISTINCT FROM 'Client',
           (SELECT format('process %%s (role %%s, database %%s)', b.pid, b.usename, b.datname)
            FROM pg_stat_activity b WHERE b.pid = ANY (w.pids) ORDER BY b.xact_start LIMIT 1),
           (SELECT b.pid FROM pg_stat_activity b WHERE b.pid = ANY (w.pids) ORDER BY b.xact_start LIMIT 1),
           (SELECT x.gid FROM pg_locks l JOIN pg_prepared_xacts x ON x.transaction = l.transactionid
            WHERE l.pid = a.pid AND NOT l.granted LIMIT 1)
    FROM pg_stat_activity a CROSS JOIN LATERAL (SELECT pg_blocking_pids(a.pid) AS pids) w WHERE a.pid = %s
"""


@dataclass(frozen=True, slots=True)
class WorkAtServer:
    """What it does. awaits: whom it waits for, "" for nobody. ends: the statement that ends this."""

    works: bool
    awaits: str = ""
    ends: str = ""


def work_at_server(place: DatabasePlace, pid: int) -> WorkAtServer | None:
    """Ask what a process of the server does, None where there is no answer."""
    try:
        with session(place) as connection:
            found = connection.execute(_WORK, (pid,)).fetchone()
    except TidegaugeError:
        return None
    if found is None:
        return WorkAtServer(works=False)
    works, process, blocking, prepared = found
    if process is not None:
        return WorkAtServer(works, process, f"SELECT pg_terminate_backend({blocking})")
    if prepared is not None:
        said = prepared.replace("'", "''")
        return WorkAtServer(works, f"the prepared transaction '{said}'", f"ROLLBACK PREPARED '{said}'")
    return WorkAtServer(works)


class PatientListener(psycopg.Connection[Any]):
    """A connection that closes itself when the server falls silent and does not work."""

    place: DatabasePlace | None = None

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **settings: Any) -> Any:
        """Wait as psycopg does, as long as the server works."""
        waiting = heard(gen, patience=silence.PATIENCE, give_up=self.close, busy=self._busy)
        return super().wait(waiting, *args, **settings)

    def _busy(self) -> bool:
        if self.place is None:
            return False
        found = work_at_server(self.place, self.info.backend_pid)
        return found is None or found.works
