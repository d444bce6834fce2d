"""Reads "as of" an epoch on a session of Spark's, while the driver of the flow is killed again and again.

`python -m tests.engine.besides URL FOLDER` does it on the Spark at a URL, and prints what came of it as
JSON. The first driver lives to its end. Each later one has one file more to read, and ends by SIGKILL at a random
instant, if it has not ended by itself, until enough drivers were killed and enough reads answered; the last one is
spared. Then each read is held against the rows of the epochs
up to its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from tests.engine import cases
from tests.engine.clusters import ROOT
from tests.flow import killable
from tests.flow.drivers import Drivers

import tidegauge as tg
from tidegauge.errors.command import OutputIsBehind
from tidegauge.errors.store import EpochBelowSince

KILLS = 6
BACK = 3
"""How many epochs before the newest one are read."""

Rows: TypeAlias = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Beside:
    """How many drivers were killed, how many reads there were of each output, and which of them (output, epoch) did
    not show exactly the rows of their epochs. final: the rows of each output in the end.
    """

    seed: int
    kills: int
    reads: dict[str, int]
    wrong: list[tuple[str, int]]
    final: dict[str, int]


def beside(url: str, folder: Path) -> Beside:
    """Run it in a process of its own."""
    command = [sys.executable, "-m", "tests.engine.besides", url, str(folder)]
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"it failed on {url}:\n{done.stderr[-4000:]}")
    return Beside(**json.loads(done.stdout.splitlines()[-1]))


def look(session: Any, flow: tg.Dataflow, instants: random.Random) -> list[tuple[str, int, Rows]]:
    """Read an output as of one of the newest epochs that are published; nothing where that is refused: it is folded
    already, or its table lacks it until there is a driver again.
    """
    output = instants.choice(sorted(flow.outputs))
    epoch = max(0, tg.status(flow).published - 1 - instants.randrange(BACK))
    with suppress(EpochBelowSince, OutputIsBehind):
        frame = tg.read(session, flow, output, as_of=epoch).drop("_partition")
        return [(output, epoch, sorted(map(tuple, frame.collect())))]
    return []


def whole(table: pa.Table) -> Rows:
    """Return all rows, without the partitions, which name this very folder."""
    names = [name for name in table.column_names if name != "_partition"]
    return sorted(tuple(row.values()) for row in table.select(names).to_pylist())


def main(url: str, root: Path) -> None:
    seed = int.from_bytes(os.urandom(4))
    instants = random.Random(seed)
    session = cases.session_at(url)
    session.range(1).count()  # so that the first read is as quick as the others
    killable.fill(root)
    flow, drivers = killable.make(root), Drivers(root / "drivers.log")
    began = time.monotonic()
    assert not drivers.live(root)
    took = time.monotonic() - began
    reads = look(session, flow, instants)
    kills = lives = 0
    with ThreadPoolExecutor(1) as beside:
        while kills < KILLS or len(reads) < KILLS:
            lives += 1
            lines = [json.dumps({"id": lives * 10_000 + n, "name": f"life {lives}"}) for n in range(120)]
            (root / "in" / f"{lives + 10}.jsonl").write_text("\n".join(lines) + "\n")
            ending = beside.submit(drivers.kill, drivers.start(root), after=instants.uniform(0, took / 2))
            while not ending.done():
                reads += look(session, flow, instants)
            kills += ending.result()
            reads += look(session, flow, instants)
    assert not drivers.live(root)
    drivers.close()
    rows = {output: whole(tg.read_arrow(flow, output)) for output in flow.outputs}
    wrong = [(o, epoch) for o, epoch, shown in reads if shown != [row for row in rows[o] if row[-1] <= epoch]]
    counts = {output: sum(read[0] == output for read in reads) for output in flow.outputs}
    final = {output: len(found) for output, found in rows.items()}
    session.stop()
    print(json.dumps(asdict(Beside(seed, kills, counts, wrong, final))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
