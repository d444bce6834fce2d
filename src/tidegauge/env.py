"""The outside world in one injected value: clock, randomness, and a named point around every durable effect.

Invariant: nothing else in Tidegauge reads a clock, draws a random number or makes something durable without
telling the `Env` before and after. So a test can hold time still, or crash at any instant that matters.

>>> seen = []
>>> env = Env(point=seen.append)
>>> with env.effect("publish"):
...     pass
>>> seen
['before publish', 'after publish']
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

__all__ = ["EFFECTS", "POINTS", "Effect", "Env", "Spawn", "at_once"]

Spawn = Callable[[Callable[[], Any]], "Future[Any]"]
"""Runs a function beside the worker, or at once."""

Effect = Literal[
    "acquire lease",
    "register",
    "record schema",
    "append bindings",
    "stage",
    "commit output",
    "publish",
    "acknowledge",
    "advance since",
    "record failure",
    "record output failure",
    "begin incarnation",
    "record gap",
    "record held",
    "record told",
    "record start",
    "record columns",
    "record code",
    "begin backfill",
    "record unit",
    "end backfill",
    "stage poll",
    "release lease",
]
"""The durable effects, in the order that a flow performs them."""

EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)
POINTS: Final[tuple[str, ...]] = tuple(f"{side} {effect}" for effect in EFFECTS for side in ("before", "after"))
"""The named points at which a crash test can strike."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _unique() -> str:
    return uuid.uuid4().hex


def _nothing(_point: str) -> None:
    return None


def at_once(function: Callable[[], Any]) -> Future[Any]:
    """Run a function here and now, and return its future: the `spawn` of a run in one thread."""
    future: Future[Any] = Future()
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - it is the future's to raise
        future.set_exception(error)
    return future


@dataclass(frozen=True, kw_only=True, slots=True)
class Env:
    """Everything that a flow knows of the world. The defaults are the real one.

    Args:
        now: the wall clock, timezone-aware UTC.
        monotonic: seconds that never go back.
        unique: a fresh identifier of 32 hex digits.
        sleep: waits for a number of seconds.
        point: called with `before NAME` and `after NAME` around each durable effect, in the thread that performs it.
            Commits, for example, run beside the worker.
        connect: returns the `Backend` of a store's address (`remap.store.connect`); None for SQLite and PostgreSQL.
        lock: makes a lock for threads that may be in the outside world while they hold it.
    """

    now: Callable[[], datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
    unique: Callable[[], str] = _unique
    sleep: Callable[[float], None] = time.sleep
    point: Callable[[str], None] = _nothing
    connect: Callable[[Any], Any] | None = None
    lock: Callable[[], AbstractContextManager[Any]] = threading.Lock

    @contextmanager
    def effect(self, name: Effect) -> Iterator[None]:
        """Mark a durable effect: the `after` point is reached only when the effect succeeded."""
        self.point(f"before {name}")
        yield
        self.point(f"after {name}")
