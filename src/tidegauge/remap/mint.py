"""Minting: what one tick binds. Pure decisions, so that a simulation can take them a million times.

Minting is admission. A tick binds at most a limit of a source, so that a backlog of a billion records becomes many
epochs, each small enough for one job, and none is ever split or bound again. And a binding is for good, so a source's
answer is checked first: what does not pass is an error of the source, which is stalled and asked again, and the
others go on.

Invariants. A proposal of `mint` never goes back behind the bound frontier, and every proposal brings something new.
An observation that passes has only places that the source's clock has, facts and an identity that the store returns
unchanged, no position behind the bound frontier, and a state whose watermark is not behind the bound one.

>>> admit(Frontier(), Frontier({"a": 2, "b": 100, "c": 100}), limit=20)
Frontier({'a': 2, 'b': 9, 'c': 9})
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import FrontierRegressed, WatermarkRegressed
from tidegauge.remap.binding import Bound, Observation, Proposal
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.fromtime.protocol import LONGEST_NAME, FromTime, check_place, excerpt
from tidegauge.remap.frontier import Frontier

__all__ = ["admit", "check_advance", "check_watermark", "checked_observation", "mint"]

NO_STATES: Final[Mapping[str, SourceState]] = MappingProxyType({})


def admit(lower: Frontier, upper: Frontier, limit: int) -> Frontier:
    """Return a frontier at most `limit` positions beyond `lower` and not beyond `upper`.

    For sources where every position is a record boundary. The limit is shared by max-min fairness: going through the
    partitions from the smallest backlog to the largest, each takes its backlog, up to an equal share of the remaining
    limit. So all of the limit is used if the backlog is that large, a large partition never holds up a small one, and
    whatever a partition did not get makes its backlog larger, so that its turn comes. Ties are broken by name. A
    partition of `upper` that is behind `lower` stays at `lower`. The seal of `upper` is admitted with its last
    position.
    """
    if limit < 1:
        raise InvalidArgument(parameter="limit", value=limit, expected="at least one position per epoch")
    if lower.sealed:
        return lower
    ranges, positions = upper.since(lower), dict(lower.items())
    backlog = sorted((end - start, partition) for partition, (start, end) in ranges.items())
    left = limit
    for done, (size, partition) in enumerate(backlog):
        taken = min(size, left // (len(backlog) - done))
        positions[partition] = ranges[partition][0] + taken
        left -= taken
    complete = sum(size for size, _ in backlog) <= limit
    return Frontier(positions, sealed=upper.sealed and complete)


def mint(
    bound: Mapping[str, Frontier],
    observations: Mapping[str, Observation],
    *,
    states: Mapping[str, SourceState] = NO_STATES,
) -> dict[str, Proposal]:
    """Decide what one tick binds, given where every source stands and the observations.

    A source is bound again when its frontier advanced, or was sealed, or when its state differs from the bound one
    (`states`). In the last case the epoch holds no data of the source: the state is durable before the next poll
    needs it, whether there was anything to read or not. An observation that is behind the bound frontier, in any
    partition, is dropped as a whole: either it was overtaken, or upstream was replaced, which is for the source to
    find out; the next probe is another chance. A sealed source stays sealed.

    An empty result means that the tick mints nothing. An idle tick mints no epoch: epochs are dense integers here,
    and a table gets one commit for each, so a quiet night would fill every table with empty commits. That a quiet
    source is up to date is told by its last probe, not by an epoch.
    """
    proposals: dict[str, Proposal] = {}
    for name in sorted(observations):
        if name not in bound:
            raise UnknownName(kind="source", name=name, known=sorted(bound))
        before, observed = bound[name], observations[name]
        told = observed.state is not None and observed.state != states.get(name) and not before.sealed
        if (told or observed.upper != before) and observed.upper.follows(before):
            proposals[name] = Proposal(
                frontier=observed.upper, details=observed.details, identity=observed.identity, state=observed.state
            )
    return proposals


def checked_observation(source: str, from_time: FromTime, bound: Bound, observed: Observation) -> Observation:
    """Return the observation if all of it may be bound. Only changes are checked: the rest was when it was bound.

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
        sealed = Frontier(dict(sorted(before.items())), sealed=True)  # in one order, whatever the database's
        detail = f"it is sealed at {sealed}" if before.sealed else f"{first}{more}"
        raise FrontierRegressed(source=source, detail=detail)


def check_watermark(source: str, before: SourceState | None, after: SourceState | None) -> None:
    """Raise `WatermarkRegressed` when a state says less of how complete the data is than the one before it."""
    if before is None or after is None or before.watermark is None:
        return
    if after.watermark is None or after.watermark < before.watermark:
        found = "none" if after.watermark is None else after.watermark.isoformat()
        raise WatermarkRegressed(source=source, known=before.watermark.isoformat(), found=found)
