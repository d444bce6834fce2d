"""A flow that reads a socket: every record once, at its epoch, whatever is cut, killed, replaced or away."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.flow import pushed_driver
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.flow import OperationsNotTaken
from tidegauge.errors.push import StartForgotten, SubscriptionBroken, UnknownStream
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.flow.board import Board
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Store
from tidegauge.sources.push.pieces import Pieces
from tidegauge.testing import LogServer

COLUMNS = "n long, name string"


@pytest.fixture
def log() -> Iterator[LogServer]:
    with LogServer() as server:
        yield server


@dataclass(frozen=True)
class Gated(tg.ParquetSink):
    """A sink that takes nothing before its gate is open."""

    gate: threading.Event = field(default_factory=threading.Event, compare=False)

    def stage(self, schema: Any, *, job: str, task: int) -> Any:
        if not self.gate.is_set():
            raise OSError(28, "No space left on device")
        return tg.ParquetSink.stage(self, schema, job=job, task=task)


def make(root: Path, log: LogServer, **options: Any) -> tg.Dataflow:
    flow = tg.Dataflow("pushed", store=f"sqlite:///{root}/flow.db", tick=0.05)
    feed = flow.source("feed", tg.SocketSource(log.host, log.port, columns=COLUMNS, **options))
    flow.sink("all", feed, tg.ParquetSink(str(root / "all")))
    flow.sink("low", feed.filter("n < 700"), tg.DeltaSink(str(root / "low")))
    return flow


def feed_of(flow: tg.Dataflow) -> tg.RowStream:
    return tg.RowStream(flow, "feed")


def catch_up(flow: tg.Dataflow) -> None:
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))


def numbers(flow: tg.Dataflow, output: str = "all") -> list[int]:
    return sorted(tg.read_arrow(flow, output)["n"].to_pylist())


def fill(log: LogServer, first: int, last: int) -> None:
    for n in range(first, last):
        log.append({"n": n, "name": f"row {n}"}, partition=f"p{n % 2}")


def test_each_record_is_in_each_output_once_and_a_restart_reads_on(tmp_path: Path, log: LogServer) -> None:
    fill(log, 0, 3000)
    flow = make(tmp_path, log)
    catch_up(flow)
    assert tg.read_arrow(flow, "all").column_names == ["n", "name", "_epoch"]
    eventually(lambda: log.acknowledged == log.end)
    fill(log, 3000, 4000)
    catch_up(flow)
    assert numbers(flow) == list(range(4000))
    assert numbers(flow, "low") == list(range(700))
    assert log.starts == [Frontier(), Frontier({"p0": 1500, "p1": 1500})]


def test_a_connection_that_is_cut_costs_no_record_and_doubles_none(tmp_path: Path, log: LogServer) -> None:
    flow = make(tmp_path, log)
    with flow.start(engine=tg.LocalEngine(threads=2)) as run:
        for first in range(0, 2000, 500):
            fill(log, first, first + 250)
            log.cut()
            fill(log, first + 250, first + 500)
            eventually(lambda: log.acknowledged == log.end)
        log.leave()
        eventually(lambda: tg.status(flow).sources[0].state == "stalled")
        fill(log, 2000, 2100)
        log.go_on()
        eventually(lambda: log.acknowledged == log.end)
        eventually(lambda: tg.status(flow).sources[0].state == "running")
        run.stop()
    assert numbers(flow) == list(range(2100))
    assert len(log.starts) > 3


def test_a_source_that_is_stalled_holds_up_no_other(tmp_path: Path, log: LogServer) -> None:
    log.leave()
    flow = make(tmp_path, log)
    rows = flow.source("rows", tg.GeneratorSource(rate=1000, columns="k long"))
    flow.sink("rows", rows, tg.ParquetSink(str(tmp_path / "rows")))
    with flow.start(engine=tg.LocalEngine(threads=2)) as run:
        eventually(lambda: next(o for o in tg.status(flow).outputs if o.name == "rows").rows > 100)
        fill(log, 0, 10)
        log.go_on()
        eventually(lambda: log.acknowledged == log.end)
        run.stop()
    assert numbers(flow) == list(range(10))


def test_records_that_cannot_be_decoded_fail_the_source_or_go_where_the_flow_sends_them(
    tmp_path: Path, log: LogServer
) -> None:
    fill(log, 0, 10)
    log.write(b'{"n": "seven"}', partition="p0")
    log.write(b'{"n": 1e400}', partition="p0")
    log.write(b'{"n": NaN}', partition="p0")
    log.write(b"[1, 2]", partition="p0")
    fill(log, 10, 20)
    with pytest.raises(RecordUnparsable, match=r"position 5.*seven") as raised:
        catch_up(make(tmp_path, log))
    assert raised.value.evidence["place"] == "p0"
    flow = make(tmp_path, log)
    flow.sink("bad", feed_of(flow).errors, tg.ParquetSink(str(tmp_path / "bad")))
    catch_up(flow)
    assert numbers(flow) == list(range(20))
    bad = tg.read_arrow(flow, "bad").sort_by("position")
    assert bad["position"].to_pylist() == [5, 6, 7, 8]
    assert b'{"n": "seven"}' in bad["raw"][0].as_py()


def test_pushed_rows_have_operations_and_a_record_without_one_is_a_bad_one(tmp_path: Path, log: LogServer) -> None:
    for row in ('"insert"', '"upsert"', "7", '"delete"', "null"):
        log.write(b'{"n": 1, "_op": %s}' % row.encode(), partition="p0")
    flow = tg.Dataflow("pushed", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
    source = tg.SocketSource(log.host, log.port, columns="n long, _op string", metadata=True)
    feed = flow.source("feed", source)
    with pytest.raises(OperationsNotTaken, match="'all'"):
        flow.sink("all", feed, tg.DeltaSink(str(tmp_path / "all")))
    flow.sink("all", feed.changelog("op"), tg.DeltaSink(str(tmp_path / "all")))
    flow.sink("bad", feed.errors, tg.ParquetSink(str(tmp_path / "bad")))
    catch_up(flow)
    rows = tg.read_arrow(flow, "all").sort_by("_offset").to_pylist()
    assert [(row["op"], row["_offset"]) for row in rows] == [("insert", 0), ("delete", 3)]
    bad = tg.read_arrow(flow, "bad").sort_by("position").to_pylist()
    assert [(row["position"], row["code"]) for row in bad] == [(1, "TG-0520"), (2, "TG-0323"), (4, "TG-0520")]
    assert b'"upsert"' in bad[0]["raw"]


def test_what_is_no_line_of_the_protocol_fails_the_source_and_leaves_what_came_before(
    tmp_path: Path, log: LogServer
) -> None:
    fill(log, 0, 10)
    flow = make(tmp_path, log)
    run = flow.start(engine=tg.LocalEngine(threads=1))
    eventually(lambda: log.acknowledged == log.end)
    log.say(b'{"partition": "p0", "offset": 3}\n{"frontier": {"p0": 6, "p1": 5}}\n')
    eventually(lambda: tg.status(flow).sources[0].state == "failed")
    with pytest.raises(SubscriptionBroken, match="record 3 of partition 'p0', and those from 5 to before 6 were due"):
        run.wait()
    assert numbers(flow) == list(range(10))


def test_another_log_and_a_log_that_forgot_are_refused_with_both_sides(tmp_path: Path, log: LogServer) -> None:
    fill(log, 0, 10)
    flow = make(tmp_path, log)
    catch_up(flow)
    log.forget("p1", 8)
    with pytest.raises(StartForgotten, match=r"oldest record of partition 'p1' is 8.* from 5 on"):
        catch_up(flow)
    log.replace("log-2")
    fill(log, 100, 120)
    tg.resume(flow, "feed")
    with pytest.raises(UpstreamRecreated, match=r"found 'log-2'.*built from 'log-1'"):
        catch_up(flow)
    tg.resume(flow, "feed", new_incarnation=True)
    catch_up(flow)
    assert numbers(flow) == [*range(10), *range(100, 120)]


def test_an_output_that_is_away_takes_no_memory_from_the_others_and_catches_up_from_files(
    tmp_path: Path, log: LogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Pieces] = []

    def small(*arguments: Any) -> Pieces:
        made.append(Pieces(*arguments, memory=20_000, most=150_000))
        return made[-1]

    monkeypatch.setattr("tidegauge.flow.pushing.Pieces", small)
    staging, gate = tmp_path / "staging", threading.Event()

    flow = tg.Dataflow("pushed", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
    source = tg.SocketSource(log.host, log.port, columns=COLUMNS)
    feed = flow.source("feed", source, staging=str(staging))
    flow.sink("all", feed, tg.ParquetSink(str(tmp_path / "all")))
    flow.sink("away", feed, Gated(str(tmp_path / "away"), gate=gate))
    boards: list[Board] = []
    with flow.start(engine=tg.LocalEngine(threads=2), watch=boards.append) as run:
        written = 0
        eventually(lambda: boards)
        while not made[-1].full:
            fill(log, written, written + 200)
            written += 200
            eventually(lambda due=written: made[-1].full or boards[-1].outputs["all"].rows >= due)  # type: ignore[misc]
        assert made[-1].in_memory < 60_000, "none, where the newest piece alone was beyond the bound"
        assert 150_000 <= made[-1].total < 250_000
        assert list(staging.rglob("*.arrows"))
        fill(log, written, written + 5000)
        eventually(lambda: "wait for outputs" in boards[-1].sources["feed"].note)
        assert not log.acknowledged, "one output has none of it"
        gate.set()
        eventually(lambda: log.acknowledged == log.end)
        assert made[-1].total == 0
        run.stop()
    assert numbers(flow, "all") == numbers(flow, "away") == list(range(written + 5000))
    assert not list(staging.rglob("*.arrows"))


def test_streams_of_one_source_have_columns_and_outputs_of_their_own(tmp_path: Path, log: LogServer) -> None:
    flow = pushed_driver.make(tmp_path, log.port)
    with pytest.raises(UnknownStream, match="it has orders, users"):
        feed_of(flow).stream("order")
    with pytest.raises(UnknownStream, match="it has orders, users"):
        flow.sink("every", feed_of(flow), tg.ParquetSink(str(tmp_path / "every")))
    write(log, 0, 2000)
    catch_up(flow)
    assert numbers(flow, "orders") == list(range(0, 2000, 2))
    assert numbers(flow, "users") == list(range(1, 2000, 2))
    agree(flow)


def write(log: LogServer, first: int, last: int) -> None:
    """Even numbers are orders, odd ones users."""
    for n in range(first, last):
        row = {"n": n, "name": "x"} if n % 2 == 0 else {"n": n}
        log.append(row, stream="users" if n % 2 else "orders", partition=f"p{n % 3}")


def agree(flow: tg.Dataflow) -> None:
    """Every row is at the epoch to which its position is bound, in every output."""
    store = Store.open(flow.store, env=tg.Env())
    table = store.load("pushed").sources["feed"].table
    store.close()
    for output in flow.outputs:
        for row in tg.read_arrow(flow, output).to_pylist():
            assert row["_epoch"] == table.epoch_of(row["_partition"], row["_offset"])


@pytest.mark.long
def test_a_driver_that_is_killed_at_any_instant_loses_and_doubles_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.flow.pushed_driver", str(tmp_path)]
    dice = random.Random(8)
    with LogServer(forgets=True) as log:
        written = 0
        for _ in range(8):
            driver = subprocess.Popen([*command, str(log.port), "on"])
            begun, known = len(log.starts), log.acknowledged
            eventually(lambda begun=begun: len(log.starts) > begun)  # type: ignore[misc]
            for _ in range(dice.randint(1, 6)):
                write(log, written, written + 300)
                written += 300
                if dice.random() < 0.3:
                    log.cut()
                if dice.random() < 0.7:
                    eventually(lambda known=known: log.acknowledged != known)  # type: ignore[misc]
                known = log.acknowledged
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        subprocess.run([*command, str(log.port), "caught-up"], check=True, timeout=120)
        eventually(lambda: log.acknowledged == log.end)
        assert any(start for start in log.starts), "no life began anew"
        flow = pushed_driver.make(tmp_path, log.port)
    assert numbers(flow, "orders") == list(range(0, written, 2))
    assert numbers(flow, "few") == list(range(0, 500, 2))
    assert numbers(flow, "users") == list(range(1, written, 2))
    agree(flow)
