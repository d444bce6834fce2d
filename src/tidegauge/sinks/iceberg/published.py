"""The tag `published` of a table of Iceberg: it names the snapshot whose epochs are all published.

Each commit says in its snapshot which epochs it brought, and the first of them that has rows (`tidegauge.first`). So
the snapshots from one commit to the next are a state of the table as of any upper between the two. The newest of them
is tagged: it has the same rows, packed, or fewer, where others have deleted some.

A move is a commit of metadata alone. It moves the tag and sets the property `tidegauge.tagged`, which tells that the
tag is ours. It touches neither `main` nor what the table says of its upper: if a commit of the output and a move meet
in the catalog, one is made after the other.

Invariants. The tag is moved only from where it was looked at, and to a snapshot of a higher number than any that we
tagged before; so of two drivers the slower one cannot take it back. A tag or branch of this name that others made is
left alone.

>>> output = OutputId("shop", "orders", "a" * 32)
>>> def commit(number, lower, upper, first):
...     said = IcebergStanding.told(output, lower=str(lower), upper=str(upper), first=str(first))
...     return SnapshotStep(number, number, "append", said)
>>> steps = [commit(4, 2, 6, 5), SnapshotStep(3, 3, "replace"), commit(2, 1, 2, 1), commit(1, 0, 1, 0)]
>>> for state in states_in(steps, output): print(state)
TableState(name='4', least=6, most=None)
TableState(name='3', least=2, most=5)
TableState(name='1', least=1, most=1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegauge.errors.iceberg import CatalogAway, PublishedTagTaken
from tidegauge.errors.sinks import TableBusy
from tidegauge.sinks.iceberg.catalog import CatalogPlace, is_conflict, translated
from tidegauge.sinks.iceberg.change import committed
from tidegauge.sinks.iceberg.look import IcebergLook, looked
from tidegauge.sinks.iceberg.standing import IcebergStanding, SnapshotStep, first_in, lineage, span_in
from tidegauge.sinks.iceberg.table import ATTEMPTS
from tidegauge.sinks.marking import TableState
from tidegauge.sinks.protocol import OutputId

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["TAG", "PublishedTag", "states_in"]

TAG: Final = "published"


class PublishedTag:
    """A `Marker`: the tag of the table at `place`."""

    def __init__(self, place: CatalogPlace, output: OutputId) -> None:
        self._place: Final = place
        self._output: Final = output

    def states(self) -> Sequence[TableState]:
        """Return the tagged state and those after it, the newest first.

        Raises `PublishedTagTaken`, and as `looked`.
        """
        look = self._looked()
        if not look.standing.is_claimed:
            return []
        tagged = _known(look).get(look.standing.tagged)
        since = 0 if tagged is None else tagged.sequence_number or 0
        steps = (step for step in lineage(look.table.metadata) if step.sequence >= look.standing.replaced)
        return list(states_in(steps, self._output, since=since))

    def mark(self, state: TableState) -> None:
        """Tag the snapshot of a state, unless it is tagged already, or was by another driver, or one after it."""
        for _ in range(ATTEMPTS):
            look = self._looked()
            known = _known(look)
            there = [known[name] for name in (state.name, look.standing.tagged) if name in known]
            newest = max(there, key=lambda one: one.sequence_number or 0, default=None)
            if newest is None or _tagged_now(look) == newest.snapshot_id:
                return
            self._move(look, newest.snapshot_id)
        raise TableBusy(table=str(self._place.name), attempts=ATTEMPTS)

    def end(self) -> None:
        """Let go of the catalog's connections."""
        self._place.close()

    def _move(self, look: IcebergLook, snapshot: int) -> None:
        """Ask the catalog once to move the tag. The caller looks what came of it, unless this raises."""
        from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

        metadata = look.table.metadata
        ref = metadata.refs.get(TAG)
        kept = {} if ref is None else {name: value for name, value in ref.model_dump(by_alias=True).items() if value}
        moved = {**kept, "ref-name": TAG, "type": "tag", "snapshot-id": snapshot}
        unmoved = {"ref": TAG, "snapshot-id": _tagged_now(look)}
        try:
            committed(
                look.table,
                self._place.folder,
                (SetSnapshotRefUpdate.model_validate(moved),),
                (AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId.model_validate(unmoved)),
                IcebergStanding.told(self._output, tagged=str(snapshot)),
            )
        except Exception as error:
            if is_conflict(error) or _tagged_now(self._looked()) == snapshot:
                return
            about = {"table": str(self._place.name), "catalog": self._place.shown}
            told = translated(error, self._place) or CatalogAway(**about, detail=f"{type(error).__name__}: {error}")
            raise told from error

    def _looked(self) -> IcebergLook:
        """Return the present table. Raises where a tag or a branch of others has the name."""
        look = looked(self._place, self._output)
        ref: Any = None if look.table is None else look.table.metadata.refs.get(TAG)
        if ref is not None and (not look.standing.tagged or str(ref.snapshot_ref_type) != "tag"):
            raise PublishedTagTaken(table=str(self._place.name), tag=TAG, kind=str(ref.snapshot_ref_type))
        return look


def states_in(steps: Iterable[SnapshotStep], output: OutputId, *, since: int = 0) -> Iterator[TableState]:
    """Yield the states that commits of an output have made, the newest first.

    steps: from the current snapshot back. since: the number of a snapshot; states before that one's are left out.
    """
    newest, most = "", None
    for step in steps:
        newest = newest or str(step.snapshot)
        if (span := span_in(step, output)) is not None:
            yield TableState(newest, span[1], most)
            newest, most = "", first_in(step, span)
            if step.sequence <= since:
                return


def _known(look: IcebergLook) -> dict[str, Snapshot]:
    return {} if look.table is None else {str(one.snapshot_id): one for one in look.table.metadata.snapshots}


def _tagged_now(look: IcebergLook) -> int | None:
    ref: Any = None if look.table is None else look.table.metadata.refs.get(TAG)
    return None if ref is None else int(ref.snapshot_id)
