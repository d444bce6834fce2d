"""Which snapshot of a table of Iceberg shows it as of an epoch, and which one brought an epoch.

Where rows were only ever added, the current snapshot does, as each row says its epoch. Where commits have taken rows
out, it is the snapshot before the first of them that came after the epoch, or that of a later commit.

Invariant: the snapshot has every row that the table held when the epoch was its last, and of later epochs none that
took the place of one; or the answer is an error, never a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegauge.errors.sinks import EpochReplaced
from tidegauge.sinks.iceberg.look import IcebergLook
from tidegauge.sinks.iceberg.standing import SnapshotStep, changes_in, lineage, span_in, takes_out
from tidegauge.sinks.protocol import OutputId

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["snapshot_as_of", "snapshot_of"]


def snapshot_of(look: IcebergLook, output: OutputId, epoch: int) -> str | None:
    """Return the id of the snapshot that brought an epoch, None where it has expired."""
    if look.table is None or not 0 <= epoch < look.standing.upper:
        return None
    for step, (lower, upper) in _spans(look, output):
        if lower <= epoch < upper:
            return str(step.snapshot)
    return None


def snapshot_as_of(look: IcebergLook, output: OutputId, epoch: int) -> Snapshot | None:
    """Return the snapshot that has all rows as of an epoch, None where there were none yet. Raises `EpochReplaced`.

    Of a commit that took rows out, it is the one before it, or the commit's own; within its epochs nobody can tell
    the rows.
    """
    if epoch >= look.standing.changed:  # rows were only added since
        return look.snapshot
    for step, (lower, upper) in _spans(look, output):
        first, last = changes_in(step) or ((lower, upper - 1) if takes_out(step) else (lower, lower))
        if epoch >= last:
            found: Snapshot | None = look.table.snapshot_by_id(step.snapshot)
            return found
        if epoch >= first:
            break
        if lower == 0:
            return None
    raise EpochReplaced(table=".".join(look.table.name()), epoch=epoch)


def _spans(look: IcebergLook, output: OutputId) -> list[tuple[SnapshotStep, tuple[int, int]]]:
    """Return the commits of the present edition that are known, from the last one back."""
    steps = [step for step in lineage(look.table.metadata) if step.sequence >= look.standing.replaced]
    return [(step, span) for step in steps if (span := span_in(step, output)) is not None]
