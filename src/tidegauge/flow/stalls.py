"""What a run waits for, told to the store, so that `status` in another process can say it.

Invariant: writes are bounded by how often something begins and ends to be away, and not by how often it is tried: a
stall is told once it has lasted `SHOWN` seconds, and taken back when it is over. Where its reason changes meanwhile,
the present one is told, at most every `ANEW` seconds.

>>> from datetime import timedelta
>>> noon = datetime(2026, 11, 20, 12)
>>> full = Stall("output", "orders", noon, Unexpected(message="no space left"))
>>> told((), [full], now=noon), told((), [full], now=noon + timedelta(seconds=9)) == (full,)
((), True)
>>> told([full], [], now=noon)
()
>>> later = Stall("output", "orders", noon + timedelta(seconds=3), Unexpected(message="read-only"))
>>> [(one.since, one.error.evidence) for one in told([full], [later], now=noon, anew=True)]
[(datetime.datetime(2026, 11, 20, 12, 0), {'message': 'read-only'})]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError, Unexpected, brief
from tidegauge.flow.board import Board
from tidegauge.remap.store import Lease, Stall, Store

__all__ = ["ANEW", "SHOWN", "Stalls", "told"]

SHOWN: Final = 5.0
"""Seconds after which a stall is worth telling."""

LOOKS: Final = 1.0
"""Seconds between two looks at stalls."""

ANEW: Final = 30.0
"""Seconds between two tellings of reasons that change."""


def told(known: Sequence[Stall], found: Iterable[Stall], *, now: datetime, anew: bool = False) -> tuple[Stall, ...]:
    """Return the stalls that the store should have, given those that it has and those found. A known one keeps its
    time. anew: whether it gets its present reason.
    """
    before = {(stall.kind, stall.name): stall for stall in known}
    return tuple(
        stall if first is None else _renewed(first, stall) if anew else first
        for stall in found
        if (first := before.get((stall.kind, stall.name))) or (now - stall.since).total_seconds() >= SHOWN
    )


def _renewed(known: Stall, found: Stall) -> Stall:
    """Return a known stall with its present reason; the known one itself where that is the same."""
    same = known.error.encode() == found.error.encode()
    return known if same else replace(known, error=found.error)


class Stalls:
    """Tells the store what a run waits for. known: what it has of an earlier run."""

    def __init__(self, known: Sequence[Stall], store: Store, lease: Lease, *, env: Env) -> None:
        self._store: Final = store
        self._lease: Final = lease
        self._env: Final = env
        self._known: tuple[Stall, ...] = tuple(known)
        self.due = float("-inf") if known else env.monotonic() + LOOKS
        """When stalls are looked at next. None that begins now is worth telling any earlier."""
        self._anew = float("-inf")
        """When reasons that have changed are told next."""

    def tell(self, board: Board) -> None:
        """Tell the store which stalls have begun or ended, if any."""
        clock = self._env.monotonic()
        self.due = clock + LOOKS
        found = told(self._known, _found(board), now=self._env.now(), anew=clock >= self._anew)
        if found != self._known:
            self._store.record_stalls(self._lease, found)
            self._known, self._anew = found, clock + ANEW


def _found(board: Board) -> Iterable[Stall]:
    for source in board.sources.values():
        if source.state == "stalled" and source.since is not None and source.error is not None:
            yield Stall("source", source.name, source.since, _ours(source.error))
    for output in board.outputs.values():
        if output.state == "stalled" and output.since is not None and output.error is not None:
            yield Stall("output", output.name, output.since, _ours(output.error))


def _ours(error: Exception) -> TidegaugeError:
    return error if isinstance(error, TidegaugeError) else Unexpected(message=brief(error))
