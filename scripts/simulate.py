"""Simulate a flow from many seeds on all cores: `make simulate N=100000`, by default the flow of the tests.

Each process takes ranges of seeds of its own. The first seed that fails ends it, and is shown with its shortest life.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path

from rich.console import Console

from tidegauge.cli.load import flow_maker
from tidegauge.cli.show import error_text
from tidegauge.cli.simulating import bar, kinds_of
from tidegauge.errors.base import TidegaugeError
from tidegauge.testing.simulation import Simulated, simulate

ROOT = Path(__file__).parent.parent
AT_ONCE = 50
"""Seeds that a process takes at once."""


def lived(flow: str, seeds: range, faults: list[str] | None, epochs: int) -> Simulated:
    """Run one range of seeds, in a process of its own. Raises as `simulate` does, with the shortest life."""
    return simulate(flow_maker(flow), seeds=seeds, faults=faults, epochs=epochs)


def main() -> int:
    """Run all seeds; return 1 for the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("flow", nargs="?", default=str(ROOT / "tests/simulation/reference.py"))
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--faults")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    last = given.first + given.seeds
    ranges = iter([range(begin, min(begin + AT_ONCE, last)) for begin in range(given.first, last, AT_ONCE)])
    began, so_far = time.monotonic(), Simulated(0, 0, 0, 0)
    faults = kinds_of(given.faults)
    with ProcessPoolExecutor(given.processes) as pool, bar() as progress:
        shown = progress.add_task("", total=given.seeds)

        def begun(seeds: range) -> Future[Simulated]:
            return pool.submit(lived, given.flow, seeds, faults, given.epochs)

        under_way = {begun(seeds) for seeds in islice(ranges, given.processes)}
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    so_far += future.result()
                except TidegaugeError as failed:
                    progress.stop()
                    pool.shutdown(wait=False, cancel_futures=True)
                    Console(stderr=True).print(error_text(failed), soft_wrap=True)
                    return 1
                under_way |= {begun(seeds) for seeds in islice(ranges, 1)}
                progress.update(shown, completed=so_far.seeds, description=f"{so_far.lives} lives")
    minutes = (time.monotonic() - began) / 60
    print(f"{so_far} ({so_far.lives / minutes:.0f} lives a minute on {given.processes} processes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
