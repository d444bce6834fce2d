"""The lease: at most one driver runs a flow, and one that lost its lease cannot write.

Definition. A lease is a row with a token. Every writing transaction compares its token with the row's first; so it is
safe to take a lease over even from a driver that is alive and merely slow: its next write is refused (`LeaseLost`).
Hence when to take over is a question of manners, not of safety: at once when the holder was a process of this machine
that is gone, otherwise when the lease was not renewed for `EXPIRY` seconds, by the clock of the database where it has
one.

A process is told from a later one of the same number by when it started, and the machine's boots and process
namespaces from one another by their kernel's names; where a kernel does not tell, a number in use counts as alive.
Two machines of one host name look like one that was rebooted.

>>> me = LeaseHolder(name="ada", host="one", boot="b:1", pid=10, process_started=5, run="f" * 32)
>>> def running(_pid):
...     return 5
>>> may_take(me, renewed=0.0, me=me, started=running), may_take(me, renewed=30.0, me=me, started=running)
(False, True)
>>> may_take(me, renewed=0.0, me=me, started=lambda _pid: None)
True
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import repeat
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, Executable, Row, bindparam, delete, insert, select, update

from tidegauge.env import Env
from tidegauge.errors.redaction import Redaction
from tidegauge.errors.store import ClocksApart, FlowAlreadyRunning, LeaseHeld, LeaseLost, NothingHeld
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.schema import flows, leases, store_layout
from tidegauge.remap.store.sending import send
from tidegauge.remap.times import judge, shown

__all__ = [
    "EXPIRY",
    "Held",
    "Lease",
    "LeaseHolder",
    "acquire",
    "break_lease",
    "guard",
    "holding",
    "may_take",
    "silent",
    "started",
]

EXPIRY: Final = 30.0
"""Seconds of the wall clock without renewal after which anyone may take a lease over."""

USUAL: Final = 15.0
"""Seconds after which a lease that was not renewed is noticed: a driver does so every five."""

Started: TypeAlias = int | Literal["alive"] | None
"""When a process started, in clock ticks since the boot; 'alive' when only that is known; None when it is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseHolder:
    """The driver that takes a lease: a name for people, and the process. `boot` is "" where the kernel does not tell.

    `run` (32 hex digits) becomes the lease's token: a run that asks again gets its own lease.
    """

    name: str
    host: str
    boot: str
    pid: int
    process_started: int | None
    run: str

    @staticmethod
    def current(env: Env) -> LeaseHolder:
        """Return this process, as the holder of a new run."""
        try:
            name = getpass.getuser()
        except (OSError, KeyError):
            name = "unknown"
        born = started(os.getpid())
        return LeaseHolder(
            name=name,
            host=socket.gethostname(),
            boot=_boot(),
            pid=os.getpid(),
            process_started=born if isinstance(born, int) else None,
            run=env.unique(),
        )


