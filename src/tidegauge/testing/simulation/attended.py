"""The laws of sources that are polled, list, or take loads, in one world: upstreams notice a broken law.

Invariant: what a driver does to an upstream is looked at before it does the next thing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from tidegauge.testing.simulation.checks import Checks
from tidegauge.testing.simulation.ledger import BindingLedger
from tidegauge.testing.simulation.writers.listings import ListingsUpstream
from tidegauge.testing.simulation.writers.loads import LoadsUpstream
from tidegauge.testing.simulation.writers.polls import PollsUpstream

__all__ = ["AttendedLaws"]

_WATCHED: Final = (PollsUpstream, ListingsUpstream, LoadsUpstream)
_LOSSES: Final = """
    SELECT l.lower, l.upper FROM losses l JOIN sources s ON s.id = l.source_id WHERE s.name = ?"""


class AttendedLaws:
    """The laws of the upstreams that are polled, are listed, or load."""

    def __init__(self, checks: Checks, ledger: BindingLedger, upstreams: Collection[Any]) -> None:
        self._checks: Final = checks
        self._ledger: Final = ledger
        self._upstreams: Final = [one for one in upstreams if isinstance(one, _WATCHED)]

    def at(self, place: str) -> None:
        """Look at the upstreams when a driver comes to a place. A law that breaks is kept in the checks."""
        for upstream in self._upstreams:
            if place == "store committed" and isinstance(upstream, ListingsUpstream):
                for lower, upper in self._ledger.ask(_LOSSES, upstream.name):
                    upstream.lose(lower, upper)
            self._checks.broken = self._checks.broken or upstream.broken
