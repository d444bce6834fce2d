"""What a table of Iceberg says of itself: whose it is, how far it has come, and what others have done since.

A commit of the output sets properties of the table, and says the same in the summary of the snapshot that it makes:

    tidegauge.flow, .output      whose rows these are
    tidegauge.incarnation        with which store
    tidegauge.upper              the first epoch that the table does not hold
    tidegauge.digest             of the history up to there
    tidegauge.write              the attempt
    tidegauge.snapshot           the snapshot of the commit, and
    tidegauge.sequence           its number, which grows from snapshot to snapshot
    tidegauge.edition, .replaced the edition of the rows, and the number of the snapshot that brought it
    tidegauge.changed            the last epoch of the last commit that took rows out, or changed some by their keys
    tidegauge.changes            of a commit alone: the first and the last epoch of its changes by key
    tidegauge.key                the key, where the table has one row for each
    tidegauge.first              of a commit alone: the first of its epochs that has rows, its upper if none has
    tidegauge.tagged             of the table alone: the snapshot to which the tag `published` was moved last

Properties outlive what others do: after a rollback they speak of rows that are gone, after an append they are silent
of some. So they are believed only of a table whose current snapshot comes from ours, with nothing between the two
but commits that leave the rows alone, or take some away: rewritten files (`replace`), deleted rows, and commits of
nothing.

Invariants. The answer of `opened` depends on the snapshots alone. A snapshot of ours closes all before it, because a
commit is only made where nothing is open. Where snapshots have expired, up to ours or beyond it, nobody knows what
they did; one that is older than ours shows a rollback even then.

>>> ours = SnapshotStep(7, 3, "append", {})
>>> mine = IcebergStanding({"tidegauge.snapshot": "7", "tidegauge.sequence": "3"})
>>> packed = SnapshotStep(8, 4, "replace", {"added-records": "5"})
>>> theirs = SnapshotStep(9, 5, "append", {"added-records": "2"})
>>> opened(mine, [ours]), opened(mine, [packed, ours]), opened(mine, [theirs, packed, ours])
('', '', 'append of 2 rows in snapshot 9')
>>> opened(mine, [SnapshotStep(5, 2, "append", {})])
'it was set back to snapshot 5, which is older'
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidegauge.sinks.protocol import OutputId

__all__ = [
    "NOTHING",
    "PREFIX",
    "IcebergStanding",
    "SnapshotStep",
    "changes_in",
    "first_in",
    "key_text",
    "lineage",
    "opened",
    "span_in",
    "takes_out",
]

PREFIX: Final = "tidegauge."


@dataclass(frozen=True, slots=True)
class SnapshotStep:
    """A snapshot: its id, its number in order, and what it says of itself."""

    snapshot: int
    sequence: int
    operation: str
    summary: Mapping[str, str] = field(default_factory=dict)

    @property
    def added(self) -> int:
        """How many rows it put in."""
        return int(self.summary.get("added-records", "0"))


@dataclass(frozen=True, slots=True)
class IcebergStanding:
    """A table as one look found it. properties: of the commit that was the output's last."""

    properties: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[SnapshotStep] = ()

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold."""
        return int(self._said("upper") or 0)

    @property
    def digest(self) -> str | None:
        """The digest of the history up to there."""
        return self._said("digest") or None

    @property
    def write(self) -> str:
        """The attempt that was the last commit."""
        return self._said("write")

    @property
    def edition(self) -> str:
        """The edition of the rows, "" for the first one."""
        return self._said("edition")

    @property
    def replaced(self) -> int:
        """The number of the snapshot that brought the edition."""
        return int(self._said("replaced") or 0)

    @property
    def changed(self) -> int:
        """The last epoch of the last commit that took rows out, -1 if none did."""
        return int(self._said("changed") or -1)

    @property
    def key(self) -> str:
        """The key as `key_text` has it, "" where the table has all rows."""
        return self._said("key")

    @property
    def snapshot(self) -> str:
        """The snapshot of the last commit."""
        return self._said("snapshot")

    @property
    def sequence(self) -> int:
        """The number of that snapshot."""
        return int(self._said("sequence") or 0)

    @property
    def tagged(self) -> str:
        """The snapshot that was tagged last, "" before the first one."""
        return self._said("tagged")

    @property
    def is_claimed(self) -> bool:
        """Whether an output has committed to the table."""
        return bool(self._said("output"))

    @property
    def owner(self) -> tuple[str, str]:
        """The flow and the output."""
        return self._said("flow"), self._said("output")

    @property
    def incarnation(self) -> str:
        """The store's."""
        return self._said("incarnation")

    def is_of(self, output: OutputId) -> bool:
        """Whether it is of an output, in whatever life."""
        return self.owner == (output.flow, output.output)

    @staticmethod
    def told(output: OutputId, **said: str) -> dict[str, str]:
        """Return what a commit of an output says."""
        owner = {"flow": output.flow, "output": output.output, "incarnation": output.incarnation}
        return {f"{PREFIX}{name}": value for name, value in {**owner, **said}.items()}

    def _said(self, name: str) -> str:
        return self.properties.get(f"{PREFIX}{name}", "")


