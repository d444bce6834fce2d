"""The rates of `first_rows` over 10 million rows, in two turns; making the table alone takes a minute."""

from __future__ import annotations

from benchmarks.figures import Figure
from benchmarks.first_rows import compared
from benchmarks.room import Room

__all__ = ["measure"]


def measure(room: Room) -> list[Figure]:
    """Measure a table of that size."""
    return compared(room, room.size(10_000_000, 20_000), room.size(2, 1))
