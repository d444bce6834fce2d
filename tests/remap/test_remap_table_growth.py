"""A table grows by what is new, and who holds a view of it is not disturbed; long histories, many partitions."""

from __future__ import annotations

import pickle
import random
import threading
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import FrontierRegressed, NotYetBound
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import LARGEST, RemapTable
from tidegauge.testing.strategies import RemapHistory

PARTITIONS = ("a", "b", "c")


def check(table: RemapTable, model: RemapHistory) -> None:
    """Whether the table answers every question as the model does."""
    assert table.upper == model.upper
    assert table.frontier == model.frontier_at(model.upper)
    assert [table.frontier_at(e) for e in range(model.upper)] == [model.frontier_at(e) for e in range(model.upper)]
    assert [table.inverse(e) for e in range(model.upper + 1)] == [
        model.frontier_at(e - 1) for e in range(model.upper + 1)
    ]
    moved = [
        (epoch, partition, *span)
        for epoch in range(model.upper)
        for partition, span in model.frontier_at(epoch).since(model.frontier_at(epoch - 1)).items()
    ]
    assert [(s.epoch, s.partition, s.lower, s.upper) for s in table.slices(0, table.upper)] == moved
    rows = [(partition, position) for partition in (*PARTITIONS, "never") for position in range(12)]
    expected = [model.epoch_of(*row) for row in rows]
    assert [epoch_or_none(table, *row) for row in rows] == expected
    names, codes, positions = columns(rows)
    assert table.epochs_of(names, codes, positions).tolist() == [-1 if e is None else e for e in expected]


def columns(rows: list[tuple[str, int]]) -> tuple[list[str | None], np.ndarray, np.ndarray]:
    names = sorted({partition for partition, _ in rows})
    codes = np.array([names.index(partition) for partition, _ in rows], np.int64)
    return [*names], codes, np.array([position for _, position in rows], np.int64)


def epoch_or_none(table: RemapTable, partition: str, position: int) -> int | None:
    try:
        return table.epoch_of(partition, position)
    except NotYetBound:
        return None


steps = st.tuples(
    st.sampled_from(["append", "extend", "advance", "view", "ask"]),
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 3)),
    st.integers(0, 2),
    st.integers(0, 19),
)


@given(st.lists(steps, max_size=25))
def test_views_that_grow_apart_keep_what_each_was_told_and_nothing_else(
    program: list[tuple[str, int, dict[str, int], int, int]],
) -> None:
    held = [(RemapTable("s"), RemapHistory())]
    for what, which, moves, gap, luck in program:
        which %= len(held)
        table, model = held[which]
        now = model.frontier_at(model.upper)
        if what == "view":
            held.append((table.view(), model))
        elif what == "ask":
            check(table, model)
        elif what == "advance":
            model = replace(model, upper=model.upper + gap)
            table.advance(model.upper)
        elif not now.sealed:
            epoch = model.upper + gap
            positions = {p: now[p] + moves.get(p, 0) for p in PARTITIONS}
            frontier = Frontier(positions, sealed=luck == 0)
            if what == "append":
                table.append(epoch, frontier)
            else:
                table.extend(epoch, {p: positions[p] for p in moves}, sealed=frontier.sealed)
            model = model.bound(epoch, frontier)
        held[which] = table, model
    for table, model in held:
        check(table, model)
        check(pickle.loads(pickle.dumps(table)), model)


def long_history(seed: int, *, changes: int, partitions: int) -> tuple[RemapTable, list[tuple[int, str, int]]]:
    """A table that was loaded with half of its changes and grew by the other half, and the changes."""
    chance = random.Random(seed)
    at: dict[str, int] = {}
    rows: list[tuple[int, str, int]] = []
    epoch = 0
    while len(rows) < changes:
        moved = {f"p{number}" for number in chance.choices(range(partitions), k=chance.randrange(1, 4))}
        for partition in sorted(moved | ({f"q{epoch}"} if epoch % 9 == 0 else set())):
            at[partition] = at.get(partition, 0) + chance.choice([1, 1, 3, 1000, 10**9])
            rows.append((epoch, partition, at[partition]))
        epoch += chance.randrange(1, 3)
    half = epoch // 2
    table = RemapTable.load("s", [row for row in rows if row[0] < half], upper=half)
    for bound, changed in groupby((row for row in rows if row[0] >= half), key=itemgetter(0)):
        table.extend(bound, {partition: position for _, partition, position in changed})
    return table, rows


@pytest.mark.parametrize(("changes", "partitions"), [(9000, 3), (9000, 1500), (1, 1)])
def test_a_long_history_has_the_frontiers_that_replaying_it_gives(changes: int, partitions: int) -> None:
    table, rows = long_history(1, changes=changes, partitions=partitions)
    replayed: dict[str, int] = {}
    done = 0
    for epoch in [*sorted(random.Random(2).choices(range(table.upper), k=60)), table.upper - 1]:
        while done < len(rows) and rows[done][0] <= epoch:
            replayed[rows[done][1]] = rows[done][2]
            done += 1
        assert table.frontier_at(epoch) == Frontier(replayed)
        assert table.compacted(epoch).frontier_at(epoch) == Frontier(replayed)


