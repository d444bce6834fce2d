"""Whether an output may write to a Delta table: whose it is, how far it has come, and what others did to it since.

The first two are in the application transactions that an output's entries carry:

    txn "flow:output"                  the last epoch that the table holds
    txn "flow:output@incarnation"      the same, of this store alone
    txn "flow:output#digest"           the digest of the history up to there (`delta.history`)
    txn "flow:output#changed"          the last epoch of the last commit that took out rows of earlier ones
    txn "flow:output#edition"          the first 60 bits of the edition of its rows, once they were replaced
    txn "flow:output#replaced"         the version that replaced them
    txn "flow:output#key"              the first 60 bits of the digest of its key, where it has one row for each key

A transaction outlives what others do: after a RESTORE it speaks of rows that are gone, after an append it is silent
of some. So what others did since our last commit is looked at, entry by entry (`DeltaAccount`). A commit of ours is
only made where that leaves nothing open, and so vouches for all before it. Others may rewrite files without changing
rows (`dataChange` is false: OPTIMIZE, REORG), remove files that nothing names (VACUUM), delete rows, and change
properties. All other rows that come or go leave a mark, until they are taken back: also those that were replaced.

Invariants. The first two transactions are equal in every entry of the output; where they differ, a flow with another
store has written the table. The account depends on the entries alone, in their order; an entry of ours empties it.
Rows that are written to a table have its columns, and it uses nothing that this cannot honour.

>>> restored = [{"commitInfo": {"operation": "RESTORE"}}, {"remove": {"path": "a", "dataChange": True}}]
>>> whose = Mine(transaction="f:o@1", files="part-1")
>>> gone = then(CLEAR, restored, 8, whose)
>>> gone.summary
'1 of its files was taken away (RESTORE, version 8)'
>>> then(gone, [{"add": {"path": "a", "dataChange": True}}], 9, whose).summary
''
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import pyarrow as pa
from deltalake import Schema

from tidegauge.errors.layout import PartitionedOtherwise
from tidegauge.errors.sinks import ForeignTable, KeptOtherwise, TableOfAnotherIncarnation, UnsupportedTable
from tidegauge.evolution import Evolution
from tidegauge.sinks.columns import EPOCH, stored
from tidegauge.sinks.delta.columns import NARROW
from tidegauge.sinks.delta.head import Action, DeltaHead, actions_of, entry, unsupported
from tidegauge.sinks.delta.history import digest_id, number, text_of
from tidegauge.sinks.evolving import grown
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.location import TablePath
from tidegauge.sinks.protocol import OutputId, job_mark
from tidegauge.sinks.vectors import identity

__all__ = [
    "CLEAR",
    "DeltaAccount",
    "Mine",
    "changed_id",
    "check_adoptable",
    "check_columns",
    "check_key",
    "check_partition",
    "check_taking",
    "columns_of",
    "digest_in",
    "edition_id",
    "edition_in",
    "key_id",
    "key_in",
    "key_mark",
    "life_id",
    "marks",
    "open_changes",
    "own_upper",
    "paths",
    "replaced_by",
    "replaced_id",
    "since_ours",
    "then",
]

_DELETING: Final = frozenset({"DELETE", "TRUNCATE"})


@dataclass(frozen=True, slots=True)
class Mine:
    """What tells an output's own: the application id that only its entries carry, and how its files' names begin."""

    transaction: str
    files: str

    @staticmethod
    def of(output: OutputId) -> Mine:
        """What tells the own of an output with this store."""
        return Mine(life_id(output), f"part-{job_mark(output.incarnation)}")

    def named(self, path: str) -> bool:
        """Whether a file has a name that the output's have."""
        return path.rpartition("/")[2].startswith(self.files)

    def made(self, actions: Iterable[Action]) -> bool:
        """Whether an entry is one of the output."""
        return any(action.get("txn", {}).get("appId") == self.transaction for action in actions)


@dataclass(frozen=True, slots=True)
class DeltaAccount:
    """The open changes: files of the output that were taken away, and files with rows that it did not write.

    Each with the operation, and its version. A file with other rows deleted is another one. returned: files of the
    output that others put in. They may have taken these out before, as they may; `open_changes` says which of them
    they may not.
    """

    missing: Mapping[str, str] = field(default_factory=dict)
    foreign: Mapping[str, str] = field(default_factory=dict)
    returned: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def summary(self) -> str:
        """The open changes in words, "" if there are none."""
        said = [
            _said(self.missing, "of its files was taken away", "of its files were taken away"),
            _said(self.foreign, "file holds rows of another writer", "files hold rows of another writer"),
        ]
        return ", and ".join(part for part in said if part)


CLEAR: Final = DeltaAccount()


