"""A table that others have damaged is repaired: the epochs that it lacks are read once more and put in, no others."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.maintenance.rolledback import Shop

import tidegauge as tg
from tidegauge.errors.history import (
    EpochsCompacted,
    EpochsGone,
    EpochsUnknown,
    ForeignRows,
    HistoriesPart,
    OnlyAppended,
    StoreBehindTable,
)
from tidegauge.errors.sinks import TableChangedByOthers, UnsupportedTable
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.sinks.parquet.manifest import MANIFEST, folder_name

pq: Final[Any] = pyarrow.parquet

SCHEMA = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
LOCAL = tg.LocalEngine(threads=0)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Five epochs, each of one row with the number of the epoch. It is copied, and damaged where it was."""
    made = Shop(tmp_path_factory.mktemp("repair") / "shop", {"orders": "delta"})
    made.run(*range(5))
    shutil.copytree(made.root, made.root.with_name("saved"))
    return made


@pytest.fixture
def shop(template: Shop) -> Shop:
    shutil.rmtree(template.root)
    shutil.copytree(template.root.with_name("saved"), template.root)
    return Shop(template.root, {"orders": "delta"})


def delta(shop: Shop) -> DeltaTable:
    return DeltaTable(f"{shop.root}/lake/orders")


def foreign(*ids: int, epoch: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "_epoch": [epoch] * len(ids)}, schema=SCHEMA)


def append(shop: Shop, *ids: int) -> DeltaTable:
    write_deltalake(delta(shop), foreign(*ids), mode="append")
    return delta(shop)


def optimized(table: DeltaTable) -> DeltaTable:
    table.optimize.compact()
    return table


def repair(shop: Shop, **options: Any) -> Any:
    return tg.repair(shop.flow(), "orders", engine=LOCAL, **options)


def entry(shop: Shop) -> list[dict[str, Any]]:
    """Return the newest entry of the table's log."""
    table = delta(shop)
    path = shop.root / "lake" / "orders" / "_delta_log" / f"{table.version():020d}.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


def healthy(shop: Shop, rows: int) -> None:
    """Hold that each row is there once, for whoever reads, and that the flow goes on."""
    assert shop.rows() == Counter(range(rows))
    assert Counter(delta(shop).to_pyarrow_table()["id"].to_pylist()) == Counter(range(rows))
    assert tg.verify(shop.flow()).problems == ()
    assert (tg.status(shop.flow()).outputs[0].rows, entry(shop)[0]["commitInfo"]["holds"][1]) == (rows, rows)
    shop.run(rows)
    assert shop.rows() == Counter(range(rows + 1))
    [output] = tg.status(shop.flow()).outputs
    assert (output.state, output.rows) == ("live", rows + 1)


def test_what_a_restore_took_is_brought_back_in_one_commit_and_nothing_else_is_touched(shop: Shop) -> None:
    kept = set(delta(shop).file_uris())
    before = {uri: Path(uri).stat().st_mtime_ns for uri in kept}
    delta(shop).restore(2)
    version = delta(shop).version()
    done = repair(shop)
    assert (done.epochs, done.rows, done.removed, done.upper, done.changed) == (((3, 4),), 2, (), 5, True)
    assert delta(shop).version() == version + 1
    assert [action["remove"] for action in entry(shop) if "remove" in action] == []
    assert len([uri for uri in delta(shop).file_uris() if uri in before]) == 3
    healthy(shop, 5)


def test_a_table_with_rows_of_others_is_refused_with_their_files_and_versions_until_they_may_go(shop: Shop) -> None:
    delta(shop).restore(3)
    append(shop, 77, 78)
    version = delta(shop).version()
    with pytest.raises(ForeignRows) as caught:
        repair(shop)
    assert f"WRITE, version {version}" in str(caught.value)
    assert delta(shop).version() == version
    done = repair(shop, remove_foreign=True)
    assert (done.epochs, done.rows, len(done.removed)) == (((4, 4),), 1, 1)
    assert delta(shop).version() == version + 1
    healthy(shop, 5)


