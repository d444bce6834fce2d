"""The machine that decides between past and live while it runs, and our ranges, which do not, give the same rows."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backfill.oracle import Event, SplitCatchUp, events, run

from tidegauge.backfill.plan import Fill, StagedUnit
from tidegauge.reclock.slices import begins, between, held, span
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import RemapTable
from tidegauge.sinks.backlog import StagedSpan

C: Final = "C"
F: Final = "F"


def test_k1_the_live_reader_is_behind_the_past() -> None:
    taken = events("b0 b1 b2 b3 u2 u3 u4")
    assert [run(taken[:n])[0].state for n in (4, 5, 6, 7)] == ["B", C, F, F]
    assert run(taken) == (SplitCatchUp(F, 3), [0, 1, 2, 3, 4])


def test_k2_the_live_reader_is_where_the_past_is() -> None:
    assert run(events("b0 b1 u1 u2"))[1] == [0, 1, 2]
    assert run(events("b0 b1 u1"))[0].state == F


def test_k3_the_past_is_done_where_the_live_reader_was() -> None:
    taken = events("u5 b3 b4 b5 b6 u6")
    assert run(taken[:4])[0] == SplitCatchUp(C, 5, 5)
    assert run(taken)[1] == [3, 4, 5, 6]  # 6 by the live reader


def test_k4_what_is_beyond_the_target_comes_from_the_live_reader() -> None:
    assert run(events("b0 b1 b2 b3"), SplitCatchUp(target=2)) == (SplitCatchUp(C, 2, 2), [0, 1, 2])


def test_k5_records_that_upstream_compacted_meanwhile_do_not_keep_the_past_going() -> None:
    state, rows = run(events("b0 b3 u2 u5"))
    assert (state.state, rows) == (F, [0, 3, 5])


def test_k6_a_reader_that_is_at_the_target_is_done_without_a_record_there() -> None:
    state = SplitCatchUp(target=3)
    assert run(events("b0 b1 b2 p3"), state)[0] == SplitCatchUp(C, 3, 3)
    assert run(events("b0 b1 b2 p3 u4"), state)[1] == [0, 1, 2, 4]
    assert run(events("u7 u8 b7 b8 u9"))[1] == [7, 8, 9]


def test_k7_a_reader_that_went_on_has_not_given_what_was_dropped() -> None:
    state, rows = run(events("b0 b1 b2 b3 p3 u2 u3 u4"), SplitCatchUp(target=2))
    assert (state.state, rows) == (F, [0, 1, 2, 3, 4])  # the original gives no 3


def test_k8_a_partition_that_appears_later_has_no_past() -> None:
    assert run(events("u0 u1"), SplitCatchUp.appeared())[1] == [0, 1]


def test_k9_a_partition_with_a_past_cannot_move_to_a_live_reader() -> None:
    assert SplitCatchUp(F).moved() == SplitCatchUp(F)
    for state in (SplitCatchUp(), SplitCatchUp("B", 3), SplitCatchUp(C, 3)):
        with pytest.raises(ValueError, match="its own reader"):
            state.moved()


@pytest.mark.parametrize("state", [SplitCatchUp(), SplitCatchUp("B", 3, 7), SplitCatchUp(C, 3), SplitCatchUp(F)])
def test_k10_a_state_is_the_same_after_it_was_written(state: SplitCatchUp) -> None:
    assert SplitCatchUp.decode(state.encode()) == state


@st.composite
def races(draw: st.DrawFn) -> tuple[list[int], list[Event], int | None]:
    """Return a log with holes, a race of the two readers through all of it, and the target that it begins with."""
    log = sorted(draw(st.sets(st.integers(0, 20), max_size=12)))
    end = draw(st.integers(21, 23)) if log else 0
    seen = draw(st.integers(0, len(log)))  # what the live reader had read before the output was made
    target = log[seen - 1] if seen else None
    if target is not None and draw(st.booleans()):
        target = draw(st.sampled_from(log[seen - 1 :]))  # asked of upstream, which may be ahead of the live reader
    past: list[Event] = []
    for offset in log:
        if past and draw(st.integers(0, 3)) == 0:
            past.append(("p", offset - 1))  # it goes past marks that are no records
        past.append(("b", offset))
    past.append(("p", end))
    live: list[Event] = [("u", offset) for offset in log[seen:]]
    raced: list[Event] = []
    while past or live:
        raced.append((past if not live or (past and draw(st.booleans())) else live).pop(0))
    return log, raced, target


def ours(log: list[int], moves: list[int], cutover: int, *, limit: int) -> list[int]:
    """Return the rows of a late output in their order, by the ranges of a remap table: units, and then epochs.

    moves: where each epoch ends. cutover: the newest epoch when it is planned. limit: positions that a job takes.
    """
    table = RemapTable("orders")
    for epoch, position in enumerate(moves):
        table.append(epoch, Frontier({"p": position}))

    def read(lower: int, upper: int) -> tuple[int, list[int]]:
        pieces = table.slices(lower, upper)
        upper = span(pieces, upper, limit=limit)
        rows = [o for piece in between(pieces, lower, upper) for o in log if piece.lower <= o < piece.upper]
        return upper, rows

    fill, rows = Fill(begins(0, since=0) or 0, cutover + 1), list[int]()
    while fill.reached < fill.upper:
        upper, some = read(fill.reached, fill.upper)
        fill, rows = fill.followed(StagedUnit(StagedSpan(fill.reached, upper))), rows + some
    upper = fill.whole(fill.upper, write="w").upper
    while held(table, upper) < table.upper:
        upper, some = read(upper, table.upper)
        rows += some
    return rows


@settings(max_examples=150)
@given(races(), st.data())
def test_k_ranges_give_what_the_machine_gives_however_its_readers_race(
    race: tuple[list[int], list[Event], int | None], data: st.DataObject
) -> None:
    log, raced, target = race
    moves = sorted(data.draw(st.lists(st.integers(0, 24), min_size=1, max_size=8)))
    moves[-1] = 24
    cutover = data.draw(st.integers(-1, len(moves) - 1))
    _state, given_rows = run(raced, SplitCatchUp(target=target))
    assert given_rows == log == ours(log, moves, cutover, limit=data.draw(st.integers(1, 24)))
