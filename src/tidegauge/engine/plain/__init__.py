"""What of outputs' SQL the task that reads can do by itself, as databases push filters down to their scans.

A row that Spark is to look at has to leave the task for the JVM, which costs more than most steps themselves. `lexer`
and `parser` understand a small part of SQL, exactly; `expressions` evaluates it on Arrow batches. Steps that are
understood wholly run in the task. For all others the task evaluates the filters as far as it understands them, and
drops the rows that no output can keep (`pushdown`).

Invariant: nothing depends on how much is understood, except speed.
"""

from tidegauge.engine.plain.parser import projected, understood, unknown
from tidegauge.engine.plain.pushdown import Chain, KeptRows, Prefilter, chain

__all__ = ["Chain", "KeptRows", "Prefilter", "chain", "projected", "understood", "unknown"]