NOTHING: Final = IcebergStanding()


def lineage(metadata: Any) -> Iterator[SnapshotStep]:
    """Yield the snapshots from a table's current one back, as far as they have not expired."""
    known = {one.snapshot_id: one for one in metadata.snapshots}
    at = known.get(metadata.current_snapshot_id)
    while at is not None:
        summary = at.summary
        operation = "" if summary is None else str(summary.operation.value)
        told = {} if summary is None else dict(summary.additional_properties)
        yield SnapshotStep(at.snapshot_id, at.sequence_number or 0, operation, told)
        at = None if at.parent_snapshot_id is None else known.get(at.parent_snapshot_id)


def opened(standing: IcebergStanding, steps: Sequence[SnapshotStep]) -> str:
    """Return in words what others did since the last commit of the output, "" if it changed no rows but deleted some.

    steps: from the current snapshot back, to that of the commit, or all that are known.
    """
    if not steps:
        return "it has no current snapshot any more"
    strange: list[str] = []
    for step in steps:
        if str(step.snapshot) == standing.snapshot:
            break
        if step.sequence <= standing.sequence:
            strange.append(f"it was set back to snapshot {step.snapshot}, which is older")
            break
        if step.added and step.operation != "replace":
            strange.append(f"{step.operation or 'a change'} of {step.added} rows in snapshot {step.snapshot}")
    return ", and ".join(reversed(strange))


def span_in(step: SnapshotStep, output: OutputId) -> tuple[int, int] | None:
    """Return the epochs `[lower, upper)` of a commit of the output, None for another's and for one of no epochs."""
    said = {name: step.summary.get(f"{PREFIX}{name}", "") for name in ("flow", "output", "incarnation")}
    if (said["flow"], said["output"], said["incarnation"]) != (output.flow, output.output, output.incarnation):
        return None
    lower, upper = (int(step.summary.get(f"{PREFIX}{name}", "0")) for name in ("lower", "upper"))
    return (lower, upper) if lower < upper else None


def first_in(step: SnapshotStep, span: tuple[int, int]) -> int:
    """Return the first epoch of a commit of the output that has rows, or may have; the upper if none has."""
    return int(step.summary.get(f"{PREFIX}first") or span[0])


def changes_in(step: SnapshotStep) -> tuple[int, int] | None:
    """Return the first and the last epoch of the changes by key that a commit brought, None for one without any."""
    first, _, last = step.summary.get(f"{PREFIX}changes", "").partition("-")
    return (int(first), int(last)) if last else None


def key_text(key: Sequence[str]) -> str:
    """Return a key as a property, "" for none.

    >>> key_text(["shop", "user"]), key_text([])
    ('["shop", "user"]', '')
    """
    return json.dumps(list(key)) if key else ""


def takes_out(step: SnapshotStep) -> bool:
    """Whether a commit of the output took rows out that were there before."""
    return bool(step.summary.get(f"{PREFIX}changed"))