def then(account: DeltaAccount, actions: Sequence[Action], version: int, mine: Mine) -> DeltaAccount:
    """Return the account after the entry of a version."""
    if mine.made(actions):
        return CLEAR
    operation = next((str(a["commitInfo"].get("operation")) for a in actions if "commitInfo" in a), "a change")
    added = [action["add"] for action in actions if "add" in action]
    removed = [action["remove"] for action in actions if "remove" in action]
    missing, foreign = dict(account.missing), dict(account.foreign)
    what = f"{operation}, version {version}"
    allowed = operation in _DELETING or not any(file.get("dataChange", True) for file in (*added, *removed))
    if allowed:
        mixed = {_name(file): said for file in removed if (said := foreign.pop(_name(file), None))}
        if mixed:  # rows of the output are in one file with those of others now
            said = next(iter(mixed.values()))
            foreign |= {_name(file): said for file in added}
            missing |= {_name(file): said for file in removed if added and _name(file) not in mixed}
        return DeltaAccount(missing, foreign, account.returned)
    returned = dict(account.returned)
    for file in removed:
        if returned.pop(_name(file), None) is None and foreign.pop(_name(file), None) is None:
            missing[_name(file)] = what
    for file in added:
        if missing.pop(_name(file), None) is None:
            (returned if mine.named(file["path"]) else foreign)[_name(file)] = what
    return DeltaAccount(missing, foreign, returned)


def _name(file: Action) -> str:
    """Return what tells a file from others, and from itself with other rows deleted.

    >>> vector = {"storageType": "i", "pathOrInlineDv": "x"}
    >>> _name({"path": "part-0"}), _name({"path": "part-0", "deletionVector": vector})
    ('part-0', 'part-0\\x00ix')
    """
    vector = identity(file.get("deletionVector"))
    return f"{file['path']}\0{vector}" if vector else str(file["path"])


def paths(files: Mapping[str, str]) -> dict[str, str]:
    """Return the open changes of an account by the paths of the files."""
    return {name.partition("\0")[0]: what for name, what in files.items()}


def since_ours(log: TablePath, newest: int, mine: Mine) -> DeltaAccount:
    """Return the account at a version: of the entries after our last one, or of all that the log still has.

    Raises `OSError`, and `ValueError` for an entry that cannot be read.
    """
    later: list[tuple[int, list[Action]]] = []
    for version in range(newest, -1, -1):
        try:
            actions = actions_of(entry(log, version))
        except FileNotFoundError:
            break
        if mine.made(actions):
            break
        later.append((version, actions))
    account = CLEAR
    for version, actions in reversed(later):
        account = then(account, actions, version, mine)
    return account


def open_changes(log: TablePath, head: DeltaHead, output: OutputId, account: DeltaAccount) -> str:
    """Return in words what others did that is open at a head, "" if nothing is."""
    old = replaced_by(log, head, output) if account.returned else frozenset()
    back = {path: what for path, what in paths(account.returned).items() if path in old}
    said = _said(
        back, "file of rows that were replaced was put back", "files of rows that were replaced were put back"
    )
    return ", and ".join(part for part in (account.summary, said) if part)


def replaced_by(log: TablePath, head: DeltaHead, output: OutputId) -> frozenset[str]:
    """Return the files whose rows were replaced by the present edition. None where the log is without that entry.

    Then nobody can restore the version before it any more.
    """
    version = head.transactions.get(replaced_id(output))
    try:
        actions = [] if version is None else actions_of(entry(log, version))
    except FileNotFoundError:
        actions = []
    return frozenset(action["remove"]["path"] for action in actions if "remove" in action)


def _said(files: Mapping[str, str], one: str, many: str) -> str:
    if not files:
        return ""
    causes = ", ".join(dict.fromkeys(files.values()))
    return f"{len(files)} {one if len(files) == 1 else many} ({causes})"


@lru_cache(maxsize=64)  # every commit asks
def upper_id(output: OutputId) -> str:
    """Return the application id that tells the last epoch that the table holds."""
    return str(output)


@lru_cache(maxsize=64)
def life_id(output: OutputId) -> str:
    """Return the application id that only entries of this incarnation carry.

    >>> life_id(OutputId("shop", "orders", "1f"))
    'shop:orders@1f'
    """
    return f"{output}@{output.incarnation}"


def changed_id(output: OutputId) -> str:
    """Return the application id that tells the epoch before which the table may have held rows that are gone."""
    return f"{output}#changed"


def edition_id(output: OutputId) -> str:
    """Return the application id that tells the edition of the table's rows."""
    return f"{output}#edition"


def replaced_id(output: OutputId) -> str:
    """Return the application id that tells the version at which they were replaced by those of this edition."""
    return f"{output}#replaced"


def edition_in(head: DeltaHead | None, output: OutputId) -> str:
    """Return the first digits of the edition of a table's rows, "" for the first one."""
    kept = None if head is None else head.transactions.get(edition_id(output))
    return "" if kept is None else text_of(kept)


