"""The evidence for checkers: a database, read with SQL; the rows of tables; the records of upstreams.

A simulated world has them in memory, and real processes leave them on disks and servers. The laws are the same.

Invariant: a question changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

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

    overtaken: whether retention may have taken records that were not read.
    """

    @property
    def schema(self) -> pa.Schema: ...  # noqa: D102
    @property
    def acknowledges(self) -> bool: ...  # noqa: D102
    @property
    def overtaken(self) -> bool: ...  # noqa: D102

    def learn(self, partition: str, details: Mapping[str, Any]) -> None:
        """Hear under which name, and with which details, the store knows a partition."""
        ...

    def there(self) -> dict[str, int]:
        """Return the next position of each partition that has something: all that has to arrive."""
        ...

    def end(self, partition: str) -> int:
        """Return the next position of a partition: nothing beyond it can be bound."""
        ...

    def start(self, partition: str) -> int:
        """Return the first position that retention has left."""
        ...

    def told(self) -> Mapping[str, int]:
        """Return the positions that were acknowledged."""
        ...

    def rows(self, partition: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a range, also those that retention took."""
        ...

    def blurred(self, partition: str, lower: int, upper: int) -> bool:
        """Whether compaction took records of a range, which only earlier commits may have."""
        ...
