"""`tidegauge run`: one live line a source and an output on a terminal, plain log lines elsewhere.

Invariant: the display is read from the board and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

import tidegauge as tg
from tidegauge.cli.load import send_by_value
from tidegauge.cli.show import amount, phase_text, span, state_text
from tidegauge.errors.running import TickHeld

if TYPE_CHECKING:
    from tidegauge.flow.board import Board, OutputStatus, SourceStatus, StoreStatus
    from tidegauge.flow.runner import Outcome
    from tidegauge.flow.spec import FlowSpec
    from tidegauge.job.plan import Engine

__all__ = ["LiveBoard", "make_engine", "run_flow"]

EVERY = 0.25
"""Seconds between two drawings of the live view."""

STOPPING = "stopping after the epoch under way; once more to stop at once"


class LiveBoard:
    """Shows a board as it changes: drawn anew on a terminal, as lines that say what changed elsewhere.

    ends: whether the run is one that ends when it has caught up; then it is shown what that waits for.
    """

    def __init__(self, console: Console, *, ends: bool = False) -> None:
        self.console = console
        self.ends = ends
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._drawn = 0.0
        self._said: dict[str, str] = {}

    def __call__(self, board: Board) -> None:
        """Show the board; on a terminal at most every quarter of a second."""
        if self.live is None:
            self._log(board)
        elif time.monotonic() - self._drawn >= EVERY:
            self._drawn = time.monotonic()
            self.live.update(view(board, ends=self.ends), refresh=True)

    def _log(self, board: Board) -> None:
        if not board.stopping and all(s.state == "starting" and not _reason(s) for s in board.sources.values()):
            return  # nobody has been asked yet
        first = not self._said
        for one in board.news:
            self._say(one, one)
        if first and board.published:
            self._say("published", f"epoch {board.published - 1} is published already", key=str(board.published))
        for name, status in board.sources.items():
            self._say(f"source {name}", f"source {name}: {status.state}{_why(status)}")
        for name, output in board.outputs.items():
            self._say(f"output {name}", f"output {name}: {output.state}{_why(output)}")
        if board.published:
            lag = ", ".join(f"{s.name} {amount(s.lag, s.unit)} behind" for s in board.sources.values())
            rows = ", ".join(f"{o.name} {o.rows:,} rows" for o in board.outputs.values())
            self._say("published", f"published epoch {board.published - 1}: {rows}; {lag}", key=str(board.published))
        self._say("store", _store(board))
        self._say("held", _held(board))
        if self.ends:
            self._say("awaited", _awaited(board))
        if board.stopping:
            self._say("stopping", STOPPING)

    def _say(self, about: str, text: str, *, key: str | None = None) -> None:
        if self._said.get(about, "") != (key or text):
            self._said[about] = key or text
            if text:
                self.console.print(Text(f"{time.strftime('%H:%M:%S')} {text}"), soft_wrap=True)

    def finish(self, board: Board | None, outcome: Outcome) -> None:
        """Say where the run stopped."""
        if self.live is not None and board is not None:
            self.live.update(view(board), refresh=True)
        last = (
            f"epoch {outcome.published - 1} is the last published" if outcome.published else "no epoch is published"
        )
        self.console.print(Text(f"{outcome.flow}: {outcome.why}; {last}"), soft_wrap=True)


def _reason(status: SourceStatus | OutputStatus | StoreStatus) -> str:
    """Return what keeps a source or an output, "" where nothing does."""
    if status.error is not None:
        return str(getattr(status.error, "summary", status.error))
    return str(getattr(status, "note", ""))


def _why(status: SourceStatus | OutputStatus | StoreStatus) -> str:
    reason = _reason(status)
    return f" ({reason})" if reason else ""


def _store(board: Board) -> str:
    """Return why the store cannot be written, "" where it can."""
    return f"store: stalled{_why(board.store)}" if board.store.error is not None else ""


def _held(board: Board) -> str:
    """Return what keeps anything from being bound, "" where nothing does."""
    return TickHeld(sources=board.awaited).summary if board.awaited else ""


def _awaited(board: Board) -> str:
    """Return what keeps a run from having caught up although nothing is under way, "" where nothing does."""
    if board.store.error is not None:
        return "not caught up: waiting for the store, which cannot be written"
    unread = [s.name for s in board.sources.values() if s.unread is not None]
    if unread:
        return f"not caught up: waiting for {', '.join(unread)}, which cannot be read"
    stalled = [s.name for s in board.sources.values() if s.state == "stalled" and not s.arrived]
    if board.reached is not None or not stalled:
        return ""
    return f"not caught up: waiting for {', '.join(stalled)}, which cannot be asked"


def view(board: Board, *, ends: bool = False) -> RenderableType:
    """Return the board as a table of one line a source and an output, and lines about anything out of order."""
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
            phase_text(output),
            f"{output.rows:,} rows",
            amount(output.lag, "epochs"),
            "",
            f"{output.rate(moment):,.0f}",
            str(output.upper - 1) if output.upper else "-",
        )
    troubles = [Text(f"{s.name}: {why}", style="yellow") for s in board.sources.values() if (why := _reason(s))]
    troubles += [Text(f"{o.name}: {why}", style="red") for o in board.outputs.values() if (why := _reason(o))]
    if store := _store(board):
        troubles.append(Text(store, style="red"))
    if held := _held(board):
        troubles.append(Text(held, style="yellow"))
    if ends and (awaited := _awaited(board)):
        troubles.append(Text(awaited, style="yellow"))
    troubles += [Text(one, style="yellow") for one in board.news]
    if board.stopping:
        troubles.append(Text(STOPPING, style="bold"))
    return Group(table, *troubles)


def make_engine(kind: str, url: str | None, *, folder: Path) -> Engine:
    """Return the engine that the command line names. `folder` is where the flow's file is."""
    if kind == "local":
        return tg.LocalEngine()
    send_by_value(folder)
    if kind == "sail":
        return tg.SailEngine()
    if url is not None and url.startswith("sc://"):
        from pyspark.sql import SparkSession

        return tg.SparkEngine(SparkSession.builder.remote(url).getOrCreate())
    return tg.SparkEngine(master=url or "local[*]")


def run_flow(
    flow: tg.Dataflow,
    *,
    until: str | None,
    rate: int | None = None,
    maintain: float | None = None,
    engine: Engine,
    progress: LiveBoard,
    newer: Callable[[], FlowSpec],
) -> Outcome:
    """Run a flow, show its progress, and close the engine, which an interrupt does not wait for.

    newer: loads the flow again.
    """
    from tidegauge.dsl.maintained import maintained
    from tidegauge.flow.running import run  # here, for `tidegauge --help` needs nothing that a flow needs
    from tidegauge.remap.round import Requests

    boards: list[Board] = []

    def watch(board: Board) -> None:
        boards[:] = [board]
        progress(board)

    try:
        with progress.live or nullcontext(), maintained(flow, maintain, tg.Env()):
            outcome = run(
                flow.spec,
                until=cast("Literal['caught-up'] | None", until),
                spark=None,
                engine=engine,
                env=tg.Env(),
                watch=watch,
                requests=Requests(flow.name),
                rate=rate,
                newer=newer,
            )
            progress.finish(boards[0] if boards else None, outcome)
    except Exception:
        engine.close()
        raise
    engine.close()
    return outcome