@pytest.mark.parametrize(("changes", "partitions"), [(9000, 3), (30_000, 40), (9000, 1500)])
def test_many_positions_at_once_belong_where_each_does_alone(changes: int, partitions: int) -> None:
    table, rows = long_history(3, changes=changes, partitions=partitions)
    chance = random.Random(4)
    asked = [(p, n + chance.choice([-1, 0, 1, -500])) for _, p, n in chance.choices(rows, k=3000)]
    asked = [(p, max(n, 0)) for p, n in [*asked, ("never", 0), (rows[0][1], LARGEST - 1)]]
    expected = [epoch_or_none(table, *row) for row in asked]
    found = table.epochs_of(*columns(asked)).tolist()
    assert found == [-1 if epoch is None else epoch for epoch in expected]
    assert expected.count(None) < len(asked) / 2


@pytest.mark.parametrize("step", [1, 7, 10**12])
def test_every_position_of_evenly_bound_partitions_and_those_beyond_are_told_apart(step: int) -> None:
    rows = [(epoch, f"p{epoch % 3}", step * (1 + epoch // 3)) for epoch in range(60)]
    table = RemapTable.load("s", rows, upper=60)
    asked = [(f"p{i}", n) for i in range(3) for k in range(61) for n in (step * k, step * k + step - 1)]
    expected = [epoch_or_none(table, *row) for row in asked]
    assert expected == [n // step * 3 + int(p[1]) if n < 20 * step else None for p, n in asked]
    assert table.epochs_of(*columns(asked)).tolist() == [-1 if epoch is None else epoch for epoch in expected]


def test_positions_that_crowd_into_one_bucket_are_told_apart() -> None:
    crowd = [*range(1, 4000), 2**40, 2**62]
    table = RemapTable.load("s", [(epoch, "p", n) for epoch, n in enumerate(crowd)], upper=len(crowd))
    asked = [0, 1, 2, 1999, 3998, 3999, 4000, 2**40 - 1, 2**40, 2**62 - 1, 2**62]
    codes = np.zeros(len(asked), np.int64)
    assert table.epochs_of(["p"], codes, np.array(asked)).tolist() == [
        *(0, 1, 2, 1999, 3998, 3999, 3999, 3999, 4000, 4000, -1)
    ]


def test_a_reader_in_another_thread_hears_the_same_while_the_table_grows() -> None:
    table = RemapTable("s")
    for epoch in range(300):
        table.extend(epoch, {f"p{epoch % 7}": epoch + 1})
    view, stop, wrong = table.view(), threading.Event(), []

    def said() -> tuple[object, ...]:
        asked = [(f"p{i}", n) for i in range(8) for n in (0, 150, 296)]
        one = tuple(epoch_or_none(view, *row) for row in asked)
        return view.upper, view.frontier_at(150), view.slices(290, 300), one, view.epochs_of(*columns(asked)).tolist()

    expected = said()

    def read() -> None:
        while not stop.is_set():
            if said() != expected:
                wrong.append(view.upper)

    reader = threading.Thread(target=read)
    reader.start()
    for epoch in range(300, 3000):
        table.extend(epoch, {f"p{epoch % 11}": epoch + 1})
    stop.set()
    reader.join()
    assert not wrong
    assert table.upper == 3000


def test_extending_by_what_goes_back_or_follows_a_seal_is_refused_and_changes_nothing() -> None:
    table = RemapTable("s")
    table.extend(0, {"a": 5, "b": 2})
    for changes in ({"a": 5}, {"c": 1, "b": 1}, {"c": 0}):
        with pytest.raises(FrontierRegressed):
            table.extend(1, changes)
    with pytest.raises(InvalidArgument):
        table.extend(0, {"a": 6})
    with pytest.raises(InvalidArgument):
        table.extend(1, {"c": LARGEST + 1})
    assert (table.upper, len(table), table.frontier) == (1, 2, Frontier({"a": 5, "b": 2}))
    table.extend(1, {}, sealed=True)
    with pytest.raises(FrontierRegressed):
        table.extend(2, {"a": 6})
    assert table.frontier == Frontier({"a": 5, "b": 2}, sealed=True)


def test_t09_of_a_thousand_bindings_before_since_one_is_left_in_one_go_and_step_by_step() -> None:
    rows = [(epoch, "p0", epoch + 1) for epoch in range(1000)]
    at_once = RemapTable.load("s", rows, upper=1001, since=1000)
    stepwise = RemapTable("s")
    for epoch, partition, position in rows:
        stepwise.extend(epoch, {partition: position})
        stepwise = stepwise.compacted(epoch)
        assert len(stepwise) == 1
    assert len(at_once) == 1
    assert list(at_once.changes()) == [(1000, "p0", 1000)]


def test_t15_ten_thousand_idle_epochs_take_no_room() -> None:
    table = RemapTable("s")
    table.extend(0, {"a": 5})
    for upper in range(2, 10_002):
        table.advance(upper)
    assert (len(table), table.upper, table.inverse(10_001)) == (1, 10_001, Frontier({"a": 5}))
