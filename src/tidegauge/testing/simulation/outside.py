"""What the outside world answers a driver where a plan has it fail: the errors of stores, brokers and disks.

Law: an `error` comes where nothing of the call was done, a `lost` answer where all of it was. So a place that a
driver meets before a call takes errors only, and one that it meets after it lost answers only.

>>> outside("error", "orders: probe").__class__.__name__, outside("lost", "orders: probe")
('BrokerUnreachable', None)
>>> type(outside("lost", "lake: committed")), outside("error", "before publish")
(<class 'OSError'>, None)
"""

from __future__ import annotations

import errno
from typing import Final

from tidegauge.env import POINTS as EFFECTS
from tidegauge.errors.kafka import BrokerUnreachable
from tidegauge.errors.mysqlsource import BinlogServerAway
from tidegauge.errors.postgressource import ServerAway
from tidegauge.errors.store import StoreFull, StoreUnreachable
from tidegauge.testing.simulation.plan import FaultKind
from tidegauge.testing.simulation.store import POINTS as STORE_POINTS
from tidegauge.testing.simulation.store import URL, NoAnswer
from tidegauge.testing.simulation.tables import DECIDED
from tidegauge.testing.simulation.tables import POINTS as SINK_POINTS
from tidegauge.testing.simulation.upstream.database.binlog_sender import BINLOG_POINTS
from tidegauge.testing.simulation.upstream.database.sender import DATABASE_POINTS

__all__ = ["ANSWERS", "no_room", "outside"]

ANSWERS: Final[tuple[FaultKind, ...]] = ("error", "lost")
"""The kinds of faults that a driver hears of as an answer."""

STAGE_POLL: Final = "before stage poll"
"""Where a poll meets the disk that it is staged on."""

_RESET: Final = "the connection was reset"


def outside(kind: FaultKind, place: str) -> Exception | None:
    """Return the error that a driver gets at a place; None where it asks nobody, or where the kind makes no sense."""
    call = place.rpartition(": ")[2]
    after = call.endswith("ed") or call in ("answer", "have read")
    if place == STAGE_POLL and kind == "error":
        return OSError(errno.EIO, "Input/output error")
    if place in EFFECTS or (kind == "lost") != after:
        return None
    if place in STORE_POINTS:
        return NoAnswer(StoreUnreachable(url=URL, detail=_RESET))
    if call in DATABASE_POINTS:
        return ServerAway(source="the simulated database", detail=_RESET)
    if call in BINLOG_POINTS:
        return BinlogServerAway(source="the simulated database", detail=_RESET)
    if call in (*SINK_POINTS, *DECIDED):
        return OSError(errno.EIO, "Input/output error")
    return BrokerUnreachable(servers="memory", detail=_RESET)


def no_room(place: str) -> Exception | None:
    """Return the error that a driver gets at a place while there is no room, None where it needs none."""
    if place == "store commit":
        return NoAnswer(StoreFull(url=URL, detail="database or disk is full"))
    if place == STAGE_POLL or place.endswith((": stage", ": close", ": commit")):
        return OSError(errno.ENOSPC, "No space left on device")
    return None
