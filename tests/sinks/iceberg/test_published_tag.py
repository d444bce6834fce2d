"""The tag `published` of a table: where it goes, and what it withstands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.sinks.iceberg.conftest import OUTPUT, SCHEMA, IcebergBench, write_id
from tests.sinks.iceberg.test_iceberg_of_others import delete_an_epoch, roll_back

from tidegauge.errors.iceberg import IcebergTableChanged, PublishedTagTaken
from tidegauge.sinks.iceberg import change, published
from tidegauge.sinks.iceberg.published import PublishedTag
from tidegauge.sinks.marking import TableState


@pytest.fixture
def tag(bench: IcebergBench) -> Iterator[PublishedTag]:
    found = bench.sink.marker(OUTPUT)
    yield found
    found.end()


def mark(tag: PublishedTag, upper: int) -> None:
    tag.mark(next(one for one in tag.states() if one.shows(upper)))


def tagged(bench: IcebergBench) -> list[int]:
    """The epochs that anybody reads by the tag."""
    table = bench.table
    rows = table.scan(snapshot_id=table.metadata.refs["published"].snapshot_id).to_arrow()
    return sorted(rows["_epoch"].to_pylist())


def test_it_shows_the_epochs_below_an_upper_while_the_table_goes_on(bench: IcebergBench, tag: PublishedTag) -> None:
    table = bench.filled(3)
    mark(tag, 2)
    assert (tagged(bench), bench.epochs()) == ([0, 1], [0, 1, 2])
    bench.commit(table, 3, 4)
    assert bench.open().upper == 4
    assert tagged(bench) == [0, 1]
    mark(tag, 4)
    assert tagged(bench) == [0, 1, 2, 3]


def test_a_state_is_that_of_all_uppers_up_to_the_next_rows(bench: IcebergBench, tag: PublishedTag) -> None:
    table = bench.filled(1)
    table.commit(1, 6, SCHEMA, bench.stage([{"user": "ada", "amount": 1.0, "_epoch": 4}]), write=write_id())
    table.commit(6, 8, SCHEMA, [], write=write_id())
    assert [(one.least, one.most) for one in tag.states()] == [(8, None), (6, 8), (1, 4)]
    mark(tag, 4)
    assert tagged(bench) == [0]
    assert [one.least for one in tag.states()] == [8, 6, 1], "nothing before the tag is looked at"
    mark(tag, 7)
    assert [one.least for one in tag.states()] == [8, 6]


def test_a_slower_driver_does_not_take_it_back(bench: IcebergBench, tag: PublishedTag) -> None:
    bench.filled(3)
    old = tag.states()[1]
    mark(tag, 3)
    bench.sink.marker(OUTPUT).mark(old)
    assert tagged(bench) == [0, 1, 2]


def test_it_is_put_back_where_others_have_moved_or_removed_it(bench: IcebergBench, tag: PublishedTag) -> None:
    table = bench.filled(3)
    mark(tag, 2)
    for newest in (False, True):
        with bench.table.manage_snapshots() as change:
            change.remove_tag("published")
            if newest:
                change.create_tag(bench.table.current_snapshot().snapshot_id, "published")
        mark(tag, 2)
        assert tagged(bench) == [0, 1]
    assert table.upper == 3


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_one_of_others_is_left_alone(bench: IcebergBench, tag: PublishedTag, kind: str) -> None:
    bench.filled(2)
    theirs = bench.table.snapshots()[0].snapshot_id
    with bench.table.manage_snapshots() as change:
        getattr(change, f"create_{kind}")(theirs, "published")
    with pytest.raises(PublishedTagTaken, match=kind):
        tag.states()
    with pytest.raises(PublishedTagTaken):
        tag.mark(TableState(str(bench.table.current_snapshot().snapshot_id), 2, None))
    assert bench.table.metadata.refs["published"].snapshot_id == theirs


def test_no_upkeep_lets_its_snapshot_expire_and_packs_are_followed(bench: IcebergBench, tag: PublishedTag) -> None:
    table = bench.filled(4)
    mark(tag, 2)
    upkeep = bench.sink.maintain(OUTPUT)
    [pack] = upkeep.plan()
    upkeep.commit(pack, upkeep.stage(pack, job=write_id()), write=write_id())
    upkeep.clear(upkeep.remnants(timedelta(0)))
    assert len(bench.table.snapshots()) == 3, "the tag's, that of the last commit, and the pack"
    assert tagged(bench) == [0, 1]
    mark(tag, 4)
    assert bench.table.metadata.refs["published"].snapshot_id == bench.table.current_snapshot().snapshot_id
    upkeep.clear(upkeep.remnants(timedelta(0)))
    assert len(bench.table.snapshots()) == 2, "that of the last commit, and the pack"
    assert (tagged(bench), table.upper) == ([0, 1, 2, 3], 4)


def test_what_others_delete_goes_with_the_next_move(bench: IcebergBench, tag: PublishedTag) -> None:
    bench.filled(3)
    mark(tag, 3)
    delete_an_epoch(bench)
    assert tagged(bench) == [0, 1, 2]
    mark(tag, 3)
    assert tagged(bench) == [0, 2]


def test_a_table_that_others_have_set_back_keeps_it_until_that_is_undone(
    bench: IcebergBench, tag: PublishedTag
) -> None:
    bench.filled(3)
    mark(tag, 3)
    ours = bench.table.current_snapshot().snapshot_id
    roll_back(bench)
    with pytest.raises(IcebergTableChanged):
        tag.states()
    assert tagged(bench) == [0, 1, 2]
    with bench.table.manage_snapshots() as change:
        change.set_current_snapshot(snapshot_id=ours)
    bench.commit(bench.open(), 3, 4)
    mark(tag, 4)
    assert tagged(bench) == [0, 1, 2, 3]


def test_after_a_replacement_it_goes_to_the_new_rows(bench: IcebergBench, tag: PublishedTag) -> None:
    table = bench.filled(3)
    mark(tag, 3)
    anew = table.replacement("b" * 32)
    files = bench.stage([{"user": "bob", "amount": 2.0, "_epoch": epoch} for epoch in range(3)])
    anew.commit(0, 3, SCHEMA, files, write=write_id())
    assert [one.least for one in tag.states()] == [3], "none of the old rows"
    mark(tag, 3)
    snapshot = bench.table.metadata.refs["published"].snapshot_id
    assert set(bench.table.scan(snapshot_id=snapshot).to_arrow()["user"].to_pylist()) == {"bob"}


def test_a_commit_that_comes_between_the_look_and_the_move_harms_neither(
    bench: IcebergBench, tag: PublishedTag, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, asked = bench.filled(2), change.committed

    def later(*args: Any) -> Any:
        monkeypatch.setattr(published, "committed", asked)
        bench.commit(table, 2, 3)
        return asked(*args)

    monkeypatch.setattr(published, "committed", later)
    mark(tag, 2)
    assert (tagged(bench), bench.epochs(), bench.open().upper) == ([0, 1], [0, 1, 2], 3)


def test_a_move_whose_answer_is_lost_is_found_in(
    bench: IcebergBench, tag: PublishedTag, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.filled(2)
    asked = change.committed

    def lost(*args: Any) -> Any:
        asked(*args)
        raise OSError("the connection is gone")

    monkeypatch.setattr(published, "committed", lost)
    mark(tag, 2)
    assert tagged(bench) == [0, 1]


@pytest.mark.long
def test_commits_and_moves_at_once_all_come_in(bench: IcebergBench, tag: PublishedTag) -> None:
    table = bench.filled(1)
    over, seen = threading.Event(), list[int]()

    def moving() -> None:
        while not over.is_set():
            tag.mark(tag.states()[0])
            seen.append(len(tagged(bench)))

    thread = threading.Thread(target=moving)
    thread.start()
    for epoch in range(1, 40):
        bench.commit(table, epoch, epoch + 1)
    over.set()
    thread.join()
    assert bench.epochs() == list(range(40))
    assert seen == sorted(seen)
    mark(tag, 40)
    assert tagged(bench) == list(range(40))
