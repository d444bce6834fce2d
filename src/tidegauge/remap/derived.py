"""Sources that are made of others of their flow: nobody asks their upstream, and their epochs are those of others.

Definition. A derived source `u` has *inputs*. Whatever an epoch binds of an input, it binds of `u` too, under a name
that tells the inputs apart. So `u` has bindings of its own, and everything that knows sources by their bindings knows
it: jobs, late outputs, holds, compaction, tables that carry their history, followers. Only three things are not its
own: how far upstream is, which its inputs say; what upstream is told, which is how far the outputs of both hold an
input; and the reading, which is theirs.

Invariant: an epoch and its part of a derived source are durable in one append, so there is no instant at which an
input is bound and the derived source is not, unless that has failed. One that joins a flow later, or goes on after a
failure, gets everything that was bound of its inputs meanwhile as one epoch. So the same records may have an earlier
epoch in an input, and how much of an input an output of `u` holds is asked of the bindings of `u`.

>>> from tidegauge.remap.frontier import Frontier
>>> before = Bound(frontier=Frontier({"p0": 3}))
>>> after = as_bound(before, Proposal(frontier=Frontier({"p0": 5}), details={"p0": {"path": "a"}}))
>>> after.frontier["p0"], dict(after.details), as_bound(before, None) is before
(5, {'p0': {'path': 'a'}}, True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol, runtime_checkable

from tidegauge.remap.binding import Bound, Observation, Proposal
from tidegauge.remap.frontier import Frontier

__all__ = ["Derived", "as_bound"]


@runtime_checkable
class Derived(Protocol):
    """A source that is made of others."""

    @property
    def made_of(self) -> Sequence[str]:
        """The names of its inputs, a constant."""
        ...

    def part_of(self, name: str, frontier: Frontier, *, incarnation: int) -> Frontier:
        """Return what a frontier of it says of an incarnation of an input."""
        ...

    def derive(self, mine: Bound, inputs: Mapping[str, Bound], *, now: datetime) -> Observation:
        """Return how far to bind it, and how far upstream is.

        mine: its bindings. inputs: those of each input with the same epoch, and its last answer.
        Raises `Definite` where an input is no longer the one that it was.
        """
        ...


def as_bound(bound: Bound, proposal: Proposal | None) -> Bound:
    """Return the knowledge of a source once a proposal for it is bound."""
    if proposal is None:
        return bound
    return replace(
        bound,
        frontier=proposal.frontier,
        details={**bound.details, **proposal.details},
        identity=bound.identity or proposal.identity,
        state=proposal.state or bound.state,
    )
