"""Files that are loaded once: all of them in one epoch of an output, or nothing of them anywhere."""

from __future__ import annotations

import errno
import glob
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.disks import fill, make_room, small_disk
from tests.maintenance.history import loaded_together, rows, shop, write
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import StoreBehindTable
from tidegauge.errors.loads import (
    FileChangedMeanwhile,
    FileNotLoadable,
    LoadedAlready,
    LoadForgotten,
    LoadNotStaged,
    LoadsNotTaken,
    NoSuchColumns,
    NothingToLoad,
    ValuesInFolders,
)
from tidegauge.maintenance import loading
from tidegauge.sources.batches import loading as batches_loading


def staged(root: Path) -> list[str]:
    """What is left in the source's folder."""
    return sorted(path.name for path in (root / "loads").rglob("*") if path.is_file())


def test_t69_of_three_files_with_a_corrupt_third_nothing_is_loaded_and_nothing_is_left(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    third = tmp_path / "in" / "3.parquet"
    good = third.read_bytes()
    flow = shop(tmp_path)
    middle = len(good) // 3
    for corrupt in (good[:-9], good[:4] + bytes(middle) + good[4 + middle :]):
        third.write_bytes(corrupt)
        with pytest.raises(FileNotLoadable, match=r"3\.parquet cannot be read"):
            tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
        assert staged(tmp_path) == ["lock"]
    assert rows(flow) == []
    third.write_bytes(good)
    done = tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert (done.files, done.rows, done.source) == (3, 6, "history")
    found = rows(flow)
    assert [n for n, _ in found] == [1, 2, 3, 11, 12, 13]
    assert len({epoch for _, epoch in found}) == 1


def test_what_was_loaded_is_on_the_timeline_and_is_not_loaded_again(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    flow = shop(tmp_path)
    done = tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    with pytest.raises(LoadedAlready, match=f"2 of the 2 files have been loaded by {done.name}"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert len(rows(flow)) == 4
    [piece] = [one for one in tg.explain(flow, 0).slices if one.source == "history"]
    assert (piece.partition, piece.detail["inputs"]) == (done.name, 2)
    assert piece.detail["path"] == f"{tmp_path}/in/*.parquet"
    write(tmp_path, 3)
    with pytest.raises(LoadedAlready, match="2 of the 3 files"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    tg.load(flow, "orders", tmp_path / "in" / "3.parquet")
    assert [n for n, _ in rows(flow)] == [1, 2, 3, 11, 12, 13]


def test_a_last_line_without_an_end_is_a_row_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}')
    (tmp_path / "b.jsonl").write_text('{"id": 3, "name": "a"}\n{"id": "x"}\n')
    with pytest.raises(FileNotLoadable, match=r"b\.jsonl cannot be read: the record at 23"):
        tg.load(flow, "orders", tmp_path / "*.jsonl")
    tg.load(flow, "orders", tmp_path / "a.jsonl")
    assert [n for n, _ in rows(flow)] == [1, 2]


def test_what_cannot_be_loaded_is_refused_by_name(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"number": 1}\n')
    with pytest.raises(NoSuchColumns, match="1 rows with no value in any of the columns id, name"):
        tg.load(flow, "orders", tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_text("number,title\n1,a\n")
    with pytest.raises(FileNotLoadable, match="header has none of the columns"):
        tg.load(flow, "orders", tmp_path / "a.csv")
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "text.parquet")
    with pytest.raises(FileNotLoadable, match=r"text\.parquet"):
        tg.load(flow, "orders", tmp_path / "text.parquet")
    with pytest.raises(NothingToLoad, match="no file matches"):
        tg.load(flow, "orders", tmp_path / "*.parquets", format=tg.Parquet())
    with pytest.raises(LoadsNotTaken, match="none of its sources does, of numbers"):
        tg.load(flow, "numbers", tmp_path / "a.csv")
    with pytest.raises(InvalidArgument, match="format"):
        tg.load(flow, "orders", tmp_path / "a.xlsx")
    with pytest.raises(InvalidArgument, match="all_or_nothing"):
        tg.load(flow, "orders", tmp_path / "a.csv", all_or_nothing=False)


def test_values_that_the_names_of_folders_have_are_not_loaded_as_nulls(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    for folder, table in (
        ("name=a", pa.table({"id": [1]})),
        ("name=__HIVE_DEFAULT_PARTITION__", pa.table({"id": [2]})),
        ("name=b", pa.table({"id": [3], "name": ["b"]})),
        ("day=1", pa.table({"id": [4]})),
    ):
        (tmp_path / "in" / folder).mkdir(parents=True)
        pq.write_table(table, tmp_path / "in" / folder / "x.parquet")
    with pytest.raises(ValuesInFolders, match=r"name=a/x\.parquet has 1 rows without a value of name"):
        tg.load(flow, "orders", tmp_path / "in" / "*" / "*.parquet")
    assert staged(tmp_path) == ["lock"]
    shutil.rmtree(tmp_path / "in" / "name=a")
    tg.load(flow, "orders", tmp_path / "in" / "*" / "*.parquet")
    assert [n for n, _ in rows(flow)] == [2, 3, 4]


def test_a_file_of_the_same_name_with_other_content_is_another_file(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    file = tmp_path / "day.jsonl"
    for number in (1, 2):
        file.write_text(f'{{"id": {number}}}\n')
        tg.load(flow, "orders", file)
        with pytest.raises(LoadedAlready, match=r"day\.jsonl first"):
            tg.load(flow, "orders", [file, file])
        assert rows(flow)[-1] == (number, number - 1)
    file.write_text('{"id": 1}\n')
    with pytest.raises(LoadedAlready):
        tg.load(flow, "orders", file)


def test_what_is_bound_is_known_also_after_its_files_were_removed(tmp_path: Path) -> None:
    write(tmp_path, 1)
    flow = shop(tmp_path)
    done = tg.load(flow, "orders", tmp_path / "in" / "1.parquet")
    assert len(rows(flow)) == 2
    shutil.rmtree(tmp_path / "loads" / done.name)
    with pytest.raises(LoadedAlready, match=done.name):
        tg.load(flow, "orders", tmp_path / "in" / "1.parquet")
    shutil.rmtree(tmp_path / "loads")
    write(tmp_path, 2)
    with pytest.raises(LoadNotStaged, match="it is not there, and the flow has read it"):
        tg.load(flow, "orders", tmp_path / "in" / "2.parquet")
    assert not (tmp_path / "loads").exists()


def test_a_folder_that_was_put_back_to_an_older_copy_takes_no_file_a_second_time(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4)
    flow = shop(tmp_path)
    tg.load(flow, "orders", tmp_path / "in" / "1.parquet")
    shutil.copytree(tmp_path / "loads", tmp_path / "older")
    done = tg.load(flow, "orders", tmp_path / "in" / "[23].parquet")
    assert len(rows(flow)) == 6
    (tmp_path / "loads").rename(tmp_path / "newer")
    (tmp_path / "older").rename(tmp_path / "loads")
    named = rf"loads/{done.name}/inputs\.json is gone, which named the 2 files"
    for pattern in ("2.parquet", "4.parquet"):
        with pytest.raises(LoadForgotten, match=named):
            tg.load(flow, "orders", tmp_path / "in" / pattern)
    with pytest.raises(LoadedAlready, match=done.name):
        tg.load(flow, "orders", tmp_path / "in" / "[23].parquet")
    (tmp_path / "loads" / done.name).mkdir()
    shutil.copy(tmp_path / "newer" / done.name / "inputs.json", tmp_path / "loads" / done.name)
    with pytest.raises(LoadedAlready, match=r"2\.parquet first"):
        tg.load(flow, "orders", tmp_path / "in" / "2.parquet")
    tg.load(flow, "orders", tmp_path / "in" / "4.parquet")
    assert [n for n, _ in rows(flow)] == [1, 2, 3, 4, 11, 12, 13, 14]


def test_a_store_that_was_put_back_is_behind_its_tables_and_has_each_load_once_when_recovered(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    flow = shop(tmp_path)
    tg.load(flow, "orders", tmp_path / "in" / "1.parquet")
    assert rows(flow) == [(1, 0), (11, 0)]
    shutil.copy(tmp_path / "shop.db", tmp_path / "older.db")
    tg.load(flow, "orders", tmp_path / "in" / "2.parquet")
    assert rows(flow)[1] == (2, 1)
    for path in tmp_path.glob("shop.db*"):
        path.unlink()
    (tmp_path / "older.db").rename(tmp_path / "shop.db")
    with pytest.raises(LoadedAlready):
        tg.load(flow, "orders", tmp_path / "in" / "2.parquet")
    tg.load(flow, "orders", tmp_path / "in" / "3.parquet")
    with pytest.raises(StoreBehindTable):
        rows(flow)
    tg.recover(flow)
    assert rows(flow) == [(1, 0), (2, 1), (3, 2), (11, 0), (12, 1), (13, 2)]


def test_a_load_that_fills_the_disk_is_nothing_and_is_made_once_there_is_room(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    large = {"id": range(200_000), "name": [f"{n * 7919:x}" for n in range(200_000)]}
    pq.write_table(pa.table(large), tmp_path / "in" / "large.parquet")
    with small_disk(tmp_path / "disk", size="1m") as disk:
        flow = shop(tmp_path, disk / "loads")
        with pytest.raises(LoadNotStaged, match="No space left on device"):
            tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
        assert [path.name for path in disk.rglob("*") if path.is_file()] == ["lock"]
        fill(disk)
        with pytest.raises(LoadNotStaged, match="No space left on device"):
            tg.load(flow, "orders", tmp_path / "in" / "1.parquet")
        make_room(disk)
        tg.load(flow, "orders", tmp_path / "in" / "[12].parquet")
        assert [n for n, _ in rows(flow)] == [1, 2, 11, 12]


def test_a_file_that_another_one_has_replaced_is_refused_and_one_that_came_later_is_left(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    flow = shop(tmp_path)
    place = tmp_path / "in" / "2.parquet"

    class Replaced(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            before, other = place.stat(), tmp_path / "other"
            pq.write_table(pa.table({"id": [8, 9], "name": ["a", "b"]}), other)
            assert other.stat().st_size == before.st_size
            other.rename(place)
            os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
            return super().work(tasks)

    class Later(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            write(tmp_path, 3)
            return super().work(tasks)

    with pytest.raises(FileChangedMeanwhile, match=r"2\.parquet has changed since it was found"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet", engine=Replaced())
    assert staged(tmp_path) == ["lock"]
    assert tg.load(flow, "orders", tmp_path / "in" / "*.parquet", engine=Later()).files == 2
    assert [n for n, _ in rows(flow)] == [1, 8, 9, 11]


def test_of_the_same_loads_at_one_time_one_is_made(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    flow = shop(tmp_path)

    patterns = ["*.parquet", "*.parquet", "[12].parquet", "[23].parquet"] * 2
    assert len(loaded_together(flow, tmp_path / "in", patterns)) == 1
    assert staged(tmp_path).count("lock") == 1
    found = [n for n, _ in rows(flow)]
    assert found == sorted(set(found))
    assert found in ([1, 2, 3, 11, 12, 13], [1, 2, 11, 12], [2, 3, 12, 13])


def test_a_union_takes_a_load_beside_its_other_sources_and_so_does_a_driver_that_runs(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "a.jsonl").write_text('{"id": 7, "name": "live"}\n')
    write(tmp_path, 1, 2)
    columns = "id long, name string"
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.05)
    live = flow.source("live", tg.FileSource(str(tmp_path / "live" / "*.jsonl"), format=tg.Json(columns)))
    history = flow.source("history", tg.BatchSource(tmp_path / "loads", columns=columns))
    every = flow.source("every", tg.union(live, history))
    flow.sink("orders", every, tg.ParquetSink(str(tmp_path / "lake" / "orders")))
    flow.sink("late", live, tg.ParquetSink(str(tmp_path / "lake" / "late")))
    with pytest.raises(LoadsNotTaken, match="none of its sources does, of live"):
        tg.load(flow, "late", tmp_path / "in" / "*.parquet")
    driver = flow.start(engine="local")
    try:
        eventually(lambda: tg.epochs(flow))
        done = tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
        assert done.running
        tg.wait_for(flow, done.positions, timeout=30)
        found = {row["id"]: (row["_source"], row["_epoch"]) for row in tg.read_arrow(flow, "orders").to_pylist()}
    finally:
        driver.stop()
    epoch = found[1][1]
    assert epoch > found[7][1]
    assert found == {7: ("live", 0)} | dict.fromkeys((1, 2, 11, 12), ("history", epoch))


def test_of_two_sources_that_could_take_a_load_none_is_guessed(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    both = [flow.source(name, tg.BatchSource(tmp_path / name, columns="id long")) for name in ("a", "b")]
    flow.sink("orders", flow.source("every", tg.union(*both)), tg.ParquetSink(str(tmp_path / "lake")))
    with pytest.raises(LoadsNotTaken, match="a and b could take it"):
        tg.load(flow, "orders", tmp_path / "x.csv")


def test_a_flow_that_follows_another_one_is_loaded_through_that(tmp_path: Path) -> None:
    write(tmp_path, 1)
    owner = shop(tmp_path)
    follower = tg.Dataflow("report", store=f"sqlite:///{tmp_path}/shop.db")
    history = follower.source("history", tg.shared(owner, "history"))
    follower.sink("copy", history, tg.ParquetSink(str(tmp_path / "copy")))
    with pytest.raises(LoadsNotTaken, match="its sources are those of flow 'shop', which is where to load"):
        tg.load(follower, "copy", tmp_path / "in" / "1.parquet")
    tg.load(owner, "orders", tmp_path / "in" / "1.parquet")
    owner.run("caught-up", engine="local")
    follower.run("caught-up", engine="local")
    assert tg.read_arrow(follower, "copy").num_rows == 2


def test_columns_of_nulls_are_loaded_and_a_folder_or_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    pq.write_table(pa.table({"name": pa.array([None, None], pa.string())}), tmp_path / "nulls.parquet")
    assert tg.load(flow, "orders", tmp_path / "nulls.parquet").rows == 2
    (tmp_path / "nulls.csv").write_text("id,name\n,\n")
    assert tg.load(flow, "orders", tmp_path / "nulls.csv").rows == 1
    pq.write_table(pa.table({"number": [1]}), tmp_path / "other.parquet")
    with pytest.raises(NoSuchColumns, match=r"other\.parquet has 1 rows"):
        tg.load(flow, "orders", tmp_path / "other.parquet")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(NothingToLoad, match="is a folder: write"):
        tg.load(flow, "orders", tmp_path / "folder.csv")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(NothingToLoad, match="the 1 files have no rows"):
        tg.load(flow, "orders", tmp_path / "empty.csv")


def test_names_with_line_ends_quotes_and_brackets_are_names(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    (tmp_path / "in").mkdir()
    name = "a\n'\"; DROP TABLE epochs--[x] %s {b} \u202e.jsonl"
    (tmp_path / "in" / name).write_text('{"id": 1}\n')
    tg.load(flow, "orders", tmp_path / "in" / "*.jsonl")
    assert rows(flow) == [(1, 0)]
    with pytest.raises(LoadedAlready):
        tg.load(flow, "orders", str(tmp_path / "in" / glob.escape(name)))


def test_a_file_that_is_written_while_it_is_loaded_is_refused(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')

    class Meanwhile(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            done = super().work(tasks)
            with (tmp_path / "a.jsonl").open("a") as file:
                file.write('{"id": 2}\n')
            return done

    with pytest.raises(FileChangedMeanwhile, match=r"a\.jsonl has changed since it was found, while it was read"):
        tg.load(flow, "orders", tmp_path / "a.jsonl", engine=Meanwhile())
    assert staged(tmp_path) == ["lock"]


def test_a_task_that_stages_on_another_disk_is_told_and_one_that_is_done_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    flow = shop(tmp_path)

    class Elsewhere(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            done = super().work(tasks)
            next((tmp_path / "loads").rglob("part-*")).rename(tmp_path / "elsewhere")
            return done

    class Twice(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            super().work(tasks)
            return super().work(tasks)

    with pytest.raises(LoadNotStaged, match="a task has staged it, maybe on a disk of its own"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet", engine=Elsewhere())
    assert staged(tmp_path) == ["lock"]
    done = tg.load(flow, "orders", tmp_path / "in" / "*.parquet", engine=Twice())
    assert len(list((tmp_path / "loads" / done.name).rglob("part-*"))) == 1
    assert [n for n, _ in rows(flow)] == [1, 2, 11, 12]


def test_a_folder_that_cannot_be_written_is_told_and_so_is_a_link_to_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1)
    flow = shop(tmp_path)
    (tmp_path / "loads").write_text("no folder")
    with pytest.raises(LoadNotStaged, match=r"the rows cannot be staged in .*loads"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    (tmp_path / "loads").unlink()
    (tmp_path / "a.csv").symlink_to("a.csv")
    with pytest.raises(NothingToLoad, match=r"no file matches '[^']*a\.csv'\n"):
        tg.load(flow, "orders", tmp_path / "a.csv")
    (tmp_path / "a[1].csv").touch()
    with pytest.raises(NothingToLoad, match=r"a file of that very name: write '[^']*a\[\[\]1\]\.csv'"):
        tg.load(flow, "orders", tmp_path / "a[1].csv")


def test_a_load_that_was_removed_is_lost_to_a_late_output_and_a_disk_that_is_away_is_no_loss(
    tmp_path: Path,
) -> None:
    write(tmp_path, 1, 2)
    flow = shop(tmp_path)
    first, _ = (tg.load(flow, "orders", tmp_path / "in" / f"{n}.parquet") for n in (1, 2))
    assert len(rows(flow)) == 4

    def late() -> tuple[str, str]:
        flow = shop(tmp_path, late=True)
        with suppress(TidegaugeError):
            flow.run("caught-up", engine="local")
        return state(tg.status(flow))

    def state(status: Any) -> tuple[str, str]:
        [found] = [one for one in status.outputs if one.name == "late"]
        return found.state, "" if found.error is None else found.error.code

    (tmp_path / "loads").rename(tmp_path / "away")
    (tmp_path / "loads").mkdir()  # where it is mounted
    waiting = shop(tmp_path, late=True)
    with waiting.start(engine="local") as run:
        eventually(lambda: state(run.status) == ("stalled", "TG-0341"))
    (tmp_path / "loads").rmdir()
    (tmp_path / "away").rename(tmp_path / "loads")
    (tmp_path / "loads" / first.name).rename(tmp_path / "removed")
    assert late() == ("failed", "TG-0812")
    (tmp_path / "removed").rename(tmp_path / "loads" / first.name)
    assert late() == ("live", "")


def test_a_disk_that_fails_once_the_load_is_there_is_not_said_to_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    write(tmp_path, 1)
    flow = shop(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(batches_loading, "synchronise", fail)
        with pytest.raises(LoadNotStaged, match="Input/output error"):
            tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert staged(tmp_path) == ["lock"]
    with monkeypatch.context() as broken:
        broken.setattr(loading, "synchronise", fail)
        with pytest.raises(OSError, match="Input/output error"):
            tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    with pytest.raises(LoadedAlready):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert [n for n, _ in rows(flow)] == [1, 11]
