"""What every kind of clock must hold, a kind of one's own included: `LAWS`, each called with a `Clock`.

@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_chapters_conform(law):
    law(Clock(from_time=Chapters(), frontiers=..., at_or_before=..., refused=(...), misplaced=(...)))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.fromtime import FromTimeChanged, InvalidNotation, InvalidPlace, NotCanonical
from tidegauge.remap.fromtime import FROM_TIMES, FromTime, FromTimes, checked, decode, encode
from tidegauge.remap.frontier import ORIGIN, Frontier

__all__ = ["LAWS", "Clock"]

_often = deep(60)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A kind to be tested.

    frontiers: any frontier of the kind, not sealed. at_or_before: upstream's own order on its notation, found without
    the kind's help. refused: texts that are not in its notation. misplaced: partitions and positions that it has not.
    """

    from_time: FromTime
    frontiers: st.SearchStrategy[Frontier]
    at_or_before: Callable[[str, str], bool]
    refused: tuple[str, ...]
    misplaced: tuple[tuple[str, int], ...]

    @property
    def ended_or_not(self) -> st.SearchStrategy[Frontier]:
        return st.builds(lambda f, end: f.seal() if end else f, self.frontiers, st.booleans())


def the_order_is_upstreams(clock: Clock) -> None:
    render = clock.from_time.render

    @_often
    @given(clock.frontiers, clock.frontiers, clock.frontiers)
    def law(a: Frontier, b: Frontier, c: Frontier) -> None:
        for x, y in ((a, b), (a, a.join(b)), (a.join(b), a), (a.meet(b), b), (a, a)):
            assert clock.at_or_before(render(x), render(y)) == x.less_equal(y)
        assert (render(a) == render(b)) == (a == b)
        least = a.join(b)
        assert (a.less_equal(c) and b.less_equal(c)) == least.less_equal(c)

    law()


def the_notation_comes_back(clock: Clock) -> None:
    from_time = clock.from_time

    @_often
    @given(clock.ended_or_not)
    def law(frontier: Frontier) -> None:
        text = from_time.render(frontier)
        found = from_time.parse(text)
        assert (found.seal() if frontier.sealed else found) == frontier
        assert from_time.render(found) == text

    law()
    assert from_time.parse(from_time.render(ORIGIN)) == ORIGIN


def the_encoding_comes_back(clock: Clock) -> None:
    from_time = clock.from_time

    @_often
    @given(clock.ended_or_not, clock.ended_or_not)
    def law(a: Frontier, b: Frontier) -> None:
        text = encode(from_time, a)
        assert decode(from_time, text) == a
        assert encode(from_time, Frontier(dict(reversed(list(a.items()))), sealed=a.sealed)) == text
        assert (encode(from_time, b) == text) == (a == b)
        assert all(type(position) is int for position in decode(from_time, text).values())

    law()


def nothing_else_is_decoded(clock: Clock) -> None:
    from_time = clock.from_time

    @_often
    @given(clock.ended_or_not, st.data())
    def law(frontier: Frontier, data: st.DataObject) -> None:
        text = encode(from_time, frontier)
        cut = data.draw(st.integers(0, len(text) - 1))
        for damaged in (text[:cut], text + " ", " " + text, text + text, text.replace(":", ": ", 1)):
            with pytest.raises(NotCanonical):
                decode(from_time, damaged)
        for position in frontier.values():
            for written in (f"{position}.0", f"{position}e0", f'"{position}"', f"-{position}", f"0{position}"):
                with pytest.raises(NotCanonical):
                    decode(from_time, text.replace(f":{position}", f":{written}"))

    law()


def other_kinds_are_not_taken_for_it(clock: Clock) -> None:
    for other in {**FROM_TIMES, clock.from_time.kind: clock.from_time}.values():
        if other.kind != clock.from_time.kind:
            with pytest.raises(FromTimeChanged, match=f"'{other.kind}'.*'{clock.from_time.kind}'"):
                decode(clock.from_time, encode(other, ORIGIN))


def what_is_no_notation_is_refused(clock: Clock) -> None:
    assert clock.refused
    for text in (*clock.refused, "\0", "\ud800", None, b"0", 7):
        with pytest.raises((InvalidNotation, InvalidPlace)):
            clock.from_time.parse(text)  # type: ignore[arg-type]


def any_text_is_a_frontier_or_refused(clock: Clock) -> None:
    written = clock.frontiers.map(clock.from_time.render)
    letters = st.text('0123456789aAfF/:-@,"\\ \n_', max_size=2)

    @_often
    @given(st.text() | written, letters, st.data())
    def law(whole: str, put: str, data: st.DataObject) -> None:
        cut = data.draw(st.integers(0, len(whole)))
        text = whole[:cut] + put + whole[cut + data.draw(st.integers(0, 2)) :]
        try:
            found = clock.from_time.parse(text)
        except TidegaugeError:
            return
        assert clock.from_time.parse(clock.from_time.render(checked(clock.from_time, found))) == found

    law()


def what_is_no_place_is_refused(clock: Clock) -> None:
    from_time = clock.from_time
    named = next(iter(_some(clock)), "x")
    for partition, position in (*clock.misplaced, (named, 2**63), ("nul\0", 5), ("half \ud800", 5), ("x" * 1025, 5)):
        frontier = Frontier({partition: position})
        for write in (from_time.render, lambda f: encode(from_time, f)):
            with pytest.raises(InvalidPlace):
                write(frontier)
    for partition, position in clock.misplaced:
        text = f'{{"kind":"{from_time.kind}","next":{{"{partition}":{position}}},"sealed":false}}'
        with pytest.raises(InvalidPlace):
            decode(from_time, text)
    for wrong in (True, 5.0, "5", None):
        positions: dict[str, Any] = {named: wrong}
        with pytest.raises(InvalidPlace):
            encode(from_time, Frontier.deferred(positions.copy))


def it_is_registered_under_its_name(clock: Clock) -> None:
    others = [other for kind, other in FROM_TIMES.items() if kind != clock.from_time.kind]
    assert FromTimes(*others).register(clock.from_time).from_time(clock.from_time.kind) == clock.from_time


def _some(clock: Clock) -> Frontier:
    """Return a frontier of the kind that is not the origin."""
    found: list[Frontier] = []

    @_often
    @given(clock.frontiers)
    def look(frontier: Frontier) -> None:
        if frontier:
            found.append(frontier)

    look()
    return found[0]


LAWS: tuple[Callable[[Clock], None], ...] = (
    the_order_is_upstreams,
    the_notation_comes_back,
    the_encoding_comes_back,
    nothing_else_is_decoded,
    other_kinds_are_not_taken_for_it,
    what_is_no_notation_is_refused,
    any_text_is_a_frontier_or_refused,
    what_is_no_place_is_refused,
    it_is_registered_under_its_name,
)
