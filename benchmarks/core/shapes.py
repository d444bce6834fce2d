"""A dataflow of very many ports: a partition with N outputs, an operator that connects each of its N inputs to one of
its N outputs, and N streams through a region. Built and run to its end, it is to cost N times what one port costs.

Each size runs in a process of its own, because the kernel keeps the peak of a process for its life.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, Final

from benchmarks.figures import Figure, Goal
from benchmarks.processes import Peaks
from benchmarks.room import Room
from tidegauge.dataflow import OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Scope, Stream, Worker
from tidegauge.dataflow.build import Step

__all__ = ["case", "measure"]

_LINEAR: Final = 2.0
"""Ten times the size may cost twenty times as much, never a hundred times: caches are small, and a larger heap is
looked at more often by Python's collector."""


def _diagonal(scope: Scope, streams: tuple[Stream[Any], ...]) -> list[Stream[Any]]:
    """Hand each stream on through an operator of its own input and output for each."""
    builder = OperatorBuilder(scope, "diagonal")
    for number, stream in enumerate(streams):
        builder.input(stream, {number: (None,)})
    outputs = [builder.output() for _ in streams]

    def build(context: OperatorContext) -> Step:
        for capability in context.capabilities:
            capability.drop()

        def step(inlets: list[OperatorInput], outlets: list[OperatorOutput]) -> None:
            for inlet, outlet in zip(inlets, outlets, strict=True):
                for capability, batch in inlet.drain():
                    outlet.give(capability, batch)

        return step

    builder.build(build, notify=False)
    return outputs


def case(outputs: int) -> dict[str, float]:
    """Build the shape, send one batch that is cut into a piece for each output, and run it to its end."""
    before = Peaks()
    before.look()
    begun = time.perf_counter()
    worker = Worker(monotonic=time.monotonic)
    came = 0

    def count(_stamp: Any, _batch: Any) -> None:
        nonlocal came
        came += 1

    with worker.dataflow("wide") as scope:
        numbers, stream = scope.input("numbers")
        through = _diagonal(scope, stream.partition(outputs, enumerate))
        with scope.region("region") as region:
            left = [one.enter(region).leave() for one in through]
        scope.concatenate(left).inspect(count)
    built = time.perf_counter()
    numbers.send(range(outputs))
    numbers.close()
    while worker.step():
        pass
    done = time.perf_counter()
    if came != outputs:
        raise AssertionError(f"{came} of {outputs} pieces came through")
    after = Peaks()
    after.look()
    return {"build": built - begun, "run": done - built, "bytes": after.one["driver"] - before.one["driver"]}


def _apart(outputs: int) -> dict[str, float]:
    """Run a case in a process of its own."""
    code = "import json, sys; from benchmarks.core.shapes import case; print(json.dumps(case(int(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(outputs)],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(room: Room) -> list[Figure]:
    """Measure three sizes, each beside ten times what a tenth of it cost."""
    figures: list[Figure] = []
    sizes = room.size((1_000, 10_000, 100_000), (100, 1_000))
    before: dict[str, tuple[float, ...]] = {}
    for size in sizes:
        runs = [_apart(size) for _ in range(1 if size == sizes[-1] else 3)]
        now = {
            "s, to build": tuple(run["build"] for run in runs),
            "s, to run": tuple(run["run"] for run in runs),
            "MiB": tuple(run["bytes"] / 2**20 for run in runs),
        }
        for unit, ours in now.items():
            tenfold = tuple(10 * taken for taken in before.get(unit, ()))
            figures.append(
                Figure(
                    f"a shape of {size:,} outputs, a diagonal, and a region",
                    unit,
                    ours=ours,
                    peer=tenfold,
                    peer_name="10 times a tenth" if tenfold else "",
                    goal=Goal("ratio", "<=", _LINEAR) if tenfold else None,
                )
            )
        before = now
    return figures
