"""One look at a table of Iceberg: what its catalog has at that moment, and whether the output may go by it.

Invariant: a table that is returned is the output's own, with nothing open that others did; or nobody's, and empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegauge.errors.iceberg import IcebergTableChanged, IcebergTableElsewhere
from tidegauge.errors.sinks import ForeignTable, TableOfAnotherIncarnation
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.iceberg.catalog import CatalogPlace
from tidegauge.sinks.iceberg.place import same_place
from tidegauge.sinks.iceberg.standing import NOTHING, IcebergStanding, SnapshotStep, lineage, opened
from tidegauge.sinks.protocol import OutputId, Volume

if TYPE_CHECKING:
    from pyiceberg.table import Table as PyIcebergTable
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["IcebergLook", "elsewhere", "looked"]


@dataclass(frozen=True, slots=True)
class IcebergLook:
    """A table as it was found: what its catalog has, and what that says of the output."""

    table: Any = None
    standing: IcebergStanding = NOTHING

    @property
    def snapshot(self) -> Snapshot | None:
        """The current snapshot."""
        found: Snapshot | None = None if self.table is None else self.table.current_snapshot()
        return found

    @property
    def volume(self) -> Volume | None:
        """How much the table holds, by the summary of its current snapshot; None where that does not say it."""
        if self.snapshot is None:
            return Volume()
        told = {} if self.snapshot.summary is None else self.snapshot.summary.additional_properties
        counts = [told.get(f"total-{what}") for what in ("data-files", "records", "files-size")]
        if None in counts or told.get("total-delete-files", "0") != "0":
            return None
        return Volume(*(int(count or 0) for count in counts))


def looked(place: CatalogPlace, output: OutputId) -> IcebergLook:
    """Return the present table, having checked that it is the output's, or nobody's and empty.

    Raises `ForeignTable`, `TableOfAnotherIncarnation`, `IcebergTableElsewhere`, `IcebergTableChanged`.
    """
    table = place.load()
    if table is None:
        return IcebergLook()
    name, properties = str(place.name), table.metadata.properties
    standing = IcebergStanding(properties)
    if standing.is_claimed and not standing.is_of(output):
        detail = f"it belongs to the output '{':'.join(standing.owner)}'"
        raise ForeignTable(table=name, output=str(output), detail=detail)
    if standing.is_claimed and standing.incarnation != output.incarnation:
        raise TableOfAnotherIncarnation(table=name, output=str(output), incarnation=output.incarnation)
    if not same_place(table.location(), place.folder):
        raise elsewhere(place, output, table.location())
    if not standing.is_claimed:
        _check_adoptable(place, output, table)
        return IcebergLook(table)
    steps = _since(table, standing)
    if detail := opened(standing, steps):
        about = {"upper": standing.upper, "snapshot": standing.snapshot, "detail": detail}
        raise IcebergTableChanged(table=name, output=str(output), **about)
    return IcebergLook(table, IcebergStanding(properties, steps))


def elsewhere(place: CatalogPlace, output: OutputId, found: str) -> IcebergTableElsewhere:
    """Return the error for a table that is not in its folder."""
    return IcebergTableElsewhere(table=str(place.name), output=str(output), found=found, folder=place.folder)


def _since(table: PyIcebergTable, standing: IcebergStanding) -> list[SnapshotStep]:
    """Return the snapshots from the current one back to that of our last commit, or those that are known."""
    steps: list[SnapshotStep] = []
    for step in lineage(table.metadata):
        steps.append(step)
        if step.sequence <= standing.sequence:
            break
    return steps


def _check_adoptable(place: CatalogPlace, output: OutputId, table: PyIcebergTable) -> None:
    """A table without our properties may have been made for us, empty; one that holds data is not ours."""
    names = table.schema().column_names
    with place.asking():
        current = table.current_snapshot()
        holds = current is not None and any(current.manifests(table.io))
    if EPOCH not in names:
        detail = f"it has no column {EPOCH}; its columns are {', '.join(names)}"
    elif holds:
        detail = "it holds data, and no commit of an output brought it"
    else:
        return
    raise ForeignTable(table=str(place.name), output=str(output), detail=detail)
