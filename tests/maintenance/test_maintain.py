"""`maintain`: tables get few files, and nobody sees other rows, whoever runs, reads or dies beside it."""

from __future__ import annotations

import math
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import TimeoutError as StillRunning
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.forked import FORKS, end_of
from tests.maintenance import lives
from tests.maintenance.lives import EACH, ENTRIES, ROWS, check, grow, make, well
from tests.s3 import Lake

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.sinks import TableChangedByOthers
from tidegauge.errors.upkeep import NotMaintained
from tidegauge.maintenance.maintain import Maintained, MaintainedOutput
from tidegauge.remap.store import LeaseHolder, Store
from tidegauge.sinks.packing import GROWTH
from tidegauge.sinks.protocol import job_mark

LOCAL = tg.LocalEngine(threads=1)


@pytest.fixture
def flow(tmp_path: Path) -> tg.Dataflow:
    """One that has run for eight epochs, each with a commit of its own."""
    made = make(tmp_path, rows=None)
    grow(made, 8)
    return made


def by_name(done: Maintained) -> dict[str, MaintainedOutput]:
    return {one.output: one for one in well(done).outputs}


def test_many_small_files_become_one_and_every_epoch_reads_as_before(tmp_path: Path, flow: tg.Dataflow) -> None:
    planned = by_name(tg.maintain(flow, dry_run=True))["all"]
    assert (planned.files, planned.packed, planned.rows, planned.versions) == ((8, 1), 8, 24, ())
    assert len(DeltaTable(str(tmp_path / "all")).file_uris()) == 8
    done = by_name(tg.maintain(flow))
    assert (done["all"].files, done["all"].rows, done["all"].versions) == ((8, 1), 24, ("8",))
    assert done["all"].removed == 0
    for epoch in range(8):
        check(flow, as_of=epoch)
    assert tg.verify(flow).problems == ()
    [report] = [one for one in tg.status(flow).outputs if one.name == "all"]
    assert (report.state, report.rows, report.files) == ("live", 24, 1)
    again = by_name(tg.maintain(flow))
    assert [one.versions for one in again.values()] == [(), ()]


def parquet(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".parquet")]


@pytest.mark.long
def test_the_flow_goes_on_after_it_and_old_files_go_when_nobody_may_read_them(
    tmp_path: Path, flow: tg.Dataflow
) -> None:
    before = tg.read_arrow(flow, "all")
    tg.maintain(flow)
    assert len(parquet(tmp_path / "all")) == 9
    grow(flow, 4)
    done = by_name(tg.maintain(flow, ["all"], retention=timedelta(0)))["all"]
    assert done.removed == 8 + done.packed
    assert len(parquet(tmp_path / "all")) == done.files[1]
    for epoch in range(12):
        rows = tg.read_arrow(flow, "all", as_of=epoch)
        assert sorted(rows["_offset"].to_pylist()) == list(range(EACH * (epoch + 1)))
    assert tg.read_arrow(flow, "all", as_of=7).sort_by("_offset") == before.sort_by("_offset")
    assert pl.read_delta(str(tmp_path / "all")).height == 36


@pytest.mark.long
def test_tables_in_an_object_store_are_kept_in_shape_too(tmp_path: Path, lake: Lake) -> None:
    made = make(tmp_path, rows=None, tables=lake.at("tables"))
    grow(made, 12)
    done = by_name(tg.maintain(made))
    assert (done["all"].files, done["all"].rows, done["all"].checkpoint) == ((12, 1), 36, "12")
    grow(made, 1)
    done = by_name(tg.maintain(made, ["all"], retention=timedelta(0)))
    assert done["all"].removed == 12
    left = [path for path in lake.objects("tables/all") if path.endswith(".parquet") and "_delta_log" not in path]
    assert len(left) == done["all"].files[1] == 2
    for epoch in range(13):
        rows = tg.read_arrow(made, "all", as_of=epoch)
        assert sorted(rows["_offset"].to_pylist()) == list(range(EACH * (epoch + 1)))
    check(made, as_of=12)
    assert tg.verify(made).problems == ()


@pytest.mark.long
def test_what_others_do_between_does_not_disturb_it_nor_does_it_disturb_them(
    tmp_path: Path, flow: tg.Dataflow
) -> None:
    for _ in range(3):
        tg.maintain(flow)
        table = DeltaTable(str(tmp_path / "all"))
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        DeltaTable(str(tmp_path / "last")).optimize.compact()
        grow(flow, 4)
    well(tg.maintain(flow))
    for epoch in (7, 13, 19):
        check(flow, as_of=epoch)
    assert tg.verify(flow).problems == ()


def test_an_output_in_trouble_is_said_and_the_others_are_maintained(tmp_path: Path, flow: tg.Dataflow) -> None:
    table = DeltaTable(str(tmp_path / "last"))
    table.restore(3)
    done = {one.output: one for one in tg.maintain(flow).outputs}
    assert isinstance(done["last"].error, TableChangedByOthers)
    assert done["all"].error is None
    assert done["all"].files == (8, 1)


