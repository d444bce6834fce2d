"""The rows of a feed that some output may want: the others never leave the task that read them.

A row that SQL steps look at goes from the task to the JVM, and to a second Python worker if an output keeps it. Most
filters are plain comparisons and drop most rows, so the task asks those first, as databases push filters down to
their scans. The JVM asks every filter again, whole and exactly.

Law: **a row that a filter of Spark's keeps, or for which it raises, is never dropped here.** The argument:

1. A `Condition` is what `parser.py` understood of SQL. On each row it has the value that Spark gives, one of
   true, false and null, and to evaluate it raises nothing. `AND`, `OR` and `NOT` are those of three values.
2. An output's leading filters are one conjunction `c1 AND c2 AND ...` in the order in which they stand. Of it
   `KeptRows` has the first conjuncts that were understood, `c`. The rest, `r`, may be anything: it may raise.
3. Spark evaluates a conjunction from left to right and ends at the first that is false. So where `c` is false, `r` is
   not evaluated, the filter is false, and the row may go. Where `c` is true, the row stays.
4. Where `c` is null, `c AND r` is never true, but Spark may evaluate `r` to know whether it is false. So the row may
   go only where nothing else is evaluated (`closed`), for then a null keeps no row.
5. A row may go if it may go for every output of the feed. If one output has no such filter, none may.

>>> from tidegauge.engine.plain.expressions import Among, Compare, Not
>>> orders = pa.record_batch({"id": [1, 2, 3, 4], "amount": [5.0, None, float("nan"), 950.0]})
>>> large, first = Not(Compare("amount", "<=", 900.0)), Among("id", (1,))
>>> Prefilter((KeptRows(large, closed=True),))(orders)["id"].to_pylist()
[3, 4]
>>> Prefilter((KeptRows(large, closed=False), KeptRows(first, closed=True)))(orders)["id"].to_pylist()
[1, 2, 3, 4]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from tidegauge.engine.plain.expressions import Condition, truth

__all__ = ["KeptRows", "Prefilter"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What one output may keep: rows whose condition is true, or null too unless it is all that is evaluated."""

    condition: Condition
    closed: bool


@dataclass(frozen=True, slots=True)
class Prefilter:
    """What the outputs of a feed may keep. Called with a batch of the feed, it returns the rows that must go on."""

    outputs: tuple[KeptRows, ...]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that some output may keep. The batch itself, if they are all."""
        wanted = [pc.fill_null(truth(kept.condition, batch), not kept.closed) for kept in self.outputs]
        mask = reduce(pc.or_, wanted)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)
