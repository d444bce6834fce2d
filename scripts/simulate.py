"""Simulate a flow from many seeds on all cores: `make simulate N=100000`, by default the flow of the tests.

Each process takes every second seed, or third, as there are processes, and tells of each what came of it. The first
seed that fails ends the others at once, and is shown with its shortest life. Ctrl-C ends all at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection, wait
from operator import add
from pathlib import Path
from typing import Any

from rich.console import Console

from tidegauge.cli.load import flow_maker
from tidegauge.cli.show import error_text
from tidegauge.cli.simulating import INTERRUPTED, SimulationLine, kinds_of, quiet, say_failed
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.simulation import SimulationFailed
from tidegauge.testing.simulation import Shrinking, Simulated, simulate

REFERENCE = Path(__file__).parent.parent / "tests/simulation/reference.py"


@contextmanager
def deaf() -> Iterator[None]:
    """Start processes that never hear Ctrl-C, which a terminal sends to all of them; this one hears it at the end.

    One that ignores it in its first line may hear it before, within multiprocessing, and print a traceback. Another
    thread, of a library, may take the signal that this one blocks, so it is noted too.
    """
    noted: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _frame: noted.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)


def lived(given: argparse.Namespace, seeds: Sequence[int], told: Connection) -> None:
    """Run some seeds in this process, and tell what comes of them: in the end None, or the error.

    The process that it tells ends it, also after Ctrl-C.
    """
    quiet()
    try:
        simulate(
            flow_maker(given.flow),
            seeds=seeds,
            faults=kinds_of(given.faults),
            epochs=given.epochs,
            after=lambda _seed, so_far: told.send(so_far),
            shrinking=told.send,
        )
    except TidegaugeError as failed:
        told.send(failed)
    else:
        told.send(None)


class Died(Exception):
    """A process that ended without a word."""


class Workers:
    """The processes, and what each of them has told."""

    def __init__(self) -> None:
        self._processes: dict[Any, Process] = {}
        self._so_far: dict[Any, Simulated] = {}

    def start(self, given: argparse.Namespace) -> None:
        """Give each process its seeds."""
        for number in range(given.processes):
            seeds = range(given.first + number, given.first + given.seeds, given.processes)
            heard, told = Pipe(duplex=False)
            process = Process(target=lived, args=(given, seeds, told), daemon=True)
            process.start()
            told.close()  # so that its end is heard
            self._processes[heard] = process

    @property
    def so_far(self) -> Simulated:
        """All seeds that held."""
        return reduce(add, self._so_far.values(), Simulated(0, 0, 0, 0))

    def watch(self, line: SimulationLine) -> TidegaugeError | None:
        """Wait until all are done, or one fails, and return how. Raises `Died`."""
        under_way = dict(self._processes)
        while under_way:
            for heard in wait(list(under_way)):
                if heard not in under_way:
                    continue
                match self._heard(heard):
                    case None:
                        del under_way[heard]
                    case Simulated() as so_far:
                        self._so_far[heard] = so_far
                        line.held(self.so_far)
                    case Shrinking() as found:
                        line.shrinking(found)
                        under_way = {heard: self._processes[heard]}
                        self.end(but=heard)
                    case TidegaugeError() as failed:
                        return failed
        return None

    def _heard(self, heard: Any) -> Any:
        try:
            return heard.recv()
        except EOFError:
            process = self._processes[heard]
            process.join()
            raise Died(f"a process ended with {process.exitcode}; -9 if the machine has no memory left") from None

    def end(self, *, but: object = None) -> None:
        """End the processes at once; but: all others than this one's."""
        for heard, process in self._processes.items():
            if heard is not but:
                process.kill()


def main() -> int:
    """Run all seeds; return 1 for the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("flow", nargs="?", default=str(REFERENCE))
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--faults")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    began, line = time.monotonic(), SimulationLine(given.seeds)
    workers = Workers()
    try:
        with deaf():
            workers.start(given)
        with line:
            failed = workers.watch(line)
    except KeyboardInterrupt:
        print(line.stopped(), file=sys.stderr)
        return INTERRUPTED
    except Died as died:
        print(f"{died}\n{line.stopped()}", file=sys.stderr)
        return 1
    finally:
        workers.end()
    if isinstance(failed, SimulationFailed):
        say_failed(failed, given.flow, faults=given.faults, epochs=given.epochs)
    elif failed is not None:
        Console(stderr=True).print(error_text(failed), soft_wrap=True)
    if failed is not None:
        return 1
    minutes = (time.monotonic() - began) / 60
    done = workers.so_far
    print(f"{done} ({done.lives / minutes:.0f} lives a minute on {given.processes} processes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
