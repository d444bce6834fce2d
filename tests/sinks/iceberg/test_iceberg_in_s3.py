"""Tables of Iceberg in an object store hold the laws of sinks, and leave nothing there that is not theirs."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.s3 import Lake
from tests.sinks.iceberg.conftest import OUTPUT
from tests.sinks.iceberg.stored import StoredBench, StoredUpserts, configured
from tests.sinks.iceberg.test_iceberg_upkeep import kept

from tidegauge.errors.sinks import TableNotRemovable
from tidegauge.testing.kit import check_sink

LAWS = "sweeping clears the litter of drivers that died", "files are taken out in whole or not at all"


@pytest.fixture
def bench(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredBench:
    configured(monkeypatch, tmp_path, lake.server.url)
    return StoredBench(tmp_path, lake=lake)


def test_a_table_comes_is_read_and_goes_and_nothing_of_it_is_left(bench: StoredBench, lake: Lake) -> None:
    table = bench.filled(2)
    assert kept(bench, timedelta(0)) != []
    assert bench.epochs() == [0, 1]
    assert (table.upper, [file.rows for file in bench.open().files()]) == (2, [1, 1])
    bench.sink.remove(OUTPUT)
    assert lake.all_keys() == []
    assert bench.open().upper == 0


@pytest.mark.long
def test_what_marks_folders_for_other_clients_is_no_hindrance(bench: StoredBench, lake: Lake) -> None:
    """Arrow's and Hadoop's clients put it: an empty object whose key ends with a slash."""
    table = bench.filled(2)
    folders = [f"{bench.path.key}/{name}" for name in ("", "metadata/", "data/")]
    for folder in folders:
        assert lake.server.request("PUT", f"/{lake.bucket}/{folder}", b"") == 200
    bench.commit(table, 2, 3)
    kept(bench, timedelta(0))
    assert bench.epochs() == [0, 1, 2]
    (bench.path / "metadata").put(b"of somebody")
    with pytest.raises(TableNotRemovable, match="metadata"):
        bench.sink.remove(OUTPUT)
    (bench.path / "metadata").unlink()
    bench.sink.remove(OUTPUT)
    assert sorted(lake.all_keys()) == sorted(folders)
    bench.filled(1)
    assert bench.epochs() == [0]


@pytest.mark.long
def test_metadata_that_is_too_old_goes_and_leaves_no_marks(bench: StoredBench, lake: Lake) -> None:
    table = bench.filled(1)
    bench.table.transaction().set_properties({"write.metadata.previous-versions-max": "2"}).commit_transaction()
    for epoch in range(1, 5):
        bench.commit(table, epoch, epoch + 1)
    assert len([key for key in lake.all_keys() if key.endswith(".metadata.json")]) == 3
    assert [key for key in lake.all_keys() if key.endswith("/") or ("part-" in key and "/shop/" not in key)] == []
    assert bench.epochs() == list(range(5))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["append", "upsert", "parted upsert"])
def test_it_holds_every_law(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    configured(monkeypatch, tmp_path, lake.server.url)
    bench: Any = StoredBench if kind == "append" else partial(StoredUpserts, parted=kind == "parted upsert")
    report = check_sink(lambda folder: bench(folder, lake=lake), crashes=6, deadline=240)
    broken = set[str]() if kind == "append" else {"a table tells its files by epoch"}
    assert {finding.name for finding in report.broken} == broken, str(report)
    untried = {finding.name for finding in report.findings if finding.untried}
    assert untried == {LAWS[kind != "append"], "a layout changes no rows"}
    assert [key for key in lake.all_keys() if key.endswith("/") or ("part-" in key and "/shop/" not in key)] == []
