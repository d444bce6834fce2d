"""A flow over tables of a database whose server is replaced by its standby: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation.shop import make_flow

from tidegauge.testing.simulation.plan import FaultKind

__all__ = ["FAULTS", "make_flow"]

FAULTS: Final[tuple[FaultKind, ...]] = (
    *("promote", "crash", "pause", "slow", "error", "lost", "full", "away", "clock", "cut", "late", "rival", "stop"),
    *("history", "decisions", "restore", "rewind", "alter"),
)
