"""A source's answers are checked before they are bound, because a binding is for good.

Invariant: an observation that passes has only places that the source's clock has, in its partitions and positions,
facts and an identity that the store returns unchanged, no position behind the bound frontier, and a state whose
watermark is not behind the bound one. Anything else is an error of the source: nothing of it is bound, the source is
stalled and asked again, and the others go on.

Only changes are checked: the rest was checked when it was bound, or with the last answer.

>>> from datetime import UTC, datetime
>>> from tidegauge.remap.fromtime import LSN
>>> from tidegauge.remap.frontier import Frontier
>>> there = Frontier({"wal": 2**63})
>>> observed = Observation(at=datetime(2026, 11, 20, tzinfo=UTC), upper=there, end=there)
>>> checked_observation("orders", LSN, Bound(), observed)
Traceback (most recent call last):
tidegauge.errors.fromtime.InvalidPlace: TG-0571: the clock 'lsn' has no position 9223372036854775808 in ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import FrontierRegressed, WatermarkRegressed
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.fromtime.protocol import LONGEST_NAME, FromTime, check_place, excerpt
from tidegauge.remap.fromtime.state import SourceState
from tidegauge.remap.frontier import Frontier

__all__ = ["check_advance", "check_watermark", "checked_observation"]


def checked_observation(source: str, from_time: FromTime, bound: Bound, observed: Observation) -> Observation:
    """Return the observation if all of it may be bound.

    Raises `InvalidPlace`, `InvalidArgument`, `FrontierRegressed`, `WatermarkRegressed`.
    """
    if not isinstance(observed, Observation):
        raise InvalidArgument(parameter=f"the probe of {source!r}", value=observed, expected="an Observation")
    for frontier in (observed.upper, observed.end, observed.lower):
        if not isinstance(frontier, Frontier):
            raise InvalidArgument(parameter=f"a frontier of {source!r}", value=frontier, expected="a Frontier")
    if not isinstance(observed.at, datetime) or observed.at.tzinfo is None:
        raise InvalidArgument(parameter=f"the time of {source!r}", value=observed.at, expected="one with its zone")
    if not _is_text(observed.identity):
        shown = excerpt(ascii(observed.identity))
        raise InvalidArgument(
            parameter=f"the identity of {source!r}", value=shown, expected=f"at most {LONGEST_NAME} bytes of Unicode"
        )
    if not isinstance(observed.note, str):
        raise InvalidArgument(parameter=f"the note of {source!r}", value=observed.note, expected="a text")
    if observed.schema is not None and not isinstance(observed.schema, pa.Schema):
        raise InvalidArgument(
            parameter=f"the schema of {source!r}", value=observed.schema, expected="a pyarrow.Schema"
        )
    if not isinstance(observed.details, Mapping):
        raise InvalidArgument(parameter=f"the details of {source!r}", value=observed.details, expected="a mapping")
    if (last := bound.last) is not None and _said_before(observed, last, bound):
        return observed
    if observed.identity in ("", bound.identity) or not bound.identity:  # of another upstream it says nothing
        check_advance(source, bound.frontier, observed.upper)
    for partition, (_, position) in observed.upper.since(bound.frontier).items():
        check_place(from_time.kind, partition, position)
        from_time.check(partition, position)
    for partition, detail in observed.details.items():
        check_place(from_time.kind, partition, 0)
        if problem := _no_json(detail):
            raise InvalidArgument(
                parameter=f"the detail of partition {partition!r} of {source!r}",
                value=excerpt(repr(detail)),
                expected=f"a mapping of names to JSON values; {problem}",
            )
    if observed.state is not None and not isinstance(observed.state, SourceState):
        raise InvalidArgument(
            parameter=f"the state of {source!r}", value=type(observed.state).__name__, expected="a SourceState"
        )
    check_watermark(source, bound.state, observed.state)
    return observed


def _said_before(observed: Observation, last: Observation, bound: Bound) -> bool:
    """Whether an observation has no place, fact or state that the last one had not, and nothing moved."""
    return (
        observed.upper is bound.frontier is last.upper and observed.details is last.details and observed.state is None
    )


def _is_text(value: object) -> bool:
    """Whether every database keeps a value as a text, and as the same one."""
    try:
        return isinstance(value, str) and "\0" not in value and len(value.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


def _no_json(detail: object) -> str:
    """Return why the store would not return a detail unchanged; "" if it would."""
    if not isinstance(detail, Mapping) or not all(isinstance(name, str) for name in detail):
        return "it is none"
    try:
        json.dumps(dict(detail), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return ""


def check_advance(source: str, before: Frontier, after: Frontier) -> None:
    """Raise `FrontierRegressed` when a source is behind where it was bound, or has lost a partition."""
    if not after.follows(before):
        behind = {p: (n, after[p]) for p, n in before.items() if after[p] < n}
        first = dict(sorted(behind.items())[:3])
        more = f" and {len(behind) - 3} more partitions" if len(behind) > 3 else ""
        detail = f"it is sealed at {before}" if before.sealed else f"{first}{more}"
        raise FrontierRegressed(source=source, detail=detail)


def check_watermark(source: str, before: SourceState | None, after: SourceState | None) -> None:
    """Raise `WatermarkRegressed` when a state says less of how complete the data is than the one before it."""
    if before is None or after is None or before.watermark is None:
        return
    if after.watermark is None or after.watermark < before.watermark:
        found = "none" if after.watermark is None else after.watermark.isoformat()
        raise WatermarkRegressed(source=source, known=before.watermark.isoformat(), found=found)
