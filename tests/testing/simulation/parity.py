"""Two sources side by side, a real one and a simulated one, are asked the same and have to answer alike.

`Pair` makes the calls of a flow: it probes, binds or does not, reads what it has bound earlier, and restarts. What is
bound of each side comes from its own answers. After each call both must have said the same, or have raised the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from hypothesis import event
from hypothesis import strategies as st

from tidegauge.errors.base import Definite, TidegaugeError
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.sources import BadRecord

__all__ = ["Pair"]

_LATE: Final = 3
"""How many slices of earlier epochs are kept to be read again."""

_HELD = re.compile(r"/proc/\d+/fd/\d+|/held/\d+")
"""How a file without a name is called, on a disk and in memory."""


class Pair:
    """A real source, a simulated one, and what is bound of each; tests replace what they change.

    said: returns what an error of the sources says that has to be the same. alike: checks what `told` leaves out of
    two observations, such as ids. label: the name that both sides have for a side's partition.
    """

    def __init__(
        self,
        real: Any,
        simulated: Any,
        draw: Callable[[Any], Any],
        *,
        said: Callable[[TidegaugeError], Any],
        alike: Callable[[Observation, Observation], None],
        label: Callable[[int, str], str] = lambda _side, partition: partition,
    ) -> None:
        self.real, self.simulated = real, simulated
        self.draw, self.said, self.alike, self.label = draw, said, alike, label
        self.bounds = (Bound(), Bound())
        self.slices: list[tuple[Slice, Slice]] = []
        self.epoch = 0

    def both(self, ask: Callable[[Any, Bound, int], Any]) -> list[Any] | None:
        """Ask both sides; return what they said, None where both raised the same. ask: gets a side's number, too."""
        found: list[Any] = []
        raised: list[TidegaugeError] = []
        for side, source in enumerate((self.real, self.simulated)):
            try:
                found.append(ask(source, self.bounds[side], side))
            except TidegaugeError as error:
                raised.append(error)
        if not raised:
            return found
        assert not found, f"one raised {raised[0]}, the other said {found[0]}"
        first, second = map(self.said, raised)
        assert first == second, f"{first} and {second}"
        event(type(raised[1]).__name__)
        if isinstance(raised[1], Definite) and self.draw(st.booleans()):
            self.resume()
        return None

    def resume(self) -> None:
        """Resume with a new incarnation."""
        anew = Bound(schema=self.bounds[0].schema, incarnation=self.bounds[0].incarnation + 1)
        self.bounds, self.slices = (anew, anew), []

    def restart(self) -> None:
        """Begin another run, which knows no last look."""
        self.bounds = (replace(self.bounds[0], last=None), replace(self.bounds[1], last=None))

    def probe(self, now: datetime, *, binds: bool) -> bool:
        """Look, and bind what was seen, or do not. Return whether there is more."""
        answers = self.both(lambda source, bound, _side: source.probe(bound, now=now))
        if answers is None:
            return False
        real, simulated = answers
        self.alike(real, simulated)
        mine, other = self.told(real, 0), self.told(simulated, 1)
        assert mine == other, {name: (mine[name], other[name]) for name in mine if mine[name] != other[name]}
        if binds and real.upper != self.bounds[0].frontier:
            new = [self.sliced(side, said) for side, said in enumerate((real, simulated))]
            assert new[0].keys() == new[1].keys()
            self.slices = [(new[0][name], new[1][name]) for name in sorted(new[0])] + self.slices[:_LATE]
            self.epoch += 1
        first, second = self.bounds
        self.bounds = (after(first, real, binds=binds), after(second, simulated, binds=binds))
        return bool(real.more)

    def sliced(self, side: int, said: Observation) -> dict[str, Slice]:
        """Return what is bound of a side by an observation, by the names that both sides have."""
        ranges = said.upper.since(self.bounds[side].frontier)
        return {
            self.label(side, place): Slice("it", self.epoch, place, lower, upper)
            for place, (lower, upper) in ranges.items()
        }

    def told(self, it: Observation, side: int) -> dict[str, Any]:
        """Return what two observations have in common if they say the same."""
        frontiers = {"upper": it.upper, "end": it.end, "lower": it.lower, "taken back": it.taken_back}
        return {name: self.labelled(at, side) for name, at in frontiers.items()} | {
            "sealed": it.upper.sealed,
            "more": it.more,
            "schema": it.schema,
            "note": _HELD.sub("a file that is held", it.note),
            "at": it.at,
            "details": sorted(self.label(side, place) for place in it.details),
            "has a state": it.state is not None,
        }

    def labelled(self, places: Mapping[str, Any], side: int) -> dict[str, Any]:
        return {self.label(side, place): at for place, at in places.items()}

    def read(self, wanted: list[tuple[Slice, Slice]], *, ranges: Callable[[Any], Any]) -> None:
        """Read slices that were bound, as a job does: without those that are given up. ranges: of a split."""
        lost = self.both(lambda source, bound, side: source.lost([pair[side] for pair in wanted], bound))
        if lost is None:
            return
        self.same(lost, lambda one: (one.lower, one.upper))
        rest = [without([pair[side] for pair in wanted], lost[side]) for side in (0, 1)]
        plans = self.both(lambda source, bound, side: source.plan(rest[side], bound))
        if plans is None:
            return
        self.same(plans, ranges)
        for index in range(len(plans[0])):
            found = self.both(partial(self.contents, plans, index))
            if found is None:
                return
            assert found[0] == found[1]

    def same(self, pieces: list[Any], ranges: Callable[[Any], Any]) -> None:
        """Check that both sides said the same pieces, in the same order."""
        first, second = (
            [
                (one.epoch, None if " and " in one.partition else self.label(side, one.partition), ranges(one))
                for one in of
            ]
            for side, of in enumerate(pieces)
        )
        assert first == second

    def contents(
        self, plans: list[Any], index: int, source: Any, _bound: Bound, side: int
    ) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
        """Return the rows of a split of a side by their place, and its bad records."""
        bad: list[BadRecord] = []
        rows = [row for batch in source.read(plans[side][index], bad.append) for row in batch.to_pylist()]
        for row in rows:
            row["_partition"] = self.label(side, row["_partition"])
        wrong = [
            (self.label(side, one.partition), one.position, one.raw, one.code, one.key, one.timestamp) for one in bad
        ]
        return sorted(rows, key=lambda row: (row["_partition"], row["_offset"])), sorted(wrong, key=lambda o: o[:2])


def after(bound: Bound, said: Observation, *, binds: bool) -> Bound:
    """Return what is bound after an observation."""
    if not binds:
        return replace(bound, last=said)
    return replace(
        bound,
        frontier=said.upper,
        details={**bound.details, **said.details},
        schema=bound.schema or said.schema,
        state=said.state or bound.state,
        last=said,
    )


def without(slices: list[Slice], lost: list[Slice]) -> list[Slice]:
    """Return slices without their lost parts, with which they begin."""
    ends = {(one.epoch, one.partition): one.upper for one in lost}
    rest = [replace(one, lower=ends.get((one.epoch, one.partition), one.lower)) for one in slices]
    return [one for one in rest if one.lower < one.upper]