def key_id(output: OutputId) -> str:
    """Return the application id that tells the key, where the table has one row for each."""
    return f"{output}#key"


def key_mark(key: Sequence[str]) -> int:
    """Return what tells a key from others, as much as an integer of Delta holds; -1 for none: it has all rows.

    >>> key_mark(["user"]) == key_mark(["user", "shop"]), key_mark([])
    (False, -1)
    """
    return number(hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()) if key else -1


def key_in(head: DeltaHead | None, output: OutputId) -> int:
    """Return the mark of the key, where a table has one row for each; -1 where it has all rows."""
    return -1 if head is None else head.transactions.get(key_id(output), -1)


def marks(
    output: OutputId, upper: int, said: Mapping[str, str], *, changed: bool = False, key: int = -1
) -> dict[str, int]:
    """Return the transactions of an entry after which the table holds the epochs before `upper`.

    said: what the entry says of the history (`delta.history.carried`). changed: whether it takes out rows. key: see
    `key_mark`.
    """
    found = {upper_id(output): upper - 1, life_id(output): upper - 1}
    if said:
        found[digest_id(output)] = number(said["digest"])
    if key >= 0:
        found[key_id(output)] = key
    return {**found, changed_id(output): upper - 1} if changed else found


def own_upper(head: DeltaHead, table: str, output: OutputId) -> int | None:
    """Return the first epoch that a table does not hold; None where it has no transaction of the output.

    Raises `TableOfAnotherIncarnation`.
    """
    last = head.transactions.get(upper_id(output))
    if last is None:
        return None
    if head.transactions.get(life_id(output)) != last:
        raise TableOfAnotherIncarnation(table=table, output=str(output), incarnation=output.incarnation)
    return last + 1


def digest_in(head: DeltaHead | None, output: OutputId) -> str | None:
    """Return the first digits of the digest of the flow's history up to the upper, None where the log has none."""
    kept = None if head is None else head.transactions.get(digest_id(output))
    return None if kept is None else text_of(kept)


@lru_cache(maxsize=64)
def columns_of(schema: str) -> pa.Schema:
    """Return columns that are given in Delta's JSON."""
    return stored(pa.schema(Schema.from_json(schema).to_arrow()))


def check_partition(folder: str, output: OutputId, head: DeltaHead, layout: FileLayout) -> None:
    """Raise `PartitionedOtherwise` unless a table is parted as the layout has it."""
    if head.partitioned != list(layout.names):
        held = ", ".join(head.partitioned) or "nothing"
        raise PartitionedOtherwise(table=folder, output=str(output), held=held, wanted=layout.said)


def check_key(folder: str, output: OutputId, head: DeltaHead, key: Sequence[str]) -> None:
    """Raise `KeptOtherwise` unless a table has one row for each value of this key, or all rows where that is none."""
    if (kept := key_in(head, output)) != key_mark(key):
        held = "all rows" if kept < 0 else "one row for each value of another key"
        wanted = f"one row for each value of {', '.join(key)}" if key else "all rows"
        raise KeptOtherwise(table=folder, output=str(output), held=held, wanted=wanted)


def check_adoptable(
    folder: str, output: OutputId, head: DeltaHead, layout: FileLayout, holds_data: Callable[[], bool]
) -> None:
    """Raise `ForeignTable` for a table without a transaction of the output; not for an empty one of its columns.

    holds_data: whether it holds any.
    """
    names = columns_of(head.schema).names
    if EPOCH not in names:
        detail = f"it has no column {EPOCH}; its columns are {', '.join(names)}"
    elif head.partitioned != list(layout.names):
        detail = f"it is partitioned by {', '.join(head.partitioned) or 'nothing'}"
    elif holds_data():
        detail = "it holds data, and its log has no transaction of this output"
    else:
        return
    raise ForeignTable(table=folder, output=str(output), detail=detail)


def check_taking(folder: str, head: DeltaHead) -> None:
    """Raise `UnsupportedTable` where rows of a table may not be taken out, or not by files alone."""
    for name in ("delta.appendOnly", "delta.enableChangeDataFeed"):
        if head.configuration.get(name, "false").lower() == "true":
            raise UnsupportedTable(table=folder, feature=f"the property {name}")


def check_columns(
    folder: str,
    output: OutputId,
    head: DeltaHead,
    columns: pa.Schema,
    layout: FileLayout,
    how: Evolution = "strict",
) -> pa.Schema:
    """Return the columns of a table once it has rows with these. Raises `UnsupportedTable`, and as `grown`.

    Raise `PartitionedOtherwise` for a table that is parted by others than the layout has.
    """
    feature = unsupported(head)
    if feature is not None:
        raise UnsupportedTable(table=folder, feature=feature)
    check_partition(folder, output, head, layout)
    return grown(columns_of(head.schema), columns, how, place=folder, output=str(output), narrow=NARROW, nests=True)
