"""Tables get their names in a catalog while the flow runs, once they are there.

A name harms no row, so nothing waits for it: the output is staged, committed and published without it, and is shown
as stalled until it has it. Beside the worker it is tried again after growing delays. A run that ends by itself tries
it three times before it ends with the error.

Invariant: one attempt is under way at most for each output, and none for one whose table has no commit yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Transient
from tidegauge.errors.catalog import NoCatalog
from tidegauge.flow.away import Away
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.plan import Engine
from tidegauge.sinks.cataloguing import CatalogEntry, Cataloguing, Named

if TYPE_CHECKING:
    from tidegauge.flow.board import Board

__all__ = ["Registering"]

TRIES: Final = 3


class Registering:
    """The tables of a run that are to have a name and do not have it yet. Raises `NoCatalog`."""

    def __init__(self, flow: FlowSpec, engine: Engine, *, env: Env, spawn: Spawn) -> None:
        self._env: Final = env
        self._spawn: Final = spawn
        self._wanted: Final[dict[str, Callable[[], None]]] = {}
        self._failed: Final[dict[str, Away]] = {}
        self._attempts: Final[dict[str, Future[None]]] = {}
        for entry in _entries(flow):
            if not isinstance(engine, Cataloguing):
                raise NoCatalog(output=entry.output, name=entry.name, engine=engine.name)
            self._wanted[entry.output] = partial(_take_in, engine, entry)

    def look(self, board: Board) -> None:
        """Hear of the attempts that have ended, and begin those that are due."""
        for name, attempt in [*self._attempts.items()]:
            if attempt.done():
                del self._attempts[name]
                self._hear(name, attempt.exception(), board)
        for name, take_in in self._wanted.items():
            if name in self._attempts or name not in board.outputs or not board.outputs[name].upper:
                continue
            away = self._failed.get(name)
            if away is None or away.due(self._env.monotonic()):
                self._attempts[name] = self._spawn(take_in)

    def missing(self, board: Board) -> bool:
        """Whether a name is still worth waiting for, by a run that has nothing else to do."""
        there = (name for name in self._wanted if name in board.outputs and board.outputs[name].upper)
        return any(name not in self._failed or self._failed[name].attempt < TRIES for name in there)

    @property
    def error(self) -> Exception | None:
        """Why a table does not have its name; None when none lacks it."""
        return next((away.error for away in self._failed.values()), None)

    def _hear(self, name: str, error: BaseException | None, board: Board) -> None:
        if error is None:
            self._failed.pop(name, None)
            del self._wanted[name]
            board.in_catalog(name)
            return
        if not isinstance(error, Transient):
            raise error
        now, before = self._env.monotonic(), self._failed.get(name)
        self._failed[name] = found = before.again(error, now=now) if before else Away.first(error, now=now)
        board.stalled(name, error, found.attempt)


def _entries(flow: FlowSpec) -> Iterator[CatalogEntry]:
    """Yield the names that the tables of a flow are to have."""
    for name, plan in flow.outputs.items():
        if isinstance(plan.sink, Named) and plan.sink.table is not None:
            yield CatalogEntry(name, plan.sink.table, plan.sink.place)


def _take_in(engine: Cataloguing, entry: CatalogEntry) -> None:
    engine.catalog.take_in(entry)  # asked for here, beside the driver: it may begin a session
