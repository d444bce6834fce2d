"""The bindings of a union: a pure function of those of its inputs.

Invariants. After each epoch the union is bound as far as each of its inputs, in the same life. Nothing takes an
input back behind its union: what the tables of either carry is the history of the whole flow. An input that is behind
all the same is another one, and nothing is bound.

>>> from datetime import UTC
>>> inputs = {"web": Bound(frontier=Frontier({"p0": 5})), "shop": Bound(frontier=Frontier({"p0": 2}))}
>>> found = derived(["web", "shop"], Bound(), inputs, now=datetime(2026, 11, 27, tzinfo=UTC))
>>> found.upper
Frontier({'web/p0': 5, 'shop/p0': 2})
>>> behind = {**inputs, "web": Bound(frontier=Frontier({"p0": 1}))}
>>> derived(["web", "shop"], Bound(frontier=found.upper, details=found.details), behind, now=found.at)
Traceback (most recent call last):
tidegauge.errors.unions.InputRecreated: TG-0678: input 'web' of a union is another upstream: found ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import pyarrow as pa

from tidegauge.errors.unions import InputRecreated
from tidegauge.remap.binding import NO_DETAILS, Bound, Detail, Observation
from tidegauge.remap.fromtime import PARTITIONS
from tidegauge.remap.fromtime.protocol import check_place
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.union.places import InputLife, facts_of, identity_of, kept_of

__all__ = ["bound_of", "derived"]

_NO_FACTS: Final[Detail] = {}


def derived(made_of: Sequence[str], mine: Bound, inputs: Mapping[str, Bound], *, now: datetime) -> Observation:
    """Return how far to bind a union. Raises `InputRecreated`, `InvalidPlace`."""
    positions, ends = dict(mine.frontier.items()), dict[str, int]()
    details: dict[str, Detail] = {}
    for name in made_of:
        theirs = inputs[name]
        life = InputLife(name, theirs.incarnation)
        _check_goes_on(life, mine, theirs)
        for partition in {*theirs.frontier, *theirs.details}:
            key = life.partition(partition)
            kept = kept_of(theirs.details.get(partition, _NO_FACTS), identity=theirs.identity)
            if mine.details.get(key, _NO_FACTS) != kept:
                check_place(PARTITIONS.kind, key, 0)
                details[key] = kept
        _raise_to(positions, life, theirs.frontier)
        _raise_to(ends, life, theirs.frontier if theirs.last is None else theirs.last.end)
    sealed = all(inputs[name].frontier.sealed for name in made_of)
    upper = mine.frontier if mine.frontier.sealed else Frontier(positions, sealed=sealed)
    last = [(name, seen) for name in made_of if (seen := inputs[name].last) is not None]
    return Observation(
        at=max((seen.at for _, seen in last), default=now),
        upper=upper,
        end=upper.join(Frontier(ends)),
        more=any(seen.more for _, seen in last),
        coming=any(seen.coming for _, seen in last),
        note="; ".join(f"{name}: {seen.note}" for name, seen in last if seen.note),
        details=details or NO_DETAILS,
    )


def bound_of(life: InputLife, bound: Bound, *, schema: pa.Schema | None) -> Bound:
    """Return what a union knows of a life of an input: what that would know itself, were it bound so far."""
    details = dict(life.mine(bound.details))
    return Bound(
        frontier=Frontier(dict(life.mine(bound.frontier)), sealed=bound.frontier.sealed),
        details={partition: facts for partition, kept in details.items() if (facts := facts_of(kept))},
        schema=schema,
        identity=next(filter(None, map(identity_of, details.values())), ""),
        incarnation=life.incarnation,
    )


def _raise_to(positions: dict[str, int], life: InputLife, frontier: Frontier) -> None:
    for partition, position in frontier.items():
        key = life.partition(partition)
        positions[key] = max(position, positions.get(key, 0))


def _check_goes_on(life: InputLife, mine: Bound, theirs: Bound) -> None:
    """Raise `InputRecreated` where an input is behind what the union has of it, or has another upstream."""
    known = next(filter(None, (identity_of(kept) for _, kept in life.mine(mine.details))), "")
    if known and theirs.identity and known != theirs.identity:
        raise InputRecreated(input=life.name, found=theirs.identity, known=known)
    for partition, position in life.mine(mine.frontier):
        if theirs.frontier[partition] < position:
            found, there = f"{partition} bound up to {theirs.frontier[partition]}", f"{partition} up to {position}"
            raise InputRecreated(input=life.name, found=found, known=there)
