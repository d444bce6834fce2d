"""Tables of Iceberg in a flow: live, late, read back, made again, dropped, recovered, and with killed drivers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from tests.flow.iceberg_driver import INSIDE
from tests.sinks.iceberg.conftest import catalog_in

import tidegauge as tg
from tidegauge.errors.flow import OperationsNotTaken
from tidegauge.errors.iceberg import IcebergTableChanged
from tidegauge.errors.sinks import TableNotRemovable, TableWentBack

COLUMNS = "id long, name string, price decimal(9,2), at timestamp, day date, tags array<string>, small smallint"


@dataclass
class Shop:
    """A flow over one file that grows, epoch by epoch, into tables of one warehouse."""

    root: Path
    outputs: tuple[str, ...] = ("users",)
    columns: str = COLUMNS
    code: list[str] = field(default_factory=lambda: ["*"])
    wider: bool = False

    @property
    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{self.root}/shop.db", tick=0.02)
        file = tg.FileSource(f"{self.root}/users.jsonl", format=tg.Json(self.columns))
        users = flow.source("users", file).select(*self.code)
        if self.wider:
            users = users.map_batches(twice)
        for name in self.outputs:
            flow.sink(name, users, tg.IcebergSink(f"shop.{name}", f"{self.root}/lake"))
        return flow

    def run(self, *ids: int, **more: Any) -> int:
        """Add rows as an epoch of their own, and run until they are there."""
        with (self.root / "users.jsonl").open("a") as file:
            file.write("".join(json.dumps(row(n) | more) + "\n" for n in ids))
        return self.flow.run("caught-up", engine=tg.LocalEngine(threads=0)).published

    def table(self, name: str = "users") -> Any:
        return catalog_in(f"{self.root}/lake").load_table(f"shop.{name}")

    def ids(self, name: str = "users") -> list[tuple[int, int]]:
        found = self.table(name).scan().to_arrow().to_pylist()
        return sorted((one["id"], one["_epoch"]) for one in found)

    def state(self, output: str = "users") -> Any:
        return next(one for one in tg.status(self.flow).outputs if one.name == output)


def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("twice", pc.multiply(batch["id"], 2))


def row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "name": f"u{n}",
        "price": f"{n}.50",
        "at": "2026-03-29T01:30:00Z",
        "day": "2026-03-29",
        "tags": ["x"] * (n % 3),
        "small": n,
    }


def test_each_epoch_is_in_the_table_once_and_is_read_back_as_of_any(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for epoch in range(3):
        assert shop.run(10 * epoch, 10 * epoch + 1) == epoch + 1
    wanted = [(10 * epoch + n, epoch) for epoch in range(3) for n in range(2)]
    assert shop.ids() == wanted
    assert (shop.state().state, shop.state().rows, shop.state().upper) == ("live", 6, 3)
    for epoch in range(3):
        found = tg.read_arrow(shop.flow, "users", as_of=epoch)
        assert (
            sorted(zip(found["id"].to_pylist(), found["_epoch"].to_pylist(), strict=True)) == wanted[: 2 * epoch + 2]
        )
    theirs, ours = shop.table().scan().to_arrow(), tg.read_arrow(shop.flow, "users")
    assert theirs.sort_by("id").to_pylist() == ours.sort_by("id").to_pylist()
    assert tg.verify(shop.flow).problems == ()
    assert [one.name for one in shop.table().schema().fields][-1] == "_epoch"


@pytest.mark.long
def test_a_late_table_shows_its_past_at_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for epoch in range(3):
        shop.run(epoch)
    shop.outputs = ("users", "late")
    shop.run(3)
    assert shop.ids("late") == shop.ids()
    assert shop.state("late").state == "live"
    first = shop.table("late").snapshots()[0]
    assert int(first.summary["tidegauge.upper"]) >= 3, "all of its past came in one commit"


@pytest.mark.long
def test_a_table_is_made_again_with_other_columns_and_goes_on(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for epoch in range(3):
        shop.run(epoch)
    old = shop.table().current_snapshot().snapshot_id
    shop.code, shop.wider = ["name", "id"], True
    tg.replace(shop.flow, "users")
    shop.run(3)
    shop.run(4)
    assert shop.ids() == [(n, n) for n in range(5)]
    table = shop.table()
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda one: one["id"])
    assert found[4] == {"name": "u4", "id": 4, "twice": 8, "_epoch": 4}
    assert {one.name: one.field_id for one in table.schema().fields} | {"twice": 0} == {
        "name": 2, "id": 1, "twice": 0, "_epoch": 8,
    }  # fmt: skip
    before = table.scan(snapshot_id=old).to_arrow()
    assert sorted(before["id"].to_pylist()) == [0, 1, 2], "the old rows are there in their snapshot"
    assert "price" in before.column_names


@pytest.mark.long
def test_a_lost_store_is_recovered_from_the_table(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for epoch in range(3):
        shop.run(epoch)
    held = shop.table()
    held.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in held.snapshots()][:2]).commit()
    (tmp_path / "shop.db").unlink()
    tg.recover(shop.flow)
    shop.run(3)
    assert shop.ids() == [(n, n) for n in range(4)]
    assert tg.verify(shop.flow).problems == ()


@pytest.mark.long
def test_a_dropped_output_takes_its_table_along_if_all_of_it_is_its_own(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ("users", "copy"))
    shop.run(0)
    stray = tmp_path / "lake" / "shop" / "copy" / "notes.txt"
    stray.write_text("mine")
    with pytest.raises(TableNotRemovable, match=r"notes\.txt"):
        tg.drop(shop.flow, "copy", table=True)
    assert shop.ids("copy") == [(0, 0)]
    stray.unlink()
    tg.drop(shop.flow, "copy", table=True)
    assert not catalog_in(tmp_path / "lake").table_exists("shop.copy")
    assert not stray.parent.exists()
    shop.run(1)
    assert shop.ids("copy") == shop.ids() == [(0, 0), (1, 1)], "declared again, it gets it all again"


@pytest.mark.long
def test_what_others_do_fails_that_output_alone_until_it_is_undone(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ("users", "copy"))
    shop.run(0)
    table = shop.table()
    ours = table.current_snapshot().snapshot_id
    table.append(table.scan().to_arrow().slice(0, 1))
    with pytest.raises(IcebergTableChanged):
        shop.run(1)
    with table.manage_snapshots() as change:
        change.set_current_snapshot(snapshot_id=ours)
    shop.run()
    assert shop.ids() == shop.ids("copy") == [(0, 0), (1, 1)]
    catalog_in(tmp_path / "lake").drop_table("shop.copy")
    with pytest.raises(TableWentBack):
        shop.run()
    tg.repair(shop.flow, "copy", from_epoch=0)
    shop.run(2)
    assert shop.ids("copy") == shop.ids() == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.long
def test_a_catalog_that_is_restored_gets_the_later_epochs_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run(0)
    shutil.copy(tmp_path / "lake" / "catalog.db", tmp_path / "backup.db")
    shop.run(1)
    shop.run(2)
    shutil.copy(tmp_path / "backup.db", tmp_path / "lake" / "catalog.db")
    assert shop.ids() == [(0, 0)]
    shop.run(3)
    assert shop.ids() == [(n, n) for n in range(4)]
    assert tg.verify(shop.flow).problems == ()


@pytest.mark.long
def test_rows_with_operations_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    shop = Shop(tmp_path, columns="id long, _op string")
    with pytest.raises(OperationsNotTaken):
        shop.run(1, _op="insert")
    assert not (tmp_path / "lake").exists()


POINTS = [*INSIDE, "before commit output", "after commit output", "before publish", "after stage"]


@pytest.mark.long
def test_a_flow_whose_driver_is_killed_again_and_again_has_each_row_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put = 0

    def live(point: str, nth: int) -> int:
        nonlocal put
        lines = [{"id": n % 17, "name": f"{n:06}"} for n in range(put, put + 10)]
        (tmp_path / "in" / f"{put:06}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        put += 10
        command = [sys.executable, "-m", "tests.flow.iceberg_driver", str(tmp_path), point, str(nth)]
        return subprocess.run(command, check=False, cwd=Path(__file__).parents[2], timeout=240).returncode

    ended = [live(point, nth) for point in POINTS for nth in (0, 2)]
    assert set(ended) <= {-9, 0}
    assert ended.count(-9) > len(ended) // 2
    assert live("", 0) == 0
    ice = catalog_in(tmp_path / "lake").load_table("shop.users").scan().to_arrow()
    delta = pa.table(DeltaTable(str(tmp_path / "delta")).to_pyarrow_table())
    assert sorted(ice["name"].to_pylist()) == [f"{n:06}" for n in range(put)]
    both = [sorted(zip(t["name"].to_pylist(), t["_epoch"].to_pylist(), strict=True)) for t in (ice, delta)]
    assert both[0] == both[1]
