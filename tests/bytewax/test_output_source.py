"""Dataflows of bytewax over an output: its rows, then each epoch once, also where their process is killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pytest
from bytewax.connectors.files import FileSink
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink, run_main
from tests.sources.bytewax.connectors import until

import tidegauge as tg
from tidegauge.bytewax import OutputSource
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.history import StoreBehindTable
from tidegauge.errors.readers import CheckpointAhead, CheckpointOfAnother


def flow_of(root: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/flow.db")
    lines = flow.source("lines", tg.FileSource(str(root / "in" / "*.jsonl"), format=tg.Json("n long")))
    flow.sink("lines", lines, tg.DeltaSink(str(root / "lake")))
    return flow


def more(root: Path, *numbers: int) -> None:
    """Publish one more epoch."""
    (root / "in").mkdir(exist_ok=True)
    with open(root / "in" / "a.jsonl", "a") as file:
        file.write("".join(f'{{"n": {n}}}\n' for n in numbers))
    flow_of(root).run("caught-up", engine="local")


def reached(part: Any) -> int:
    """Return the first epoch that a partition has not given, by its state."""
    return int(part.snapshot()["epoch"])


def given(root: Path, **about: Any) -> list[dict[str, Any]]:
    """Return what a dataflow of bytewax gets."""
    found = list[dict[str, Any]]()
    dataflow = Dataflow("theirs")
    op.output("out", op.input("in", dataflow, OutputSource(flow_of(root), "lines", **about)), TestingSink(found))
    run_main(dataflow)  # type: ignore[no-untyped-call]
    return found


def test_a_dataflow_gets_the_rows_and_then_each_epoch(tmp_path: Path) -> None:
    for numbers in ((1, 2), (3,), (4, 5)):
        more(tmp_path, *numbers)
    assert [(row["_epoch"], row["_diff"], row["n"]) for row in given(tmp_path, as_of=0, up_to=3)] == [
        (0, 1, 1),
        (0, 1, 2),
        (1, 1, 3),
        (2, 1, 4),
        (2, 1, 5),
    ]
    rows = given(tmp_path, up_to=3)
    assert [(row["_epoch"], row["n"]) for row in rows] == [(2, n) for n in (1, 2, 3, 4, 5)]
    batches = flow_of(tmp_path).subscribe("lines", as_of=0, up_to=3)
    assert given(tmp_path, as_of=0, up_to=3) == [row for batch in batches for row in batch.to_pylist()]


def test_it_waits_for_the_first_epoch_and_ends_with_its_sources(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
    rows = flow.source("lines", tg.GeneratorSource(5, columns="n long"))
    flow.sink("lines", rows, tg.DeltaSink(str(tmp_path / "lake")))
    part = OutputSource(flow, "lines").build_part("in", "lines", None)
    assert (part.next_batch(), part.snapshot()) == ([], None)
    assert part.next_awake() is not None
    flow.run("caught-up", engine="local")
    found = list[dict[str, Any]]()
    dataflow = Dataflow("theirs")
    op.output("out", op.input("in", dataflow, OutputSource(flow, "lines")), TestingSink(found))
    run_main(dataflow)  # type: ignore[no-untyped-call]
    assert len(found) == 5


def test_a_state_is_the_first_epoch_that_was_not_given(tmp_path: Path) -> None:
    for n in range(5):
        more(tmp_path, n)
    source = OutputSource(flow_of(tmp_path), "lines", up_to=5)
    for state in range(1, 6):
        part = source.build_part("in", "lines", {"epoch": state})
        found = list[int]()
        while reached(part) < 5:
            found += [row["n"] for row in part.next_batch()]
        with pytest.raises(StopIteration):
            part.next_batch()
        assert (found, reached(part)) == ([*range(state, 5)], 5)


def read_to_its_end(root: Path, state: Any) -> tuple[list[int], Any]:
    """Return what a partition gives that goes on from a state, up to where the output is, and its state then."""
    part = OutputSource(flow_of(root), "lines", as_of=0).build_part("in", "lines", state)
    found = list[int]()
    while rows := part.next_batch():
        found += [row["n"] for row in rows]
    return found, part.snapshot()


def test_a_dataflow_does_not_go_on_in_another_history(tmp_path: Path) -> None:
    """The epochs of its state have other rows there, and those rows would never come."""
    for n in range(3):
        more(tmp_path, n)
    found, state = read_to_its_end(tmp_path, None)
    assert found == [0, 1, 2]
    shutil.copytree(tmp_path / "lake", tmp_path / "backup" / "lake")
    shutil.copy(tmp_path / "flow.db", tmp_path / "backup")
    more(tmp_path, 3)
    found, later = read_to_its_end(tmp_path, state)
    assert found == [3]

    shutil.copy(tmp_path / "backup" / "flow.db", tmp_path)  # the store is put back
    with pytest.raises(StoreBehindTable):
        read_to_its_end(tmp_path, later)
    tg.recover(flow_of(tmp_path))
    more(tmp_path, 4)
    assert read_to_its_end(tmp_path, later)[0] == [4]

    shutil.copy(tmp_path / "backup" / "flow.db", tmp_path)  # and so is the table
    shutil.rmtree(tmp_path / "lake")
    shutil.copytree(tmp_path / "backup" / "lake", tmp_path / "lake")
    with pytest.raises(CheckpointAhead, match="there are the epochs below 3"):
        read_to_its_end(tmp_path, later)
    more(tmp_path, 5)  # 3, 4 and 5 are one epoch now
    with pytest.raises(CheckpointOfAnother, match="of another history"):
        read_to_its_end(tmp_path, later)
    assert read_to_its_end(tmp_path, state)[0] == [3, 4, 5]

    for path in (tmp_path / "in", tmp_path / "lake"):
        shutil.rmtree(path)
    (tmp_path / "flow.db").unlink()
    for n in range(10, 16):  # somebody begins anew
        more(tmp_path, n)
    for gone in (state, later):
        with pytest.raises(CheckpointOfAnother, match="of another store of output 'lines'"):
            read_to_its_end(tmp_path, gone)


def test_a_dataflow_that_lives_does_not_go_on_in_another_history(tmp_path: Path) -> None:
    more(tmp_path, 0)
    part = OutputSource(flow_of(tmp_path), "lines").build_part("in", "lines", None)
    assert [row["n"] for row in part.next_batch()] == [0]
    for path in (tmp_path / "in", tmp_path / "lake"):
        shutil.rmtree(path)
    (tmp_path / "flow.db").unlink()
    more(tmp_path, 10)
    more(tmp_path, 11)
    with pytest.raises(CheckpointOfAnother):
        until(lambda: bool(part.next_batch()))


def test_a_table_by_key_gives_what_goes_and_what_comes(tmp_path: Path) -> None:
    def make() -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
        users = flow.source("users", tg.FileSource(str(tmp_path / "u.jsonl"), format=tg.Json("id long, at long")))
        flow.sink("lines", users, tg.DeltaSink(str(tmp_path / "lake"), envelope="upsert", key="id", order="at"))
        return flow

    for at in (1, 2):
        with open(tmp_path / "u.jsonl", "a") as file:
            file.write(f'{{"id": 7, "at": {at}}}\n')
        make().run("caught-up", engine="local")
    part = OutputSource(make(), "lines", as_of=0, up_to=2).build_part("in", "lines", None)
    found = [(row["_diff"], row["at"]) for row in [*part.next_batch(), *part.next_batch()]]
    assert found == [(1, 1), (-1, 1), (1, 2)]


@pytest.mark.parametrize("about", [{"as_of": -1}, {"up_to": True}, {"as_of": "now"}])
def test_what_cannot_be_is_refused_when_it_is_said(tmp_path: Path, about: Any) -> None:
    with pytest.raises(InvalidArgument):
        OutputSource(flow_of(tmp_path), "lines", **about)
    with pytest.raises(UnknownName):
        OutputSource(flow_of(tmp_path), "nothing")


def theirs(root: Path, up_to: int) -> None:
    """Run a dataflow with bytewax's own recovery, from our output to a file."""
    dataflow = Dataflow("theirs")
    rows = op.input("in", dataflow, OutputSource(flow_of(root), "lines", as_of=0, up_to=up_to))
    lines = op.map("line", rows, lambda row: ("all", str(row["n"])))
    op.output("out", lines, FileSink(root / "out.txt"))
    recovery = RecoveryConfig(str(root / "recovery"))  # type: ignore[no-untyped-call]
    run_main(dataflow, epoch_interval=timedelta(0), recovery_config=recovery)  # type: ignore[no-untyped-call]