def started(pid: int) -> Started:
    """Return when a process of this machine started. A process that ended but was not reaped is gone."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
        return None if fields[0] in "ZX" else int(fields[19])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "alive"
    return "alive"


def may_take(holder: LeaseHolder, *, renewed: float, me: LeaseHolder, started: Callable[[int], Started]) -> bool:
    """Whether `me` may take over a lease that `holder` renewed `renewed` seconds ago."""
    return renewed >= EXPIRY or _is_gone(holder, me, started)


def _is_gone(holder: LeaseHolder, me: LeaseHolder, started: Callable[[int], Started]) -> bool:
    if holder.host != me.host:
        return False
    if holder.boot != me.boot:
        return _kernel(holder.boot) != _kernel(me.boot)  # rebooted; or another namespace, of which nothing is known
    born = started(holder.pid)
    if born is None:
        return True
    return isinstance(born, int) and holder.process_started is not None and born != holder.process_started


def _kernel(boot: str) -> str:
    return boot.partition(":")[0]


def _boot() -> str:
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return ""
    return f"{kernel}:{namespace}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to one flow, until somebody else took it over."""

    flow: str
    flow_id: int
    incarnation: str
    token: str
    holder: LeaseHolder
    since: datetime
    _database: Database = field(repr=False, compare=False)
    _env: Env = field(repr=False, compare=False)
    _heard: list[int] = field(default_factory=lambda: [0], repr=False, compare=False)

    @property
    def decisions(self) -> int:
        """The number of the decisions about the flow's outputs, as the last write or look has found it."""
        return self._heard[0]

    def hear(self, number: int | None) -> None:
        """Know of the decisions up to this number. Every transaction of the driver brings it along."""
        self._heard[0] = number or 0

    @property
    def redaction(self) -> Redaction:
        """What hides the secrets of the store's address."""
        return self._database.redaction

    def renew(self) -> None:
        """Say that the driver is alive. Raises `LeaseLost` when somebody else has the lease."""
        self._database.write(self._renew)

    def confirm(self) -> None:
        """Look whether the lease is still ours, before an effect outside of the store. Raises `LeaseLost`."""
        with self._database.reading() as connection:
            _held(connection, self, _LOOK)

    def release(self) -> None:
        """Give the lease back. One that is lost already is no error."""
        mine = (leases.c.flow_id == self.flow_id) & (leases.c.token == self.token)
        with self._env.effect("release lease"):
            self._database.write(lambda connection: connection.execute(delete(leases).where(mine)))

    def _renew(self, connection: Connection) -> None:
        guard(connection, self)
        send(connection, (_RENEW, [{"flow": self.flow_id, "now": self._database.now(connection, self._env)}]))


# Made once: to make a statement takes longer than SQLite takes to answer it.
_ONE_AT_A_TIME: Final = select(store_layout.c.version).with_for_update()
"""Locks what every store has, for no row of a flow that is not there yet can be locked."""
_FLOW: Final = select(flows).where(flows.c.name == bindparam("flow")).with_for_update()
_LEASE: Final = select(leases).where(leases.c.flow_id == bindparam("flow"))
_TAKE: Final = insert(leases)
_CLEAR: Final = delete(leases).where(leases.c.flow_id == bindparam("flow"))
_MINE: Final = (flows.c.id == bindparam("flow")) & (flows.c.incarnation == bindparam("life"))
_LOCK: Final = select(flows.c.id).where(_MINE).with_for_update()
_LOOK: Final = (
    select(leases.c.token, flows.c.upper, flows.c.published, flows.c.since, flows.c.decisions)
    .select_from(flows.outerjoin(leases, leases.c.flow_id == flows.c.id))
    .where(_MINE)
)
_RENEW: Final = update(leases).where(leases.c.flow_id == bindparam("flow")).values(renewed_at=bindparam("now"))


def acquire(database: Database, env: Env, flow: str, holder: LeaseHolder) -> Lease:
    """Take the lease of a flow, which begins to exist by it. Raises `FlowAlreadyRunning`."""

    def take(connection: Connection) -> Lease:
        connection.execute(_ONE_AT_A_TIME)
        now, here = database.now(connection, env), env.now()
        if judge(min(now, here), max(now, here)) == "wrong":
            raise ClocksApart(url=database.url, now=shown(here), server=shown(now))
        found = connection.execute(_FLOW, {"flow": flow}).one_or_none()
        if found is None:
            fresh = {"name": flow, "incarnation": env.unique(), "created_at": now, "upper": 0, "published": 0}
            connection.execute(insert(flows).values(**fresh, since=0))
            found = connection.execute(_FLOW, {"flow": flow}).one()
        held = connection.execute(_LEASE, {"flow": found.id}).one_or_none()
        since = now
        if held is not None and held.token == holder.run:
            since = held.since
        elif held is not None and not may_take(
            _holder(held), renewed=(now - held.renewed_at).total_seconds(), me=holder, started=started
        ):
            raise FlowAlreadyRunning(
                flow=flow,
                holder=held.holder,
                host=held.host,
                pid=held.pid,
                since=shown(held.since),
                patience=EXPIRY,
            )
        row = {
            "flow_id": found.id,
            "token": holder.run,
            "holder": holder.name,
            "host": holder.host,
            "boot": holder.boot,
            "pid": holder.pid,
            "process_started": holder.process_started,
            "since": since,
            "renewed_at": now,
        }
        send(connection, (_CLEAR, [{"flow": found.id}]), (_TAKE, [row]))
        lease = Lease(flow, found.id, found.incarnation, holder.run, holder, since, database, env)
        lease.hear(found.decisions)
        return lease

    with env.effect("acquire lease"):
        return database.write(take)


