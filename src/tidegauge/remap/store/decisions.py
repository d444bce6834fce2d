"""What people decide about a flow's outputs while it may run: which are paused, which tables are replaced, and at
which rate late ones read.

Reasons to pause an output are a set of rows, each independent of the others: the output goes on when there is none.
Every decision counts up a number in the flow's row, and every transaction of the flow's driver brings that number
along. So the driver hears of a decision with whatever it writes next, at the latest when it renews its lease, and
looks at the decisions only when there is a new one.

Invariant: the number is counted up in the transaction that changes something, under the lock of the flow's row; so
who has read a number knows every decision up to it, or one that is newer. No lease is needed: a decision is not a
driver's.

>>> from datetime import UTC
>>> from tidegauge.remap.store.values import Decisions, Pause
>>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
>>> sorted(Decisions(2, (Pause("late", "operator", noon), Pause("late", "rate", noon))).paused["late"])
['operator', 'rate']
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from sqlalchemy import Connection, delete, func, insert, select, update

from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.remap.store.replacements import decide_replacement, read_replacements
from tidegauge.remap.store.schema import Unreadable, count, flows, pauses
from tidegauge.remap.store.values import Decisions, Pause, PauseReason, Rate, Replacement
from tidegauge.remap.table import LARGEST

__all__ = [
    "Decision",
    "PauseOutput",
    "ReplaceOutput",
    "ResumeOutput",
    "SetRate",
    "check_rate",
    "decide",
    "read_decisions",
]

_REASONS: Final[tuple[PauseReason, ...]] = ("operator", "rate", "drop", "drop table", "add")

_AUTO: Final = -1
"""How the column has a rate that gives way to the live outputs."""


@dataclass(frozen=True, slots=True)
class PauseOutput:
    """Nothing is read or written for an output; with the reason `add`, its driver is to take it in."""

    output: str
    reason: PauseReason = "operator"


@dataclass(frozen=True, slots=True)
class ResumeOutput:
    """This reason to pause an output is over."""

    output: str
    reason: PauseReason = "operator"


@dataclass(frozen=True, slots=True)
class SetRate:
    """This many rows a second are read for late outputs."""

    rate: Rate


@dataclass(frozen=True, slots=True)
class ReplaceOutput:
    """The table of an output is made again by this code. edition: drawn for it, 32 hex digits."""

    output: str
    edition: str
    code: str


Decision: TypeAlias = PauseOutput | ResumeOutput | SetRate | ReplaceOutput


def check_rate(rate: object) -> None:
    """Raise `InvalidArgument` unless it is a number of rows a second."""
    if rate != "auto" and (not isinstance(rate, int) or isinstance(rate, bool) or not 0 <= rate <= LARGEST):
        raise InvalidArgument(
            parameter="rate", value=rate, expected="a whole number of rows a second, 0 for none, or 'auto'"
        )


def decide(connection: Connection, name: str, decision: Decision, at: datetime) -> Decisions:
    """Make a decision unless it stands; see `Store.decide`."""
    flow_id = connection.scalar(select(flows.c.id).where(flows.c.name == name).with_for_update())
    if flow_id is None:
        raise UnknownName(kind="flow", name=name, known=sorted(connection.scalars(select(flows.c.name))))
    known = read_decisions(connection, flow_id)
    if isinstance(decision, SetRate):
        changed = known.rate != decision.rate
        connection.execute(
            update(flows)
            .where(flows.c.id == flow_id)
            .values(rate=_AUTO if decision.rate == "auto" else decision.rate)
        )
    elif isinstance(decision, ReplaceOutput):
        changed = True
        decide_replacement(connection, flow_id, Replacement(decision.output, decision.edition, decision.code, at))
    else:
        mine = (pauses.c.flow_id == flow_id) & (pauses.c.output == decision.output)
        there = any((one.output, one.reason) == (decision.output, decision.reason) for one in known.pauses)
        changed = there == isinstance(decision, ResumeOutput)
        if changed and isinstance(decision, PauseOutput):
            row = {"flow_id": flow_id, "output": decision.output, "reason": decision.reason, "at": at}
            connection.execute(insert(pauses).values(**row))
        elif changed:
            connection.execute(delete(pauses).where(mine, pauses.c.reason == decision.reason))
    if not changed:
        return known
    notify(connection, flow_id)
    return read_decisions(connection, flow_id)


def notify(connection: Connection, flow_id: int) -> None:
    """Have the flow's driver hear, with its next transaction, that there is something to look at."""
    counted = func.coalesce(flows.c.decisions, 0) + 1
    connection.execute(update(flows).where(flows.c.id == flow_id).values(decisions=counted))


def read_decisions(connection: Connection, flow_id: int) -> Decisions:
    """Return what stands of the decisions about a flow's outputs."""
    number, rate = connection.execute(select(flows.c.decisions, flows.c.rate).where(flows.c.id == flow_id)).one()
    found = connection.execute(
        select(pauses).where(pauses.c.flow_id == flow_id).order_by(pauses.c.output, pauses.c.reason)
    )
    stands = tuple(Pause(row.output, _reason(row.reason), row.at) for row in found)
    return Decisions(
        0 if number is None else count(number),
        stands,
        "auto" if rate == _AUTO else None if rate is None else count(rate),
        {one.output: one for one in read_replacements(connection, flow_id)},
    )


def _reason(text: str) -> PauseReason:
    for reason in _REASONS:
        if reason == text:
            return reason
    raise Unreadable(f"{text!r} is no reason to pause an output")