@pytest.mark.long
def test_a_dataflow_that_is_killed_at_random_has_every_row_once(tmp_path: Path) -> None:
    (tmp_path / "recovery").mkdir()
    init_db_dir(tmp_path / "recovery", 1)  # type: ignore[no-untyped-call]
    chance, pause, count, epochs = random.Random(11), threading.Event(), 0, 8
    program = "import sys; from pathlib import Path; from tests.bytewax.test_output_source import theirs\n"
    program += "theirs(Path(sys.argv[1]), int(sys.argv[2]))"
    command = [sys.executable, "-c", program, str(tmp_path), str(epochs)]
    killed = 0
    for epoch in range(epochs):
        numbers = range(count, count + chance.randrange(1, 2000))
        more(tmp_path, *numbers)
        count = numbers.stop
        if epoch in (1, 3, 5):
            with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
                size = (tmp_path / "out.txt").stat().st_size if killed else 0
                _until_it_writes(tmp_path / "out.txt", size, process)
                pause.wait(chance.random() / 5)
                os.kill(process.pid, signal.SIGKILL)
            killed += process.returncode == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert killed == 3
    assert Counter(map(int, (tmp_path / "out.txt").read_text().split())) == Counter(range(count))


def _until_it_writes(path: Path, size: int, process: subprocess.Popen[bytes]) -> None:
    until(lambda: (path.exists() and path.stat().st_size > size) or process.poll() is not None)
