"""Drivers that run beside each other: each is forked from a process that has everything imported.

Reads one folder a line and answers with the pid of a child that drives the flow of `make` there, as a service with a
tick of 20 ms. The child says in the file `PID.log` what happens to it: `driving` once the lease is its own and
nothing is left to do, `waiting` while its store is away, and in the end `ended CODE`, of the error that stopped it or
`well`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from tests.warm import load

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.flow.board import Board


def make(root: Path) -> tg.Dataflow:
    """One folder of orders into two tables of different kinds; the store is in a folder of its own."""
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/state/shop.db", tick=0.02)
    orders = flow.source("orders", tg.FileSource(f"{root}/in/*.csv", format=tg.Csv("id long")))
    flow.sink("delta", orders, tg.DeltaSink(f"{root}/lake/delta"))
    flow.sink("parquet", orders, tg.ParquetSink(f"{root}/lake/parquet"))
    return flow


def drive(root: Path) -> str:
    """Drive the flow until somebody stops it; return the code of what did, or `well`."""
    log = root / f"{os.getpid()}.log"

    def watch(board: Board) -> None:
        if board.store.error is not None:
            log.write_text("waiting\n")
        elif board.sources["orders"].state == "running" and board.published == board.upper:
            log.write_text("driving\n")

    try:
        make(root).run(engine=tg.LocalEngine(threads=1), watch=watch)
    except TidegaugeError as error:
        return error.code
    return "well"


def serve() -> None:
    """Answer until the input ends."""
    load()
    for line in sys.stdin:
        root = Path(line.strip())
        pid = os.fork()
        if pid == 0:
            end = "died"
            try:
                end = drive(root)
            finally:
                with (root / f"{os.getpid()}.log").open("a") as log:
                    log.write(f"ended {end}\n")
                sys.stderr.flush()
                os._exit(0)
        print(pid, flush=True)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    serve()
