"""Tables that a driver finds ahead of itself: whether the driver before it came to its commit only now.

That driver may have slept between its last look at the lease and the commit. What it committed is what this driver
would have: epochs that are bound, of the same output of the same store, which opening the table compares. So the
table's upper is the truth, and the flow goes on from it.

Invariant: a driver has one commit of an output under way, so each output may be found ahead once. A table that is
found ahead again is changed by somebody else.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from tidegauge.errors.running import SpanConflict
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.remap.store import Lease

__all__ = ["AHEAD", "Ahead", "Overtaking", "output_of"]

Ahead: TypeAlias = TableUpperMismatch | SpanConflict
"""What a commit says that finds its table at another epoch."""

AHEAD: Final = (TableUpperMismatch, SpanConflict)


def output_of(error: Ahead, flow: str) -> str:
    """Return the output whose table it is."""
    return str(error.evidence["output"]).removeprefix(f"{flow}:")


class Overtaking:
    """The outputs of a run that the driver before it has overtaken."""

    def __init__(self, lease: Lease) -> None:
        self._lease: Final = lease
        self._overtaken: Final[set[str]] = set()

    def explains(self, error: Ahead, output: str, *, bound: int) -> bool:
        """Whether the driver before explains the error. bound: the epochs before it are bound.

        Raises `LeaseLost` when it is this driver that slept.
        """
        expected, actual = error.evidence.get("expected", error.evidence.get("lower")), error.evidence["actual"]
        self._lease.renew()
        if output in self._overtaken or not expected < actual <= bound:
            return False
        self._overtaken.add(output)
        return True