def holding(connection: Connection, now: datetime, env: Env, flow: str) -> str:
    """Return who has a flow's lease, for people; "" when nobody has, or anybody might take it over."""
    found = _lease_of(connection, flow)
    if found is None:
        return ""
    renewed = (now - found.renewed_at).total_seconds()
    if may_take(_holder(found), renewed=renewed, me=LeaseHolder.current(env), started=started):
        return ""
    return _told(found)


def silent(connection: Connection, now: datetime, env: Env, flow: str) -> str:
    """Return who has not renewed a flow's lease for longer than usual, for people; "" where nobody may do so yet."""
    found = _lease_of(connection, flow)
    if found is None or (now - found.renewed_at).total_seconds() < USUAL:
        return ""
    if _is_gone(_holder(found), LeaseHolder.current(env), started):
        return ""
    return f"{_told(found)}, renewed last at {shown(found.renewed_at)}"


def break_lease(connection: Connection, env: Env, flow: str, *, force: bool) -> str:
    """Take a flow's lease away, and return who held it, for people. That driver writes nothing more.

    Raises `LeaseHeld` when the holder lives on this machine, unless it is forced, and `NothingHeld`.
    """
    found = _lease_of(connection, flow)
    if found is None:
        raise NothingHeld(flow=flow)
    me, holder = LeaseHolder.current(env), _holder(found)
    here = (holder.host, holder.boot) == (me.host, me.boot)
    if here and not force and not _is_gone(holder, me, started):
        raise LeaseHeld(flow=flow, holder=_told(found), pid=found.pid)
    connection.execute(_CLEAR, {"flow": found.flow_id})
    return f"{_told(found)}, renewed last at {shown(found.renewed_at)}"


def _lease_of(connection: Connection, flow: str) -> Row[Any] | None:
    return connection.execute(
        select(leases).join(flows, flows.c.id == leases.c.flow_id).where(flows.c.name == flow)
    ).one_or_none()


def _told(lease: Row[Any]) -> str:
    return f"{lease.holder} on {lease.host}, process {lease.pid}, since {shown(lease.since)}"


class Held(NamedTuple):
    """A flow as its driver finds it: whose lease it is under, and how far it is."""

    token: str | None
    upper: int
    published: int
    since: int
    decisions: int | None


def guard(connection: Connection, lease: Lease) -> Held:
    """Lock the lease's flow for this transaction and return how far it is. Raises `LeaseLost`.

    Every writing transaction begins with it: what a driver without the lease wants to write is never written. The
    lock and the look are two statements, because PostgreSQL lets a statement see every commit from before it began:
    one that had to wait for the lock would see the lease as it was before somebody took it over.
    """
    return _held(connection, lease, _LOCK, _LOOK)


def _held(connection: Connection, lease: Lease, *statements: Executable) -> Held:
    """Return what the last statement finds of the lease's flow. Raises `LeaseLost` unless the lease is still ours."""
    mine = [{"flow": lease.flow_id, "life": lease.incarnation}]
    found = [Held(*row) for row in send(connection, *zip(statements, repeat(mine)))]
    if not found:
        raise LeaseLost(flow=lease.flow, now="the flow was removed from the store")
    if found[0].token != lease.token:
        raise LeaseLost(flow=lease.flow, now=_who(connection, lease.flow_id))
    lease.hear(found[0].decisions)
    return found[0]


def _who(connection: Connection, flow_id: int) -> str:
    """Return who has a flow's lease, in the words of `LeaseLost`."""
    row = connection.execute(_LEASE, {"flow": flow_id}).one_or_none()
    if row is None:
        return "nobody has it now"
    return f"{row.holder} on {row.host}, process {row.pid}, has it since {shown(row.since)}"


def _holder(row: Row[Any]) -> LeaseHolder:
    return LeaseHolder(
        name=row.holder,
        host=row.host,
        boot=row.boot,
        pid=row.pid,
        process_started=row.process_started,
        run=row.token,
    )
