"""Units of any size are one unit: a past that is staged in parts of its epochs has each record once, in its epoch."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.backfill.plan import Backfill, BackfillPlan, Fill, StagedUnit, unit_of
from tidegauge.backfill.progress import progress
from tidegauge.backfill.rate import Pacing
from tidegauge.job.groups import Need, next_need
from tidegauge.job.portion import portion
from tidegauge.reclock.parts import START, Cursor, Parts, taken
from tidegauge.remap.binding import Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import RemapTable
from tidegauge.sinks.backlog import StagedSpan
from tidegauge.sinks.protocol import StagedFile

Record = tuple[int, str, int]
Cutter = Callable[[Slice, int], int | None]
COLUMNS = pa.schema([("_epoch", pa.int64())])

CUTS: dict[str, Cutter] = {
    "anywhere": lambda piece, size: piece.lower + size,
    "nowhere": lambda _piece, _size: None,
    "between records of three": lambda piece, size: piece.lower + max(3, size // 3 * 3),
}


@st.composite
def tables(draw: st.DrawFn) -> RemapTable:
    """A few epochs of a few partitions, in any order of their names; some epochs hold nothing, some were folded."""
    table, ends = RemapTable("orders"), dict.fromkeys(draw(st.permutations(["a", "B", "ä", "c"])), 0)
    for epoch in range(draw(st.integers(1, 6))):
        for partition in ends:
            ends[partition] += draw(st.sampled_from([0, 0, 3, 6, 21]))
        table.append(epoch, Frontier({partition: end for partition, end in ends.items() if end}))
    return table.compacted(draw(st.integers(0, table.upper - 1)))


def records(pieces: list[Slice]) -> list[Record]:
    return [(piece.epoch, piece.partition, at) for piece in pieces for at in range(piece.lower, piece.upper)]


def staged(
    fill: Fill, table: RemapTable, limit: int, cut: Cutter, slices: int | None
) -> tuple[Fill, int, list[Slice]]:
    """Stage the next unit; return the fill, the first epoch that is not staged as a whole, and what was read."""
    need = Need(("late",), fill.reached, fill.upper, fill.cursor)
    found = portion(need, {"orders": table}, {"orders": limit}, cuttable=True, parts=Parts.of, slices=slices)
    need, pieces = found.need, found.slices.get("orders", [])
    if not pieces:
        return fill, need.upper, []
    end = START
    if found.most is not None:
        pieces = taken(pieces, found.most, size=attrgetter("size"), cut=cut)
        end = Parts.of(table, need.lower).after(pieces[-1])
    upper = need.upper if end == START else need.lower
    file = StagedFile(f"{len(fill.units)}", 1, 9, need.lower, need.upper - 1)
    span = StagedSpan(need.lower, upper, "j" * 32, COLUMNS, (file,), sum(piece.size for piece in pieces))
    return fill.followed(StagedUnit(span, end)), upper, pieces


@settings(max_examples=300, deadline=None)
@given(tables(), st.data())
def test_s25_units_of_any_size_are_one_whoever_dies_between_them(table: RemapTable, data: st.DataObject) -> None:
    cut = CUTS[data.draw(st.sampled_from(sorted(CUTS)))]
    upper = data.draw(st.integers(table.since + 1, table.upper))
    fill, read, done = Fill(table.since, upper), list[Record](), list[int]()
    of_unit: dict[str, list[Record]] = {}
    limit, slices = data.draw(st.integers(1, 40)), data.draw(st.sampled_from([None, 1, 2, 50]))
    while fill.reached < upper:
        fill, reached, pieces = staged(fill, table, limit, cut, slices)
        if not pieces:
            assert reached > fill.reached
            break  # the rest holds nothing
        read += records(pieces)
        of_unit[fill.units[-1].staged.files[0].path] = records(pieces)
        unit = fill.units[-1]
        assert unit.end == START or unit.staged.lower == unit.staged.upper, "whole epochs, or a part of one"
        done.append(progress(fill, table).done)
        if data.draw(st.integers(0, 3)) == 0:  # another driver, of another size
            plan = BackfillPlan("late", table.since, upper - 1, "faithful", "")
            fill = Fill.of(Backfill(plan, tuple(map(unit_of, fill.units))))
            limit = data.draw(st.integers(1, 40))
    assert read == records(table.slices(table.since, upper)), "each once, in order"
    assert done == sorted(set(done)), "it never goes back, and each unit counts"
    assert not done or (done[-1], progress(fill, table).percent) == (len(read), 100)
    end = data.draw(st.integers(table.since, upper))  # where the source has failed
    if not fill.straddles(end):
        shown = [record for file in fill.whole(end, write="w").files for record in of_unit[file.path]]
        assert shown == records(table.slices(table.since, max(end, table.since)))


@given(tables(), st.integers(1, 9), st.sampled_from(sorted(CUTS)))
def test_a_unit_is_no_larger_than_it_may_be_where_its_source_can_be_cut(
    table: RemapTable, limit: int, how: str
) -> None:
    fill = Fill(table.since, table.upper)
    while fill.reached < fill.upper:
        fill, _reached, pieces = staged(fill, table, limit, CUTS[how], None)
        if not pieces:
            break
        if how == "anywhere":
            assert sum(piece.size for piece in pieces) <= limit
        if how == "nowhere":
            assert len(pieces) == 1 or sum(piece.size for piece in pieces) <= limit


def test_s1_s7_p1_a_past_is_staged_in_units_and_goes_on_at_the_position_of_the_last_one() -> None:
    table = RemapTable("orders")
    table.append(0, Frontier({"0": 3}))
    table.append(1, Frontier({"0": 5}))
    fill, seen = Fill(0, 2), []
    while fill.reached < 2:
        fill, _reached, pieces = staged(fill, table, 2, CUTS["anywhere"], None)
        found = progress(fill, table)
        seen.append(([(piece.epoch, piece.lower, piece.upper) for piece in pieces], found.done, found.total))
        fill = Fill.of(Backfill(BackfillPlan("late", 0, 1, "faithful", ""), tuple(map(unit_of, fill.units))))
    assert seen == [([(0, 0, 2)], 2, 5), ([(0, 2, 3)], 3, 5), ([(1, 3, 5)], 5, 5)]


def test_r2_a_large_epoch_is_read_evenly_under_a_rate() -> None:
    table = RemapTable("orders")
    table.append(0, Frontier({"0": 40}))
    now, fill, begun = 10.0, Fill(0, 1), list[tuple[float, int]]()
    pacing = Pacing(lambda: now, 4)
    while fill.reached < 1:
        now += pacing.wait() or 0.0
        pacing.begin("late", "orders")
        most = pacing.most("orders", "records")
        assert most is not None
        fill, _reached, pieces = staged(fill, table, most, CUTS["anywhere"], None)
        size = sum(piece.size for piece in pieces)
        begun.append((now, size))
        pacing.end("late", size, size=size)
    assert begun == [(10.0 + second, 4) for second in range(10)]


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(st.integers(0, 4), st.sampled_from([START, Cursor("p", 3), Cursor("q", 1)])),
        min_size=1,
    )
)
def test_outputs_meet_where_the_next_one_stands_also_inside_an_epoch(stand: dict[str, tuple[int, Cursor]]) -> None:
    uppers, cursors = {o: epoch for o, (epoch, _) in stand.items()}, {o: place for o, (_, place) in stand.items()}
    need = next_need(uppers, limits={}, sealed=5, cursors=cursors)
    assert need is not None
    least = min(stand.values())
    assert (need.lower, need.begin) == least
    assert set(need.outputs) == {o for o, at in stand.items() if at == least}
    end = (need.upper, START) if need.end == START else (need.upper - 1, need.end)
    assert end == min([at for at in stand.values() if at > least] + [(5, START)])
