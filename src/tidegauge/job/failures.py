"""Failures of outputs for reasons of their own: durable before anything is done because of them.

A function raised, an expression met a row that it cannot take, a table refuses. The output ends before that epoch for
this run, and the others go on. The next run tries again: a step is code, and code is corrected between runs.

Invariant: a failure in the store is at an epoch that the output's table does not hold, except between a commit and
the effect right after it. Readers of the store compare the table (`LoadedOutput.outstanding`), and the next run takes
back whatever a crash left there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.store import Lease, Store

__all__ = ["OutputFailures"]


class OutputFailures:
    """Failures of outputs, in the store. `known` are the epochs of those that earlier runs left, by output."""

    def __init__(
        self, store: Store, lease: Lease, *, known: Mapping[str, int], watch: Callable[[str, TidegaugeError], None]
    ) -> None:
        self._store: Final = store
        self._lease: Final = lease
        self._known: Final = dict(known)
        self._watch: Final = watch
        self.ended: Final[dict[str, int]] = {}
        """The epoch at which each output ended that has failed in this run."""

    def failed(self, output: str, epoch: int, error: TidegaugeError) -> None:
        """Note that an output has failed at an epoch, durably, before anybody is told."""
        self._store.record_output_failure(self._lease, output, epoch, error)
        self._known[output] = self.ended[output] = epoch
        self._watch(output, error)

    def passed(self, output: str, upper: int) -> None:
        """Take a failure back once the output's table holds its epoch. Costs nothing where there is none."""
        if upper > self._known.get(output, upper):
            self._store.clear_output_failure(self._lease, output)
            del self._known[output]
