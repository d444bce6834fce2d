"""`BadRecord`: a record that could not be decoded, as a value, and as the columns of `stream.errors`.

Invariant: it has the bytes as upstream gave them, and where they are, so nothing is lost by going on.

>>> BadRecord("orders-0", 7, b"{", "TG-0401", "it is not JSON").raw
b'{'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from tidegauge.sources.metadata import TIMESTAMP

__all__ = ["BAD_RECORDS", "BadRecord", "OnBadRecord"]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that could not be decoded, with where it stands and its raw bytes.

    key, and timestamp (with a time zone): of a message that has them. withdraws: nothing is wrong with it, it takes
    back the bad records of its key; so it is kept where those are collected, and stops nothing. left_out: its row
    comes all the same, with a mark for what it lacks (`tidegauge.leftout`); it is bad only where nobody carries that.
    """

    partition: str
    position: int
    raw: bytes
    code: str
    message: str
    key: bytes | None = None
    timestamp: datetime | None = None
    withdraws: bool = False
    left_out: bool = False


OnBadRecord = Callable[[BadRecord], None]
"""Called by `Source.read` for each record that cannot be decoded. It may raise, which ends the read."""

BAD_RECORDS = pa.schema(
    [
        ("source", pa.string()),
        ("partition", pa.string()),
        ("position", pa.int64()),
        ("raw", pa.binary()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("key", pa.binary()),
        ("timestamp", TIMESTAMP),
    ]
)
"""The columns of `stream.errors`."""
