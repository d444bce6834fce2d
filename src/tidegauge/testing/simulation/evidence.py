"""The evidence for checkers: a database, read with SQL; the rows of tables; the records of upstreams.

A simulated world has them in memory, and real processes leave them on disks and servers. The laws are the same.

Invariant: a question changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from tidegauge.sources.protocol import BadRecord

__all__ = ["StoreEvidence", "TableEvidence", "UpstreamEvidence"]


class StoreEvidence(Protocol):
    """A store's database."""

    def ask(self, question: str, *values: Any) -> list[Any]:
        """Return the rows of a SELECT, with a `?` for each value; none before a driver has made the tables."""
        ...


class TableEvidence(Protocol):
    """The tables of all outputs."""

    def upper(self, name: str) -> int:
        """Return the first epoch that a table does not hold; 0 where there is none."""
        ...

    def rows(self, name: str, as_of: int | None = None) -> pa.Table:
        """Return the rows of a table with their epochs, up to this one if one is given."""
        ...


class UpstreamEvidence(Protocol):
    """An upstream. schema: the columns that a flow gets. acknowledges: whether it keeps what it is told.

    A *place* is a partition for a check: it stays its own when upstream is recreated, which its name does not.
    overtaken: whether records may be gone that were not read. made_anew: how often others took the place of all of
    them, under the same name. spoilt: whether there is a record that cannot be decoded.
    """

    @property
    def schema(self) -> pa.Schema: ...  # noqa: D102
    @property
    def acknowledges(self) -> bool: ...  # noqa: D102
    @property
    def overtaken(self) -> bool: ...  # noqa: D102
    @property
    def made_anew(self) -> int: ...  # noqa: D102
    @property
    def spoilt(self) -> bool: ...  # noqa: D102

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:
        """Return the place of a partition that the store knows under this name, and with these details."""
        ...

    def there(self) -> dict[str, int]:
        """Return the next position of each place that has something: all that has to arrive."""
        ...

    def end(self, place: str) -> int:
        """Return the next position of a place: nothing beyond it can be bound."""
        ...

    def start(self, place: str) -> int:
        """Return the first position that retention has left."""
        ...

    def told(self) -> Mapping[str, int]:
        """Return the positions that were acknowledged, by place."""
        ...

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a range, also those that are gone since."""
        ...

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:
        """Return the records of a range that cannot be decoded, also those that are gone since."""
        ...

    def blurred(self, place: str, lower: int, upper: int) -> bool:
        """Whether compaction took records of a range, which only earlier commits may have."""
        ...
