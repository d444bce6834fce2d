"""A table that comes late: added in the midst of the year of flights, while the others go on.

The flow runs from January on. In summer somebody adds three lines to its file and starts it again. The new table gets
all of the year so far beside the months that still land: limited, paused, let go, and without a limit. Each line
shows where it stands, and how far the live tables are behind meanwhile. In the end plain pyarrow makes the new table
from the files of a table that was there from the start, and compares the two, epoch by epoch.

    python -m examples.flights.late
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from examples.flights.demo import CHUNKS, HERE, by_month, check, land, published, raw, say, wait_for

import tidegauge as tg
from tidegauge.cli.load import load_flow

WORK = Path("demo-data/late").resolve()
LATE = "flown"
COLUMNS = ("carrier", "flight", "origin", "dest", "air_time", "distance", "_partition", "_offset")
ADDED = """
flown = flights.filter("air_time > 0")
columns = ("carrier", "flight", "origin", "dest", "air_time", "distance", "_partition", "_offset")
flow.sink("flown", flown.select(*columns), tg.DeltaSink("lake/flown"))
"""
RATE = 10_000
PIECE = 0.8
"""Seconds between two pieces of a month, while the new table is filled."""


class Drivers:
    """The flow's drivers, one after the other; what they print goes to `driver.log`."""

    def __init__(self) -> None:
        self.running: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one."""
        command = [sys.executable, "-m", "tidegauge", "run", "flow.py", "--engine", "local", *arguments]
        with Path("driver.log").open("ab") as log:
            self.running = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        return self.running

    def stop(self) -> None:
        """Let the driver end by itself, as Ctrl-C does."""
        if self.running is not None:
            self.running.send_signal(signal.SIGTERM)
            if self.running.wait(timeout=60) != 0:
                sys.exit(f"the driver did not stop cleanly; see {WORK / 'driver.log'}")

    def kill(self) -> None:
        """Let nothing run on."""
        if self.running is not None and self.running.poll() is None:
            os.killpg(self.running.pid, signal.SIGKILL)


def without_spark(flow: str) -> str:
    """Return the flow of `make demo` without the one step for which it needs Spark: a division of integers."""
    divided, plain = '"arr_delay / 60 AS hours_late"', '"arr_delay"'
    if divided not in flow:
        raise ValueError(f"there is no {divided} in the flow")
    return flow.replace(divided, plain)


def tidegauge(*arguments: str) -> None:
    """Run a command of ours, and show it with what it prints."""
    print(f"  $ tidegauge {' '.join(arguments)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", *arguments], check=True, env={**os.environ, "COLUMNS": "200"}, stdout=-1
    )
    print("".join(f"    {line}\n" for line in done.stdout.decode().splitlines()), end="", flush=True)


class Watch:
    """Prints a line about the late table and the live ones."""

    def __init__(self, flow: tg.Dataflow) -> None:
        self.flow = flow
        self.began = time.monotonic()
        self.seen: list[tuple[float, int, float]] = []
        """When it was looked, how many rows of the late table were staged, and which part of its past that was."""

    def line(self) -> str:
        """Print where the outputs stand; return the state of the late one."""
        at = time.monotonic() - self.began
        found = {output.name: output for output in tg.outputs(self.flow)}
        late = found.pop(LATE)
        if late.filled is not None:
            self.seen.append((at, staged(), late.filled.done / late.filled.total))
            pace = self.pace() if late.state == "backfilling" else ""
            what = f"{late.state} {late.filled}, {self.seen[-1][1]:,} rows{pace}"
        else:
            what = f"{late.state}, {late.lag} epochs behind, {late.rows:,} rows"
        behind = max(output.lag for output in found.values())
        print(f"  {at:4.0f} s  {LATE}: {what:<62} live tables: {behind} epochs behind{self.newest()}", flush=True)
        return late.state

    def pace(self) -> str:
        """Return the rate of the last seconds, and how long the rest takes at it."""
        at, rows, part = self.seen[-1]
        before = next(seen for seen in self.seen if at - seen[0] < 5)
        if rows == before[1] or part <= before[2]:
            return ""
        took, gained = at - before[0], part - before[2]
        return f", {(rows - before[1]) / took:,.0f} rows/s, {(1 - part) * took / gained:.0f} s left"

    def newest(self) -> str:
        """Return how long the newest epoch took that the live tables hold."""
        took = waits(self.flow, first=max(0, tg.status(self.flow).published - 1))
        return f", epoch {max(took)} in {took[max(took)]:.2f} s" if took else ""


def staged() -> int:
    """Return how many rows of the late table are staged, and hidden: the store is meant to be asked."""
    connection = sqlite3.connect("flights.db")
    [[rows]] = connection.execute("SELECT coalesce(sum(rows), 0) FROM units").fetchall()
    connection.close()
    return int(rows)


def waits(flow: tg.Dataflow, *, first: int) -> dict[int, float]:
    """Return the seconds from minting to publishing of the epochs from one on that are published."""
    return {
        record.epoch: (record.published_at - record.minted_at).total_seconds()
        for record, _sizes in tg.epochs(flow, first=first)
        if record.published_at is not None
    }


def pieces(lines: dict[str, list[str]]) -> Iterator[int]:
    """Let the year land in pieces; yields the month after each one."""
    landing = [land(name, by_month(found)) for name, found in lines.items()]
    for number in range(12 * CHUNKS):
        for folder in landing:
            next(folder)
        yield number // CHUNKS + 1


def main() -> None:
    """Run the demo."""
    began = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    os.chdir(WORK)
    Path("flow.py").write_text(without_spark((HERE / "flow.py").read_text()))
    flow = load_flow(Path("flow.py").resolve())
    lines = {name: raw(name) for name in ("flights", "weather")}
    year = pieces(lines)
    drivers = Drivers()
    try:
        say("The flow runs with three tables; the months to July land, in pieces")
        driver = drivers.start()
        while next(year) < 7:
            wait_for(published(flow) + 1, flow, driver)
        before = published(flow)
        print(f"  {before} epochs are published")

        say("Somebody adds a table to flow.py, stops the flow and starts it again, with a rate for late tables")
        drivers.stop()
        with Path("flow.py").open("a") as file:
            file.write(ADDED)
        print("".join(f"  + {line}\n" for line in ADDED.strip().splitlines()), end="")
        print(f"  $ tidegauge run flow.py --engine local --rate {RATE}", flush=True)
        flow = load_flow(Path("flow.py").resolve())
        driver = drivers.start("--rate", str(RATE))
        follow(flow, driver, year)

        say("The year ends")
        for _month in year:
            pass
        drivers.stop()
        if drivers.start("--until", "caught-up").wait(timeout=90) != 0:
            sys.exit(f"the last run failed; see {WORK / 'driver.log'}")
    finally:
        drivers.kill()
    tidegauge("outputs", "list", "flow.py")
    account(flow, lines, before)
    took = time.monotonic() - began
    print(f"\nAll of it holds. {took:.0f} seconds; tables, store, raw files and driver.log are in demo-data/late/.")


def follow(flow: tg.Dataflow, driver: subprocess.Popen[bytes], year: Iterator[int]) -> None:
    """Let the year go on while the late table is filled; pause it, let it go on, and take its limit away."""
    watch = Watch(flow)
    steps: list[tuple[Callable[[], bool], tuple[str, ...]]] = [
        (lambda: reached(watch, 0.25), ("outputs", "pause", "flow.py", LATE)),
        (lambda: rested(watch), ("outputs", "resume", "flow.py", LATE)),
        (lambda: reached(watch, 0.6), ("outputs", "rate", "flow.py", "off")),
    ]
    until, state = time.monotonic() + 120, ""
    while state != "live":
        if driver.poll() is not None or time.monotonic() > until:
            sys.exit(f"{LATE} is not live but {state or 'nowhere'}; see {WORK / 'driver.log'}")
        time.sleep(PIECE)
        if LATE not in known():
            continue  # the driver is not up yet
        next(year, None)
        state = watch.line()
        if steps and steps[0][0]():
            tidegauge(*steps.pop(0)[1])
    if steps:
        sys.exit(f"{LATE} was live before all was tried; {len(steps)} commands are left")


def known() -> set[str]:
    """Return the outputs of which the store has a plan, or had one: those that a driver has opened."""
    connection = sqlite3.connect("flights.db")
    found = {name for (name,) in connection.execute("SELECT name FROM outputs").fetchall()}
    connection.close()
    return found


def reached(watch: Watch, part: float) -> bool:
    """Whether so much of the past is staged."""
    return bool(watch.seen) and watch.seen[-1][2] >= part


def rested(watch: Watch) -> bool:
    """Whether nothing of the past was staged between the last three lines: the pause has come through."""
    return len(watch.seen) > 3 and watch.seen[-1][1] == watch.seen[-4][1]


def account(flow: tg.Dataflow, lines: dict[str, list[str]], before: int) -> None:
    """Make the late table from the files of one that was there from the start, with pyarrow alone, and compare."""
    say("The account: the late table against what it would be from the start")
    flights, late = files("lake/flights"), files(f"lake/{LATE}")
    check("flights", flights.num_rows, len(lines["flights"]) - 1)
    wanted = flights.filter(pc.greater(flights["air_time"], 0)).select([*COLUMNS, "_epoch"])
    check("its rows", late.num_rows, wanted.num_rows)
    order = [(name, "ascending") for name in ("_epoch", "_partition", "_offset")]
    late, wanted = late.select(wanted.column_names).sort_by(order), wanted.sort_by(order)
    epochs = pc.unique(wanted["_epoch"]).to_pylist()
    unlike = [e for e in epochs if not epoch(late, e).equals(epoch(wanted, e))]
    check(f"epochs, of the {len(epochs)} that have rows, whose rows are others", unlike, [])
    first = first_content(f"lake/{LATE}")
    check("the first of its epochs that ever was visible", first[0], 0)
    check("epochs of its past that this commit had not", max(0, before - 1 - first[1]), 0)
    check("epochs published, for all four tables", tg.status(flow).published, tg.status(flow).upper)
    took = waits(flow, first=0)
    for what, part in (("before", range(before)), (f"while {LATE} came", range(before, max(took) - 1))):
        median = statistics.median(took[e] for e in part if e in took)
        print(f"       from minting an epoch to publishing it, {what}: {median:.2f} s (median)")


def files(path: str) -> pa.Table:
    """Return a table as any program reads it: the files that its log names."""
    return pq.ParquetDataset(DeltaTable(path).file_uris()).read()


def epoch(table: pa.Table, number: int) -> pa.Table:
    """Return the rows of an epoch."""
    return table.filter(pc.equal(table["_epoch"], number)).combine_chunks()


def first_content(path: str) -> tuple[int, int]:
    """Return the least and the greatest epoch of the first version of a table that shows any rows."""
    for version in range(DeltaTable(path).version() + 1):
        if uris := DeltaTable(path, version=version).file_uris():
            found = pc.min_max(pq.ParquetDataset(uris).read(columns=["_epoch"])["_epoch"]).as_py()
            return found["min"], found["max"]
    raise SystemExit(f"{path} has no rows")


if __name__ == "__main__":
    main()
