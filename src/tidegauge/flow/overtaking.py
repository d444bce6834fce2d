"""Tables that a driver finds ahead of itself: whether the driver before it came to its commit only now.

That driver may have slept between its last look at the lease and the commit. What it committed is what this driver
would have: epochs that are bound, of the same output of the same store, which opening the table compares. So the
table's upper is the truth, and the flow goes on from it.

Invariant: a driver has one commit of an output under way, so each output may be found ahead once. A table that is
found ahead again is changed by somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tidegauge.errors.running import SpanConflict
from tidegauge.errors.sinks import TableUpperMismatch, TableWentBack
from tidegauge.remap.store import Lease

__all__ = ["AHEAD", "Ahead", "Overtaking"]

Ahead: TypeAlias = TableUpperMismatch | SpanConflict
"""What a commit says that finds its table at another epoch."""

AHEAD: Final = (TableUpperMismatch, SpanConflict)


class Overtaking:
    """The outputs of a run that the driver before it has overtaken.

    vanished: is told of an output whose table has lost epochs, and why it is away.
    """

    def __init__(self, lease: Lease, *, vanished: Callable[[str, TableWentBack], None]) -> None:
        self._lease: Final = lease
        self._vanished: Final = vanished
        self._overtaken: Final[set[str]] = set()

    def explains(self, error: Ahead, *, bound: int) -> bool:
        """Whether the driver before explains the error, or the table lost epochs. bound: those before it are bound.

        Raises `LeaseLost` when it is this driver that slept.
        """
        output = str(error.evidence["output"]).removeprefix(f"{self._lease.flow}:")
        expected, actual = error.evidence.get("expected", error.evidence.get("lower")), error.evidence["actual"]
        self._lease.renew()
        if output not in self._overtaken and expected < actual <= bound:
            self._overtaken.add(output)
            return True
        if isinstance(error, TableUpperMismatch) and actual < expected:
            self._vanished(output, TableWentBack(**error.evidence))
            return True
        return False