def test_outputs_without_such_tables_are_left_alone_and_refused_by_name(tmp_path: Path) -> None:
    flow = tg.Dataflow("kinds", store=f"sqlite:///{tmp_path}/kinds.db")
    numbers = flow.source("numbers", tg.GeneratorSource(4, columns="n long", max_records_per_epoch=1))
    flow.sink("folder", numbers, tg.ParquetSink(str(tmp_path / "folder")))
    flow.sink("memory", numbers, tg.MemorySink())
    flow.sink("table", numbers, tg.DeltaSink(str(tmp_path / "table")))
    with pytest.raises(FlowNeverRan):
        tg.maintain(flow)
    flow.run("caught-up", engine=LOCAL)
    flow.sink("new", numbers, tg.DeltaSink(str(tmp_path / "new")))
    done = by_name(tg.maintain(flow))
    assert {name: bool(one.left) for name, one in done.items()} == {
        "folder": True,
        "memory": True,
        "table": False,
        "new": True,
    }
    assert done["table"].files[1] <= done["table"].files[0]
    with pytest.raises(NotMaintained, match="'folder'"):
        tg.maintain(flow, ["table", "folder"])
    with pytest.raises(UnknownName, match="tabel"):
        tg.maintain(flow, ["tabel"])
    with pytest.raises(InvalidArgument):
        tg.maintain(flow, "table")
    with pytest.raises(InvalidArgument):
        tg.maintain(flow, retention=timedelta(days=-1))


def test_files_that_a_driver_may_have_staged_stay_while_one_runs(tmp_path: Path, flow: tg.Dataflow) -> None:
    env = Env()
    store = Store.open(flow.spec.store, env=env)
    mark = job_mark(store.load("many").flow.incarnation)
    litter = tmp_path / "all" / f"part-{mark}{'0' * 16}-00000-000.parquet"
    litter.write_bytes(b"rows")
    os.utime(litter, (1, 1))
    lease = store.acquire("many", holder=LeaseHolder.current(env))
    done = by_name(tg.maintain(flow, ["all"]))["all"]
    assert (done.removed, done.kept, litter.exists()) == (0, 1, True)
    lease.release()
    store.close()
    done = by_name(tg.maintain(flow, ["all"]))["all"]
    assert (done.removed, done.freed, done.kept, litter.exists()) == (1, 4, 0, False)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_thousand_epochs_of_three_rows_maintained_as_they_come_are_few_files(tmp_path: Path) -> None:
    flow, rows = make(tmp_path, rows=3_000), dict.fromkeys(("all", "last"), 0)
    with flow.start("caught-up", engine=LOCAL) as run:
        while True:
            try:
                run.wait(0.5)
            except StillRunning:
                for name, one in by_name(tg.maintain(flow)).items():
                    rows[name] += one.rows
            else:
                break
    final = by_name(tg.maintain(flow))
    assert final["all"].files[1] <= (GROWTH - 1) * math.log(1_000, GROWTH)
    assert rows["all"] + final["all"].rows <= 3_000 * math.log(1_000, GROWTH)
    for epoch in (*range(0, 1_000, 37), 999):
        check(flow, as_of=epoch, apart=False)
    assert tg.verify(flow).problems == ()


class Reader:
    """Reads both tables again and again, and sees each time that they are as of one epoch."""

    def __init__(self, root: Path) -> None:
        self._flow = make(root)
        self._over = threading.Event()
        self.seen: set[int] = set()
        self.error: BaseException | None = None

    def __call__(self) -> None:
        chance = random.Random(7)
        try:
            while not self._over.is_set():
                status = tg.status(self._flow)
                if status.published:
                    newest = status.published - 1
                    for epoch in {newest, chance.randint(0, newest)}:
                        check(self._flow, as_of=epoch, apart=False)
                        self.seen.add(epoch)
        except FlowNeverRan:
            pass
        except BaseException as error:
            self.error = error

    @contextmanager
    def reading(self) -> Iterator[None]:
        thread = threading.Thread(target=self)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        if self.error is not None:
            raise self.error


POINTS = ["before stage", "after stage", "before commit output", "after commit output", *ENTRIES]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
def test_drivers_and_maintenance_die_beside_each_other_and_readers_see_one_epoch(tmp_path: Path, point: str) -> None:
    chance = random.Random(point)
    deaths = {"driver": 0, "maintenance": 0}
    assert end_of(lives.begin, tmp_path, 12) == 0  # so there is something to pack
    deaths["maintenance"] += end_of(lives.keep, tmp_path, point, 0, 1) == -signal.SIGKILL
    reader = Reader(tmp_path)
    with reader.reading():
        for life in range(12):
            nth = chance.randint(1, 3 if "stage" in point else 12) if life else 1
            driver = FORKS.Process(target=lives.drive, args=(tmp_path, point, nth))
            driver.start()
            while driver.is_alive():
                code = end_of(lives.keep, tmp_path, point, 0, 3)
                deaths["maintenance"] += code == -signal.SIGKILL
                driver.join(0.05)
            deaths["maintenance"] += end_of(lives.keep, tmp_path, point, 0, 1) == -signal.SIGKILL
            deaths["driver"] += driver.exitcode == -signal.SIGKILL
            if driver.exitcode == 0:
                break
        assert end_of(lives.drive, tmp_path, None, 0) == 0
    flow = make(tmp_path)
    done = by_name(tg.maintain(flow))
    assert done["all"].files[1] <= 2 * (GROWTH - 1) * math.log(ROWS / EACH, GROWTH)
    for epoch in range(0, ROWS // EACH, 7):
        check(flow, as_of=epoch, apart=False)
    assert tg.verify(flow).problems == ()
    assert deaths["driver"] > 0
    assert deaths["maintenance"] > 0
    assert len(reader.seen) > 5
