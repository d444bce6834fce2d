"""Minting: what one tick binds. Pure decisions, so that a simulation can take them a million times.

Minting is admission. A tick binds at most a limit of a source, so that a backlog of a billion records becomes many
epochs, each small enough for one job, and none is ever split or bound again.

Invariant: a proposal of `mint` never goes back behind the bound frontier, and every proposal brings something new.

>>> admit(Frontier(), Frontier({"a": 2, "b": 100, "c": 100}), limit=20)
Frontier({'a': 2, 'b': 9, 'c': 9})
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.remap.binding import Observation, Proposal
from tidegauge.remap.fromtime.state import SourceState
from tidegauge.remap.frontier import Frontier

__all__ = ["admit", "mint"]

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
    ranges = upper.since(lower)
    backlog = sorted((end - start, partition) for partition, (start, end) in ranges.items())
    positions = dict(lower.items())
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
