"""Tables show which of their states is published, once it is: their marks are moved beside the run.

Nothing waits for a mark but the end of the run, and that not for long: rows are published without it. If a crash
comes between a publication and the marks, the next run moves them: each run begins with a round.

Which state a mark goes to is one decision for all tables (`sinks.marking`). Those that hold every published epoch go
to one cut. One that lacks some, being late, paused or failed, shows its newest published state.

Invariants. One round is under way at a time, each for the epochs that were published when it began. A table whose
state cannot be told, or whose mark cannot be moved, keeps no other from its own, and is tried again after growing
delays. A mark of others is reported once and left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tidegauge.env import Env, Spawn
from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.errors.iceberg import PublishedTagTaken
from tidegauge.flow.away import Away
from tidegauge.flow.spec import FlowSpec
from tidegauge.sinks.marking import Marker, Marking, TableState, common
from tidegauge.sinks.protocol import OutputId

if TYPE_CHECKING:
    from tidegauge.flow.board import Board

__all__ = ["Marks", "marked"]

TRIES: Final = 3
"""How often a round is tried that a run waits for in the end."""

Reached: TypeAlias = tuple[int, Mapping[str, int]]
"""The published upper, and how much of it each table holds."""

_log: Final = logging.getLogger(__name__)


class Marks:
    """The marks of a run's tables."""

    def __init__(self, flow: FlowSpec, incarnation: str, *, env: Env, spawn: Spawn) -> None:
        self._flow: Final = flow.name
        self._env: Final = env
        self._spawn: Final = spawn
        self._markers: Final[dict[str, Marker]] = {
            name: plan.sink.marker(OutputId(flow.name, name, incarnation))
            for name, plan in flow.outputs.items()
            if isinstance(plan.sink, Marking)
        }
        self._round: tuple[Reached, Future[dict[str, Exception]]] | None = None
        self._done: Reached = (0, {})
        self._failed: Away | None = None

    def look(self, board: Board, tables: Collection[str]) -> None:
        """Hear of the round that has ended, and begin the next one if it is due. tables: outputs that are open."""
        if not self._markers:
            return
        if self._round is not None and self._round[1].done():
            self._hear(board)
        wanted = self._wanted(board, tables)
        if self._round is not None or wanted == self._done:
            return
        if self._failed is None or self._failed.due(self._env.monotonic()):
            markers = {name: self._markers[name] for name in wanted[1]}
            self._round = wanted, self._spawn(partial(_round, self._env, markers, *wanted))

    def missing(self, board: Board, tables: Collection[str]) -> bool:
        """Whether a mark is still worth waiting for, by a run that has nothing else to do."""
        if not self._markers or (self._failed is not None and self._failed.attempt >= TRIES):
            return False
        return self._round is not None or self._wanted(board, tables) != self._done

    def end(self) -> None:
        """Let go of connections."""
        if self._round is None or self._round[1].done():
            for marker in self._markers.values():
                marker.end()

    def _wanted(self, board: Board, tables: Collection[str]) -> Reached:
        there = self._markers.keys() & set(tables) & board.outputs.keys()
        if not board.published:
            return 0, {}
        return board.published, {name: min(board.outputs[name].upper, board.published) for name in sorted(there)}

    def _hear(self, board: Board) -> None:
        assert self._round is not None  # noqa: S101 - the caller has looked
        (reached, attempt), self._round = self._round, None
        failed = attempt.result()
        for name, error in failed.items():
            if isinstance(error, PublishedTagTaken):
                self._markers.pop(name).end()
                board.tell(f"{name}: {brief(error)}")
            elif self._failed is None:
                _log.warning("%s: %s: what is published is not marked yet: %s", self._flow, name, error)
        others = [error for error in failed.values() if not isinstance(error, PublishedTagTaken)]
        if others:
            now, before = self._env.monotonic(), self._failed
            self._failed = before.again(others[0], now=now) if before else Away.first(others[0], now=now)
        else:
            self._done, self._failed = reached, None


def _round(env: Env, markers: Mapping[str, Marker], published: int, held: Mapping[str, int]) -> dict[str, Exception]:
    live = {name for name, upper in held.items() if upper >= published}
    with env.effect("publish"):
        return marked(markers, published, live)


def marked(markers: Mapping[str, Marker], published: int, live: Collection[str]) -> dict[str, Exception]:
    """Move the marks to the published states, and return by output the errors that kept some from it.

    live: those whose tables hold every published epoch.
    """
    states: dict[str, list[TableState]] = {}
    failed: dict[str, Exception] = {}
    for name, marker in markers.items():
        try:
            states[name] = list(marker.states())
        except (OSError, TidegaugeError) as error:
            failed[name] = error
    cut = common([some for name, some in states.items() if name in live and some], published)
    for name, some in states.items():
        upper = cut if name in live else max((one.least for one in some if one.least <= published), default=None)
        state = None if upper is None else next((one for one in some if one.shows(upper)), None)
        if state is None:
            continue
        try:
            markers[name].mark(state)
        except (OSError, TidegaugeError) as error:
            failed[name] = error
    return failed
