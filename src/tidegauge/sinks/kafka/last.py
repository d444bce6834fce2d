"""Which row of a key is the last one of its epoch: at most one message for a key and an epoch is sent.

Definition: of the rows of one key in one epoch, the last is the one with the greatest `order`; null is less than
anything. Of two with the same `order` either may be it. Without an `order` there is no last one, as rows of one epoch
come from tasks that run side by side; so two rows of one key are then refused, rather than one of them chosen by
chance.

>>> rows = pa.table({"key": [b"a", b"b", b"a"], "order": [2, 1, 1]})
>>> lasts(rows, ordered=True, topic="t", epoch=0).to_pylist()
[True, True, False]
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.kafkasink import LastUndecided
from tidegauge.sinks.kafka.messages import ORDER

__all__ = ["lasts"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see

_SHOWN: Final = 100


def lasts(rows: pa.Table, *, ordered: bool, topic: str, epoch: int) -> Any:
    """Return for each row of an epoch whether it is its key's last; None when all are. Raises `LastUndecided`.

    rows: the columns `key` and, where `ordered`, `order`. Takes memory for the keys of the epoch.
    """
    keys = rows.column("key")
    if pc.count_distinct(keys).as_py() == rows.num_rows:
        return None
    by = ["key"]
    if ordered:
        rows, by = rows.append_column("valid", pc.is_valid(rows.column(ORDER))), ["key", "valid", ORDER]
    sorting = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in by])
    following = keys.take(sorting)
    changes = pc.not_equal(following.slice(1), following.slice(0, rows.num_rows - 1))
    if not ordered:
        twice = following.slice(1).filter(pc.invert(changes))[0].as_py()
        raise LastUndecided(epoch=epoch, key=repr(twice[:_SHOWN]), topic=topic)
    ends = np.append(changes.to_numpy(), True)
    mask = np.zeros(rows.num_rows, dtype=bool)
    mask[sorting.to_numpy()[ends]] = True
    return pa.array(mask)
