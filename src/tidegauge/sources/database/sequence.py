"""The column that orders the changes of a database's log, for the `order` of tables by key.

Invariant: of two changes the later one has the greater number, also within a transaction, whatever the database.

>>> SEQUENCE, str(SEQUENCE_TYPE)
('_sequence', 'decimal128(38, 0)')
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["SEQUENCE", "SEQUENCE_TYPE"]

SEQUENCE: Final = "_sequence"
SEQUENCE_TYPE: Final = pa.decimal128(38, 0)
"""The place of the transaction in the log, and behind it that of the change within the transaction."""
