"""Which snapshot brought an epoch, and what is left of it to be read."""

from __future__ import annotations

import pytest
from tests.sinks.iceberg.conftest import SCHEMA, IcebergBench, write_id

from tidegauge.errors.sinks import EpochReplaced


@pytest.mark.long
def test_an_epoch_is_known_by_the_snapshot_of_its_commit_until_that_expires(bench: IcebergBench) -> None:
    table = bench.open()
    for lower, upper in ((0, 2), (2, 3), (3, 6)):
        bench.commit(table, lower, upper)
    snapshots = [str(one.snapshot_id) for one in bench.table.snapshots()]
    found = [table.version_of(epoch) for epoch in range(7)]
    assert found == [*snapshots[:1] * 2, *snapshots[1:2], *snapshots[2:] * 3, None]
    held = bench.table
    held.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in held.snapshots()][:2]).commit()
    assert [bench.open().version_of(epoch) for epoch in range(7)] == [None] * 3 + snapshots[2:] * 3 + [None]
    assert [file.first_epoch for file in bench.open().files(as_of=0)] == [0, 2, 3]


def test_an_epoch_before_rows_were_taken_out_can_be_read_while_its_snapshot_is_there(bench: IcebergBench) -> None:
    table = bench.filled(3)
    old = table.files()[:1]
    files = bench.stage([{"user": "bob", "amount": 1.0, "_epoch": 0}, {"user": "bob", "amount": 1.0, "_epoch": 3}])
    table.commit(3, 4, SCHEMA, files, remove=old, write=write_id())
    assert old[0].path in {file.path for file in bench.open().files(as_of=1)}
    held = bench.table
    held.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in held.snapshots()][:3]).commit()
    with pytest.raises(EpochReplaced):
        bench.open().files(as_of=1)
    assert sum(file.rows for file in bench.open().files(as_of=3)) == 4


@pytest.mark.long
def test_many_commits_have_few_manifests_and_each_row_once(bench: IcebergBench) -> None:
    table = bench.filled(230)
    assert bench.epochs() == list(range(230))
    manifests = bench.table.current_snapshot().manifests(bench.table.io)
    assert len(manifests) < 110
    old = table.files()[:120]
    rows = [{"user": "packed", "amount": 1.0, "_epoch": epoch} for epoch in range(120)]
    table.commit(230, 230, SCHEMA, bench.stage(rows), remove=old, write=write_id())
    assert bench.epochs() == list(range(230))
    assert len(bench.open().files()) == 111
    bench.commit(bench.open(), 230, 231)
    assert bench.epochs() == list(range(231))
    assert len(list((bench.path / "metadata").glob("*.metadata.json"))) <= 102, "old metadata is removed"
