"""The laws of sources that are polled, list, or take loads, in one world: upstreams notice a broken law.

Invariant: what a driver does to an upstream is looked at before it does the next thing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Protocol, runtime_checkable

from tidegauge.testing.simulation.checks import Checks
from tidegauge.testing.simulation.ledger import BindingLedger, Broken
from tidegauge.testing.simulation.writers.listings import ListingsUpstream

__all__ = ["AttendedLaws"]

_LOSSES: Final = """
    SELECT l.lower, l.upper FROM losses l JOIN sources s ON s.id = l.source_id WHERE s.name = ?"""


@runtime_checkable
class _Watched(Protocol):
    """An upstream that notices a broken law by itself."""

    @property
    def broken(self) -> Broken | None: ...


class AttendedLaws:
    """The laws of the upstreams that are polled, are listed, or load."""

    def __init__(self, checks: Checks, ledger: BindingLedger, upstreams: Collection[Any]) -> None:
        self._checks: Final = checks
        self._ledger: Final = ledger
        self._upstreams: Final = [one for one in upstreams if isinstance(one, _Watched)]

    def at(self, place: str) -> None:
        """Look at the upstreams when a driver comes to a place. A law that breaks is kept in the checks."""
        for upstream in self._upstreams:
            if place == "store committed" and isinstance(upstream, ListingsUpstream):
                for lower, upper in self._ledger.ask(_LOSSES, upstream.name):
                    upstream.lose(lower, upper)
            self._checks.broken = self._checks.broken or upstream.broken
