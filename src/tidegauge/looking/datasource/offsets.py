"""Offsets of a stream of epochs: the first epoch that is not in, with the table and the history that it is one of.

Spark keeps them as JSON in the query's checkpoint, which outlives stores, tables and backups of both. So an offset
also has what tells the flow's store, the output's table, and the flow's history up to the epoch from others.

Invariant: rows of the epochs `[a, b)` are given for two offsets of one life alone; of another one it is an error.

>>> offset = Offset(3, incarnation="1" * 16, table="t", digest="2" * 16)
>>> offset.encode()
{'epoch': 3, 'incarnation': '1111111111111111', 'table': 't', 'digest': '2222222222222222'}
>>> Offset.decode(offset.encode()) == offset, Offset.decode(LATEST)
(True, None)
>>> capped(3, 10, most=4), capped(3, 5, most=4), capped(3, 5, most=None)
(7, 5, 5)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from tidegauge.remap.history import agree

__all__ = ["LATEST", "Offset", "capped"]

LATEST: Final[Mapping[str, Any]] = {"epoch": None}
"""Where a query stands that is to begin with the next epoch: its first batch, without rows, says which that is.

Spark asks anew where a query begins until its first batch is through. So that must not depend on when it asks.
"""

_DIGITS: Final = 16
"""How many digits of an incarnation and of a digest are kept."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The epochs below `epoch` are in. A query that begins at an epoch knows no more of it; the texts are "" then."""

    epoch: int
    incarnation: str = ""
    table: str = ""
    digest: str = ""

    @staticmethod
    def of(epoch: int, incarnation: str, table: str, digest: str) -> Offset:
        """Return the offset at an epoch of a flow's store, a table and a history."""
        return Offset(epoch, incarnation[:_DIGITS], table, digest[:_DIGITS])

    @staticmethod
    def decode(data: Mapping[str, Any]) -> Offset | None:
        """Return the offset that `encode` described; None for `LATEST`."""
        if data["epoch"] is None:
            return None
        said = {name: str(data.get(name, "")) for name in ("incarnation", "table", "digest")}
        return Offset(int(data["epoch"]), **said)

    def encode(self) -> dict[str, Any]:
        """Return it as JSON data, without the texts that are not known."""
        return {name: value for name, value in asdict(self).items() if value != ""}

    def unlike(self, now: Offset) -> tuple[str, str, str] | None:
        """Return which part is another one now, at the same epoch, and its two texts; None where all are the same."""
        if self.incarnation not in ("", now.incarnation):
            return "store", self.incarnation, now.incarnation
        if self.table not in ("", now.table):
            return "table", self.table, now.table or "none"
        if self.digest and now.digest and not agree(self.digest, now.digest):
            return "history", self.digest, now.digest
        return None


def capped(start: int, upper: int, *, most: int | None) -> int:
    """Return where a batch ends that begins at `start` and has at most `most` epochs of those below `upper`."""
    return upper if most is None else min(upper, start + most)
