"""What an upstream answers whose places keep their names and all that came to them: it says only what differs.

Invariant: an answer is the same at any time, so a check may ask before the first record, and after the last.

>>> places = LastingPlaces()
>>> places.learn("polls", {}), places.start("polls"), dict(places.told())
('polls', 0, {})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.sources.protocol import BadRecord

__all__ = ["LastingPlaces"]


class LastingPlaces:
    """The answers about places that last, hold what can be decoded, and are told nothing."""

    acknowledges = spoilt = False
    made_anew = 0
    whole = True

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return the partition: it is its own place."""
        return partition

    def forget(self, place: str) -> None:
        """Nothing: a place has its name for good."""

    def start(self, place: str) -> int:  # noqa: ARG002
        """Return 0: what came to a place stays."""
        return 0

    def told(self) -> Mapping[str, int]:
        """Return nothing: nobody is told how far a flow has come."""
        return {}

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:  # noqa: ARG002
        """Return nothing: all that is there can be decoded."""
        return []

    def blurred(self, place: str, lower: int, upper: int) -> bool:  # noqa: ARG002
        """False: nothing is taken out of a place."""
        return False
