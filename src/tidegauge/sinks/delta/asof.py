"""Which version of a Delta table shows it as of an epoch.

Where rows were only ever added, any version from the epoch's on does, as each row says its epoch. Where commits have
taken rows out, it is the version before the first of them that came after the epoch.

Invariant: the version has every row that the table held when the epoch was its last, and of later epochs none that
took the place of one; or the answer is an error, never a guess.
"""

from __future__ import annotations

from deltalake import DeltaTable

from tidegauge.errors.sinks import EpochReplaced
from tidegauge.sinks.delta.history import span_of
from tidegauge.sinks.delta.owner import changed_id, key_id, life_id, replaced_id
from tidegauge.sinks.location import TablePath
from tidegauge.sinks.protocol import OutputId

__all__ = ["version_as_of"]


def version_as_of(log: TablePath, table: DeltaTable, output: OutputId, epoch: int) -> int:
    """Return the version to read an output as of an epoch; -1 where it held nothing yet. Raises `EpochReplaced`.

    table: the newest version that is known, which it is when no rows were taken out since the epoch.
    """
    changed, replaced, key = (table.transaction_version(owner(output)) for owner in (changed_id, replaced_id, key_id))
    if changed is None or epoch >= changed:
        return table.version()
    version = _before_change(
        log,
        output,
        life_id(output),
        epoch,
        newest=table.version(),
        replaced=-1 if replaced is None else replaced,
        by_key=key is not None and key >= 0,
    )
    if version is None:
        raise EpochReplaced(table=str(log.parent), epoch=epoch)
    return version


def _before_change(
    log: TablePath, output: OutputId, life: str, epoch: int, *, newest: int, replaced: int = -1, by_key: bool = False
) -> int | None:
    """Return the last version that has all rows which the table held as of an epoch, None where none is known to.

    It is the one before the first commit after the epoch that took rows out; -1 where it held none yet. None where
    that commit holds the epoch itself, or the log no longer has its entries back to the epoch's. replaced: the
    version at which all rows were replaced: it and earlier commits took out other rows. Raises `OSError`.

    by_key: whether it has one row for each key. A commit of changes tells their first and their last epoch. Before
    the first the table was as before the commit, from the last one on as with it; and in between nobody can tell.
    """
    found = newest
    for version in range(newest, max(replaced, 0) - 1 if by_key else replaced, -1):
        path = log / f"{version:020d}.json"
        if not path.exists():
            return None
        span = span_of(path, output, life)
        if span is None:
            continue
        if (span.changes[1] if span.changes else span.upper - 1) <= epoch:
            break
        if span.takes_out or span.changes:
            if (span.changes[0] if span.changes else span.lower) <= epoch:
                return None
            found = version - 1 if version > max(replaced, 0) else -1
    return found
