"""Files that are taken away before they were read: the flow says so, whatever happened to its driver meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.sources import EndTakenBack, FileGone, FileRewritten
from tidegauge.remap.store import Store

LINE = '{"n": 1}\n'


def flow_of(root: Path, on_data_loss: Literal["stop", "gap"] = "stop") -> tg.Dataflow:
    made = tg.Dataflow("logs", store=f"sqlite:///{root}/flow.db", tick=0.01)
    source = tg.FileSource(
        f"{root}/in/*.jsonl", format=tg.Json("n long"), max_bytes_per_epoch=len(LINE), on_data_loss=on_data_loss
    )

    def take_away(batch: pa.RecordBatch) -> pa.RecordBatch:
        """Empty the file as its first line is read, so that most of it is not bound yet."""
        if batch.num_rows:
            (root / "in" / "a.jsonl").write_text("")
        return batch

    made.sink("lines", made.source("log", source).map_batches(take_away), tg.ParquetSink(f"{root}/lake"))
    return made


def run(flow: tg.Dataflow) -> None:
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))


def gaps(root: Path) -> list[tuple[int, int, str]]:
    store = Store.open(f"sqlite:///{root}/flow.db", env=tg.Env())
    try:
        return [(gap.lower, gap.upper, gap.code) for gap in store.gaps("logs")]
    finally:
        store.close()


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def test_a_file_that_goes_in_the_middle_fails_its_source_and_never_catches_up(tmp_path: Path, landing: Path) -> None:
    (landing / "a.jsonl").write_text(1000 * LINE)
    for _run in range(2):  # the failure outlives the driver
        with pytest.raises((FileGone, FileRewritten)):
            run(flow_of(tmp_path))
    [source] = tg.status(flow_of(tmp_path)).sources
    assert source.state == "failed"
    assert source.lag > 0
    assert gaps(tmp_path) == []


def test_by_choice_it_goes_on_with_what_is_gone_in_gaps(tmp_path: Path, landing: Path) -> None:
    (landing / "a.jsonl").write_text(1000 * LINE)
    with pytest.raises((FileGone, FileRewritten)):
        run(flow_of(tmp_path))
    (landing / "b.jsonl").write_text(LINE)
    tg.resume(flow_of(tmp_path), "log")
    run(flow_of(tmp_path, "gap"))
    lost = gaps(tmp_path)
    rows = tg.read_arrow(flow_of(tmp_path), "lines").num_rows
    assert {code for _, _, code in lost} == {FileGone.code}
    assert sum(upper - lower for lower, upper, _ in lost) + rows * len(LINE) == 1001 * len(LINE)
    [source] = tg.status(flow_of(tmp_path)).sources
    assert (source.state, source.lag) == ("idle", 0)
    assert source.lost == sum(upper - lower for lower, upper, _ in lost)


def test_a_file_that_is_deleted_is_read_to_its_end_by_the_driver_that_saw_it(tmp_path: Path, landing: Path) -> None:
    log = landing / "a.jsonl"
    log.write_text(1000 * LINE)
    made = tg.Dataflow("logs", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    source = tg.FileSource(f"{landing}/*.jsonl", format=tg.Json("n long"), max_bytes_per_epoch=100 * len(LINE))

    def delete(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            log.unlink(missing_ok=True)
        return batch

    made.sink("lines", made.source("log", source).map_batches(delete), tg.ParquetSink(f"{tmp_path}/lake"))
    run(made)
    assert tg.read_arrow(made, "lines").num_rows == 1000


def test_a_torn_line_that_an_earlier_driver_saw_is_lost_with_its_file(tmp_path: Path, landing: Path) -> None:
    torn = landing / "b.jsonl"
    torn.write_text(LINE + '{"n"')
    run(flow_of(tmp_path))
    assert tg.status(flow_of(tmp_path)).sources[0].lag == 4
    torn.unlink()
    assert tg.status(flow_of(tmp_path)).sources[0].lag == 4
    with pytest.raises(FileGone):
        run(flow_of(tmp_path))


def test_an_end_that_went_back_is_a_failure_or_a_gap_of_the_next_epoch(tmp_path: Path, landing: Path) -> None:
    torn = landing / "b.jsonl"
    torn.write_text(LINE + '{"n"')
    run(flow_of(tmp_path))
    os.truncate(torn, len(LINE))
    with pytest.raises(EndTakenBack):
        run(flow_of(tmp_path))
    tg.resume(flow_of(tmp_path), "log")
    run(flow_of(tmp_path, "gap"))
    run(flow_of(tmp_path, "gap"))  # nothing was bound since: it is noted once
    assert gaps(tmp_path) == [(len(LINE), len(LINE) + 4, EndTakenBack.code)]
    with torn.open("a") as stream:
        stream.write(2 * LINE)
    run(flow_of(tmp_path))
    assert tg.read_arrow(flow_of(tmp_path), "lines").num_rows == 3


@pytest.mark.parametrize("on_data_loss", ["stop", "gap"])
def test_files_that_were_bound_and_whose_mount_is_away_are_waited_for(
    tmp_path: Path, landing: Path, on_data_loss: Literal["stop", "gap"]
) -> None:
    (landing / "a.jsonl").write_text(3 * LINE)

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("logs", store=world.store, tick=0.5)
        source = tg.FileSource(f"{world.root}/in/*.jsonl", format=tg.Json("n long"), on_data_loss=on_data_loss)
        flow.sink("lines", flow.source("log", source), tg.ParquetSink(f"{world.root}/lake"))
        return flow

    world = World(tmp_path, make, strike="before stage")
    life = world.start()
    with pytest.raises(Crash):
        life.catch_up()
    life.abandon()
    away = landing.rename(landing.with_name("away"))
    world.clock.seconds += 60.0
    life = world.start()
    for _ in range(60):  # longer than a job is tried that fails without need
        life.step(seconds=2.0)
    [source] = life.runner.board.sources.values()
    assert (source.state, gaps(tmp_path)) == ("stalled", [])
    away.rename(landing)
    life.catch_up()
    life.abandon()
    assert tg.read_arrow(make(world), "lines").num_rows == 3
    assert gaps(tmp_path) == []


def test_a_log_that_was_copied_and_truncated_goes_on_in_its_newest_copy(tmp_path: Path, landing: Path) -> None:
    """An earlier copy that is too short to be compared is not taken for it."""
    log, earlier = landing / "app.jsonl", landing / "app-1.jsonl"
    earlier.write_text(LINE)
    os.utime(earlier, (1.0, 1.0))
    made = tg.Dataflow("logs", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    lines = made.source("log", tg.FileSource(str(log), format=tg.Json("n long")))
    made.sink("lines", lines, tg.ParquetSink(f"{tmp_path}/lake"))
    log.write_text(2 * LINE + '{"n"')
    run(made)
    (landing / "app-2.jsonl").write_text(3 * LINE)
    log.write_text("")
    run(made)
    assert tg.read_arrow(made, "lines").num_rows == 3


@pytest.mark.parametrize("rotated", ["app-1.jsonl", "app.jsonl.1"])
def test_a_log_that_was_saved_anew_and_renamed_before_the_next_look_is_the_same_log(
    tmp_path: Path, landing: Path, rotated: str
) -> None:
    log, saved = landing / "app.jsonl", landing / ".saved"
    made = tg.Dataflow("logs", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    lines = made.source("log", tg.FileSource(f"{landing}/app*", format=tg.Json("n long")))
    made.sink("lines", lines, tg.ParquetSink(f"{tmp_path}/lake"))
    log.write_text('{"n": 1}\n')
    run(made)
    saved.write_text('{"n": 1}\n{"n": 2}\n')
    saved.rename(log)
    log.rename(landing / rotated)
    log.write_text('{"n": 3}\n')
    run(made)
    assert sorted(tg.read_arrow(made, "lines").column("n").to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("name", ["app.jsonl", "app-1.jsonl"])
def test_an_end_that_was_seen_and_is_not_in_the_file_that_was_saved_is_a_loss(
    tmp_path: Path, landing: Path, name: str
) -> None:
    (landing / "app.jsonl").write_text(LINE + '{"n"')
    run(flow_of(tmp_path))
    (landing / ".saved").write_text(LINE)
    (landing / "app.jsonl").unlink()
    (landing / ".saved").rename(landing / name)
    with pytest.raises(EndTakenBack):
        run(flow_of(tmp_path))
