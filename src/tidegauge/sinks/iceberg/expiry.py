"""Snapshots of a table that are old enough to be forgotten, and the files that are only theirs.

It goes by the rules of Iceberg's own `expire_snapshots`. A branch says how long its snapshots stay, and how many stay
at least. If it does not, the one who maintains the table does, or the table itself:
`history.expire.max-snapshot-age-ms`, 5 days, and `history.expire.min-snapshots-to-keep`, 1. Tags and heads of
branches stay.

Invariants. The snapshot of the output's last commit stays, and all after it: the table is believed by it. A file that
a snapshot names which stays is not among those that go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tidegauge.sinks.iceberg.files import relative

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table as PyIcebergTable
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["expired", "files_in"]

_AGE: Final = "history.expire.max-snapshot-age-ms"
_LEAST: Final = "history.expire.min-snapshots-to-keep"
_DAYS: Final = timedelta(days=5)


def expired(metadata: Any, retention: timedelta | None, *, sequence: int, now: float) -> list[int]:
    """Return the snapshots of a table that nobody needs any more.

    retention: None for what the table says. sequence: of the snapshot that is the output's last. now: in seconds.
    """
    told: Mapping[str, str] = metadata.properties
    default = int(told.get(_AGE, _DAYS.total_seconds() * 1000))
    age = default if retention is None else int(retention.total_seconds() * 1000)
    least = max(1, int(told.get(_LEAST, 1)))
    known = {one.snapshot_id: one for one in metadata.snapshots}
    kept = {one.snapshot_id for one in known.values() if (one.sequence_number or 0) >= sequence}
    reached = set[int]()
    for ref in metadata.refs.values():
        kept.add(ref.snapshot_id)
        if str(ref.snapshot_ref_type) != "branch":
            continue
        oldest = now * 1000 - (ref.max_snapshot_age_ms or age)
        count, at = 0, known.get(ref.snapshot_id)
        while at is not None:
            reached.add(at.snapshot_id)
            if count < (ref.min_snapshots_to_keep or least) or at.timestamp_ms > oldest:
                kept.add(at.snapshot_id)
            count += 1
            at = None if at.parent_snapshot_id is None else known.get(at.parent_snapshot_id)
    aside = {number for number, one in known.items() if number not in reached and one.timestamp_ms > now * 1000 - age}
    return sorted(known.keys() - kept - aside)


def files_in(table: PyIcebergTable, snapshots: Iterable[Snapshot], folder: str) -> dict[str, int]:
    """Return all files that some snapshots name, of data and of metadata, with their sizes where these are told."""
    found: dict[str, int] = {}
    manifests: dict[str, ManifestFile] = {}
    numbers = set[int]()
    for snapshot in snapshots:
        numbers.add(snapshot.snapshot_id)
        found[relative(snapshot.manifest_list, folder)] = 0
        manifests |= {one.manifest_path: one for one in snapshot.manifests(table.io)}
    for manifest in manifests.values():
        found[relative(manifest.manifest_path, folder)] = manifest.manifest_length
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            found[relative(entry.data_file.file_path, folder)] = entry.data_file.file_size_in_bytes
    return found | _statistics(table, numbers, folder)


def _statistics(table: PyIcebergTable, numbers: Collection[int], folder: str) -> dict[str, int]:
    told = [one for one in table.metadata.statistics if one.snapshot_id in numbers]
    return {relative(one.statistics_path, folder): one.file_size_in_bytes for one in told}
