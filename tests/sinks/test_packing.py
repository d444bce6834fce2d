"""Packs of small files: neighbours, each file once, not too large; and no row is written again too often."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.sinks.packing import GROWTH, TARGET, FileSize, packs

SIZE = st.builds(FileSize, st.integers(0, 10_000), st.integers(0, 200))
SIZES = st.lists(SIZE, max_size=40)


@deep(200)
@given(sizes=SIZES, target=st.integers(0, 1_000))
def test_packs_are_of_neighbours_in_order_and_none_is_too_large(sizes: list[FileSize], target: int) -> None:
    found = packs(sizes, target=target)
    places = [place for some in found for place in some]
    assert places == sorted(set(places))
    for some in found:
        assert len(some) >= 2
        assert sum(sizes[place].bytes for place in some) <= target
        weights = [max(1, sizes[place].rows) for place in some]
        assert sum(weights) >= GROWTH * max(weights)


@deep(200)
@given(sizes=SIZES, target=st.integers(0, 1_000))
def test_what_is_left_was_not_worth_it(sizes: list[FileSize], target: int) -> None:
    """As long as a table has packs, some are found, so that who asks again and again comes to an end."""
    if packs(sizes, target=target):
        return
    for start in range(len(sizes)):
        for stop in range(start + 2, len(sizes) + 1):
            some = sizes[start:stop]
            weights = [max(1, one.rows) for one in some]
            assert sum(one.bytes for one in some) > target or sum(weights) < GROWTH * max(weights)


def packed(files: list[FileSize], target: int) -> tuple[list[FileSize], int]:
    """Return the files of a table after maintenance, and how many rows it wrote again."""
    again = 0
    while found := packs(files, target=target):
        for some in reversed(found):
            one = FileSize(sum(files[at].rows for at in some), sum(files[at].bytes for at in some) // 2 + 500)
            again += one.rows
            files[some.start : some.stop] = [one]
    return files, again


@pytest.mark.parametrize("every", [1, 100])
@pytest.mark.parametrize("most", [3, 1_000])
def test_ten_thousand_epochs_are_written_again_log_n_times_and_leave_few_files(every: int, most: int) -> None:
    chance = random.Random(f"{every} {most}")
    files: list[FileSize] = []
    rows = again = 0
    for epoch in range(10_000):
        count = chance.randint(3, most)
        files.append(FileSize(count, 1_500 + 20 * count))
        rows += count
        if epoch % every == every - 1:
            files, more = packed(files, TARGET)
            again += more
    files, more = packed(files, TARGET)
    assert (again + more) / rows <= math.log(rows / 3, GROWTH)
    assert len(files) <= (GROWTH - 1) * math.log(rows / 3, GROWTH) + rows * 40 / TARGET


def test_a_table_in_the_midst_of_its_life_is_not_written_again_as_a_whole() -> None:
    large = [FileSize(1_000_000, TARGET // 2)] * 50
    small = [FileSize(3, 1_500)] * 100
    assert packs([*large, *small], target=TARGET) == [range(50, 150)]
    assert packs([*large, FileSize(300, 3_000)], target=TARGET) == []
