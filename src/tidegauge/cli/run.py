"""`tidegauge run`: one live line a source and an output on a terminal, plain log lines elsewhere.

Invariant: what is shown is read from the board and decides nothing.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any, Literal, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegauge.cli.show import amount, span, state_text
from tidegauge.env import Env
from tidegauge.pipeline.board import Board, OutputStatus, SourceStatus
from tidegauge.pipeline.flow import Dataflow
from tidegauge.pipeline.runner import Outcome

__all__ = ["Progress", "run_flow"]

EVERY = 0.25
"""Seconds between two drawings of the live view."""


class Progress:
    """Shows a board as it changes: drawn anew on a terminal, as lines that say what changed elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._drawn = 0.0
        self._said: dict[str, str] = {}
        self._stopping = False

    def __call__(self, board: Board) -> None:
        """Show the board; on a terminal at most every quarter of a second."""
        if self.live is None:
            self._log(board)
        elif time.monotonic() - self._drawn >= EVERY:
            self._drawn = time.monotonic()
            self.live.update(view(board), refresh=True)

    def _log(self, board: Board) -> None:
        for name, status in board.sources.items():
            said = f"source {name}: {status.state}{_why(status)}"
            self._say(f"source {name}", said)
        for name, output in board.outputs.items():
            self._say(f"output {name}", f"output {name}: {output.state}{_why(output)}")
        if board.published:
            lag = ", ".join(f"{s.name} {amount(s.lag, s.unit)} behind" for s in board.sources.values())
            rows = ", ".join(f"{o.name} {o.rows:,} rows" for o in board.outputs.values())
            self._say("published", f"published epoch {board.published - 1}: {rows}; {lag}", key=str(board.published))

    def _say(self, about: str, text: str, *, key: str | None = None) -> None:
        if self._said.get(about) != (key or text):
            self._said[about] = key or text
            self.console.print(Text(f"{time.strftime('%H:%M:%S')} {text}"), soft_wrap=True)

    def finish(self, board: Board | None, outcome: Outcome) -> None:
        """Say where the run stopped."""
        if self.live is not None and board is not None:
            self.live.update(view(board), refresh=True)
        last = (
            f"epoch {outcome.published - 1} is the last published" if outcome.published else "no epoch is published"
        )
        self.console.print(Text(f"{outcome.flow}: {outcome.why}; {last}"))


def _why(status: SourceStatus | OutputStatus) -> str:
    if status.error is not None:
        return f" ({getattr(status.error, 'summary', status.error)})"
    note = getattr(status, "note", "")
    return f" ({note})" if note else ""


def view(board: Board) -> RenderableType:
    """Return the board as a table of one line a source and an output."""
    now, moment = board.env.now(), board.env.monotonic()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "state", "position", "lag", "", "rows/s", "epoch"):
        table.add_column(heading, justify="left" if heading in ("", "state") else "right")
    for source in board.sources.values():
        table.add_row(
            source.name,
            state_text(source.state),
            amount(source.position, source.unit),
            amount(source.lag, source.unit),
            span(source.lag_seconds(now)),
            "",
            str(board.upper - 1) if board.upper else "-",
        )
    for output in board.outputs.values():
        table.add_row(
            f"→ {output.name}",
            state_text(output.state),
            f"{output.rows:,} rows",
            "",
            "",
            f"{output.rate(moment):,.0f}",
            str(output.upper - 1) if output.upper else "-",
        )
    troubles = [Text(f"{s.name}: {_why(s)[2:-1]}", style="yellow") for s in board.sources.values() if _why(s)]
    troubles += [Text(f"{o.name}: {_why(o)[2:-1]}", style="red") for o in board.outputs.values() if _why(o)]
    return Group(table, *troubles)


def _session(url: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    return (builder.remote(url) if url.startswith("sc://") else builder.master(url)).getOrCreate()


def run_flow(flow: Dataflow, *, until: str | None, engine: str, spark: str | None, progress: Progress) -> Outcome:
    """Run a flow and show its progress."""
    boards: list[Board] = []

    def watch(board: Board) -> None:
        if not boards:
            boards.append(board)
        progress(board)

    with progress.live or nullcontext():
        outcome = flow.run(
            cast("Literal['caught-up'] | None", until),
            spark=None if spark is None else _session(spark),
            engine=cast("Literal['spark', 'local']", engine),
            env=Env(),
            watch=watch,
        )
        progress.finish(boards[0] if boards else None, outcome)
    return outcome
