"""Processes that load files, or run the flow beside that, and are killed at an instant."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.killed import killing

import tidegauge as tg

__all__ = ["drive", "load", "shop"]

_TOUCHES = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir"})


def shop(root: Path) -> tg.Dataflow:
    """A flow with history and what comes live, united."""
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db", tick=0.02)
    columns = "id long, name string"
    live = flow.source("live", tg.FileSource(str(root / "live" / "*.jsonl"), format=tg.Json(columns)))
    history = flow.source("history", tg.BatchSource(root / "loads", columns=columns))
    flow.sink("orders", flow.source("every", tg.union(live, history)), tg.ParquetSink(str(root / "lake" / "orders")))
    return flow


def load(root: Path, nth: int, events: frozenset[str] = _TOUCHES) -> None:
    """Load, and be killed just before the nth time that something below the source's folder is touched."""
    flow, within = shop(root), f"{root}/loads"
    _killed_before(nth, lambda event, path: event in events and path.startswith(within))
    tg.load(flow, "orders", root / "in" / "*.parquet", engine=tg.LocalEngine(threads=2))


def drive(root: Path, point: str) -> None:
    """Run the flow until it is caught up, and be killed at a point."""
    env = tg.Env(point=killing(point, 0))
    shop(root).run("caught-up", engine=tg.LocalEngine(threads=2), env=env)


def _killed_before(nth: int, matters: Callable[[str, str], bool]) -> None:
    left = nth

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if arguments and isinstance(arguments[0], str | os.PathLike) and matters(event, os.fspath(arguments[0])):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)
