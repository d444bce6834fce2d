"""What of outputs' SQL the task that reads can do by itself, as databases push filters down to their scans.

A row that Spark is to look at has to leave the task for the JVM, which costs more than most steps themselves.
`parser` understands a part of SQL, exactly, as `expressions`, and `evaluation` evaluates these on Arrow batches.
Steps that are understood wholly run in the task. For all others the task evaluates the filters as far as it
understands them, and drops the rows that no output can keep (`pushdown`).

Invariant: nothing depends on how much is understood, except speed.
"""

from tidegauge.engine.plain.parser import projected, understood, unknown
from tidegauge.engine.plain.pushdown import Chain, KeptRows, Prefilter, chain, operating

__all__ = ["Chain", "KeptRows", "Prefilter", "chain", "operating", "projected", "understood", "unknown"]