def test_a_table_with_nothing_but_rows_of_others_is_rid_of_them_without_reading_anything(shop: Shop) -> None:
    append(shop, 77)
    for path in (shop.root / "in").iterdir():
        path.rename(path.with_suffix(".away"))
    done = repair(shop, remove_foreign=True)
    assert (done.epochs, done.rows, len(done.removed)) == ((), 0, 1)
    for path in (shop.root / "in").iterdir():
        path.rename(path.with_suffix(".jsonl"))
    healthy(shop, 5)


CHANGES: dict[str, tuple[Callable[[Shop], object], tuple[tuple[int, int], ...]]] = {
    "update": (lambda shop: delta(shop).update(updates={"id": "id + 100"}, predicate="id = 2"), ((2, 2),)),
    "overwrite": (lambda shop: write_deltalake(delta(shop), foreign(1, 2), mode="overwrite"), ((0, 4),)),
    "merge": (
        lambda shop: (
            delta(shop)
            .merge(foreign(3), "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_update({"id": "s.id + 50"})
            .execute()
        ),
        ((3, 3),),
    ),
    "append, then optimize": (lambda shop: optimized(append(shop, 77)), ((0, 4),)),
    "optimize, then update": (
        lambda shop: optimized(delta(shop)).update(updates={"id": "id + 100"}, predicate="id = 2"),
        ((0, 4),),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_epochs_of_which_rows_were_changed_are_replaced_whole(shop: Shop, what: str) -> None:
    change, epochs = CHANGES[what]
    change(shop)
    with pytest.raises(TableChangedByOthers):
        shop.rows()
    assert repair(shop, remove_foreign=True).epochs == epochs
    healthy(shop, 5)


def test_of_a_file_that_holds_other_epochs_too_these_are_kept_as_they_are(shop: Shop) -> None:
    delta(shop).restore(3)
    repair(shop)
    delta(shop).optimize.compact()  # one file of all epochs
    delta(shop).delete("id = 1")  # which stays deleted, as its epoch is not replaced
    shop.run(5)
    delta(shop).optimize.compact()
    repaired = tg.repair(shop.flow(), "orders", from_epoch=4, engine=LOCAL)
    assert (repaired.epochs, repaired.rows) == (((4, 5),), 2)
    assert shop.rows() == Counter([0, 2, 3, 4, 5])


def test_a_file_that_is_gone_from_the_disk_is_missing_too(shop: Shop) -> None:
    [uri] = tg.read_arrow(shop.flow(), "orders") and [
        uri for uri in delta(shop).file_uris() if Path(uri).read_bytes() and "2" in str(epoch_of(uri))
    ]
    Path(uri).unlink()
    assert repair(shop).epochs == ((2, 2),)
    healthy(shop, 5)


def epoch_of(uri: str) -> int:
    return int(pq.ParquetFile(uri).read()["_epoch"][0].as_py())


def test_a_table_that_lacks_nothing_is_left_as_it_is(shop: Shop) -> None:
    delta(shop).optimize.compact()
    version = delta(shop).version()
    assert repair(shop).changed is False
    assert delta(shop).version() == version


def test_rows_that_upstream_no_longer_has_are_said_by_their_epochs_and_nothing_is_changed(shop: Shop) -> None:
    shop.write(5, 6, file="b")
    shop.again()
    shop.write(7, file="c")
    shop.again()
    delta(shop).restore(2)
    (shop.root / "in" / "b.jsonl").unlink()
    version = delta(shop).version()
    with pytest.raises(EpochsGone) as caught:
        repair(shop)
    assert caught.value.evidence["epochs"] == "5"
    assert delta(shop).version() == version
    tg.skip(shop.flow(), "orders", f"{shop.root}/in/b.jsonl", 0, 20)
    assert repair(shop).epochs == ((3, 6),)
    assert shop.rows() == Counter([0, 1, 2, 3, 4, 7])


def test_epochs_that_were_compacted_are_not_guessed_and_the_whole_table_can_be_written_anew(shop: Shop) -> None:
    tg.compact(shop.flow(), before=3)
    delta(shop).restore(1)
    with pytest.raises(EpochsCompacted) as caught:
        repair(shop)
    assert (caught.value.evidence["epochs"], caught.value.evidence["since"]) == ("2 to 4", 3)
    assert repair(shop, from_epoch=0).epochs == ((0, 4),)
    healthy(shop, 5)


def test_epochs_after_those_that_were_compacted_are_repaired_as_ever(shop: Shop) -> None:
    tg.compact(shop.flow(), before=3)
    delta(shop).restore(3)
    assert repair(shop).epochs == ((4, 4),)
    healthy(shop, 5)


def test_files_whose_epochs_nobody_knows_any_more_are_said(shop: Shop) -> None:
    log = shop.root / "lake" / "orders" / "_delta_log"
    delta(shop).create_checkpoint()
    delta(shop).restore(2)
    lost = set(Path(f"{shop.root}/lake/orders").glob("*.parquet")) - {Path(uri) for uri in delta(shop).file_uris()}
    for path in lost:
        path.unlink()
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    with pytest.raises((EpochsUnknown, TableChangedByOthers)) as caught:
        repair(shop)
    assert isinstance(caught.value, EpochsUnknown)
    assert repair(shop, from_epoch=0).epochs == ((0, 4),)
    healthy(shop, 5)


def test_a_table_under_which_nothing_may_be_taken_out_is_refused(shop: Shop) -> None:
    append(shop, 77)
    delta(shop).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(UnsupportedTable, match="appendOnly"):
        repair(shop, remove_foreign=True)


def parted(shop: Shop, kind: str = "delta") -> None:
    """Put the store back to two epochs, and let it bind others than the table holds, while nobody looks at that."""
    shop.lose()
    shutil.copy(shop.root / "copy", shop.file)
    shop.outputs = {"elsewhere": "parquet"}
    shop.run(12, 13)
    shop.outputs = {**shop.outputs, "orders": kind}


def test_a_table_of_another_history_is_written_anew_from_where_the_two_part(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"orders": "delta"})
    shop.run(0, 1)
    shop.copy()
    shop.run(2, 3, 4)
    parted(shop)
    with pytest.raises(StoreBehindTable) as caught:
        repair(shop)
    assert "repair FLOW orders --from 2" in str(caught.value)
    with pytest.raises(HistoriesPart, match="--from 2"):
        repair(shop, from_epoch=3)
    before = delta(shop).version()
    done = repair(shop, from_epoch=2)
    assert (done.epochs, done.upper, delta(shop).version()) == (((2, 3),), 4, before + 1)
    assert shop.rows() == shop.rows("elsewhere") == Counter([0, 1, 2, 3, 4, 12, 13])
    assert tg.verify(shop.flow()).problems == ()
    shop.run(14)
    assert shop.rows() == shop.rows("elsewhere") == Counter([0, 1, 2, 3, 4, 12, 13, 14])


@pytest.mark.long
def test_a_rebuilt_table_brings_a_lost_store_back_as_it_is_now(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"orders": "delta"})
    shop.run(0, 1)
    shop.copy()
    shop.run(2, 3)
    parted(shop)
    repair(shop, from_epoch=2)
    shop.lose()
    shop.outputs = {"orders": "delta"}
    assert tg.recover(shop.flow()).upper == 4
    shop.run(15)
    assert shop.rows() == Counter([0, 1, 2, 3, 12, 13, 15])


def test_a_topic_cannot_be_repaired(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    rows = flow.source("rows", tg.GeneratorSource(9, columns="id long"))
    flow.sink("topic", rows, tg.KafkaSink("localhost:1", topic="rows", key="id"))
    with pytest.raises(OnlyAppended, match="TG-0623"):
        tg.repair(flow, "topic", engine=LOCAL)


def test_a_flow_that_runs_is_not_repaired_beside_it(shop: Shop) -> None:
    with shop.flow().start(engine=LOCAL), pytest.raises(FlowAlreadyRunning):
        repair(shop)


# -- folders


@pytest.fixture(scope="module")
def folders_template(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = Shop(tmp_path_factory.mktemp("repair") / "shop", {"orders": "parquet"})
    made.run(*range(4))
    shutil.copytree(made.root, made.root.with_name("saved"))
    return made


@pytest.fixture
def folders(folders_template: Shop) -> Shop:
    """Four epochs, each in a folder of its own."""
    shutil.rmtree(folders_template.root)
    shutil.copytree(folders_template.root.with_name("saved"), folders_template.root)
    return Shop(folders_template.root, {"orders": "parquet"})


def folder(shop: Shop, epoch: int) -> Path:
    return shop.root / "lake" / "orders" / folder_name(epoch)


def data(shop: Shop, epoch: int) -> Path:
    [found] = folder(shop, epoch).glob("*.parquet")
    return found


def sound(shop: Shop, rows: int) -> None:
    """Hold that each row is there once, for whoever reads, and that the flow goes on."""
    assert shop.rows() == Counter(range(rows))
    strangers = pq.read_table(shop.root / "lake" / "orders", columns=["id"])
    assert Counter(strangers["id"].to_pylist()) == Counter(range(rows))
    assert tg.verify(shop.flow()).problems == ()
    shop.run(rows)
    assert shop.rows() == Counter(range(rows + 1))


def without_folders(shop: Shop, *epochs: int) -> None:
    for epoch in epochs:
        shutil.rmtree(folder(shop, epoch))


DAMAGES: dict[str, tuple[Callable[[Shop], object], tuple[tuple[int, int], ...]]] = {
    "a file is removed": (lambda shop: data(shop, 1).unlink(), ((1, 1),)),
    "a file is cut short": (lambda shop: data(shop, 2).write_bytes(b"PAR1"), ((2, 2),)),
    "a folder is removed": (lambda shop: shutil.rmtree(folder(shop, 1)), ((1, 1),)),
    "the first folders are removed": (lambda shop: without_folders(shop, 0, 1), ((0, 1),)),
    "a manifest is damaged": (lambda shop: (folder(shop, 1) / MANIFEST).write_text("{"), ((1, 1),)),
    "folders that are apart are removed": (lambda shop: without_folders(shop, 0, 2), ((0, 0), (2, 2))),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_commits_of_which_something_is_missing_are_written_anew(folders: Shop, what: str) -> None:
    damage, epochs = DAMAGES[what]
    damage(folders)
    assert repair(folders).epochs == epochs
    sound(folders, 4)


def test_files_that_somebody_put_into_a_folder_are_removed_where_they_may_be(folders: Shop) -> None:
    shutil.copy(data(folders, 0), folder(folders, 1) / "mine.parquet")
    data(folders, 3).unlink()
    with pytest.raises(ForeignRows, match=r"from_epoch=000000000001/mine.parquet \(of no commit\)"):
        repair(folders)
    done = repair(folders, remove_foreign=True)
    assert (done.epochs, done.removed) == (((3, 3),), ("from_epoch=000000000001/mine.parquet",))
    sound(folders, 4)


def test_the_end_of_a_chain_of_folders_is_written_anew_on_request(folders: Shop) -> None:
    kept = data(folders, 1)
    done = repair(folders, from_epoch=2)
    assert (done.epochs, done.rows, kept.exists(), folder(folders, 3).exists()) == (((2, 3),), 2, True, False)
    sound(folders, 4)


@pytest.mark.long
def test_folders_of_another_history_are_written_anew_from_where_the_two_part(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"orders": "parquet"})
    shop.run(0, 1)
    shop.copy()
    shop.run(2, 3, 4)
    parted(shop, "parquet")
    with pytest.raises(StoreBehindTable, match="--from 2"):
        repair(shop)
    assert repair(shop, from_epoch=2).upper == 4
    assert shop.rows() == shop.rows("elsewhere") == Counter([0, 1, 2, 3, 4, 12, 13])
    shop.lose()
    shop.outputs = {"orders": "parquet"}
    assert tg.recover(shop.flow()).upper == 4
    shop.run(15)
    assert shop.rows() == Counter([0, 1, 2, 3, 4, 12, 13, 15])
