"""Whether the files of a Delta table are those that its commits have brought: what others have done since the last.

A table's application transaction says how far its output is, and outlives what others do: after a RESTORE it speaks
of rows that are gone, after an append it is silent of some. So what others did since our last commit is looked at,
entry by entry. A commit of ours is only made where that leaves nothing open, and so vouches for all before it.

Others may rewrite files without changing rows (`dataChange` is false: OPTIMIZE, REORG), remove files that nothing
names (VACUUM), delete rows, and change properties. All other rows that come or go leave a mark, until they are taken
back.

Invariant: the account depends on the entries alone, in their order; an entry of ours empties it.

>>> restored = [{"commitInfo": {"operation": "RESTORE"}}, {"remove": {"path": "a", "dataChange": True}}]
>>> whose = Mine(transaction="f:o@1", files="part-1")
>>> gone = then(CLEAR, restored, 8, whose)
>>> gone.summary
'1 of its files was taken away (RESTORE, version 8)'
>>> then(gone, [{"add": {"path": "a", "dataChange": True}}], 9, whose).summary
''
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidegauge.sinks.delta.head import Action, actions_of, entry
from tidegauge.sinks.delta.owner import life_id
from tidegauge.sinks.protocol import OutputId, job_mark

__all__ = ["CLEAR", "DeltaAccount", "Mine", "since_ours", "then"]

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

    def made(self, actions: Iterable[Action]) -> bool:
        """Whether an entry is one of the output."""
        return any(action.get("txn", {}).get("appId") == self.transaction for action in actions)


@dataclass(frozen=True, slots=True)
class DeltaAccount:
    """The open changes: files of the output that were taken away, and files with rows that it did not write.

    Each with the operation, and its version.
    """

    missing: Mapping[str, str] = field(default_factory=dict)
    foreign: Mapping[str, str] = field(default_factory=dict)

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
        mixed = {file["path"]: said for file in removed if (said := foreign.pop(file["path"], None))}
        if mixed:  # rows of the output are in one file with those of others now
            said = next(iter(mixed.values()))
            foreign |= {file["path"]: said for file in added}
            missing |= {file["path"]: said for file in removed if added and file["path"] not in mixed}
        return DeltaAccount(missing, foreign)
    for file in removed:
        if foreign.pop(file["path"], None) is None:
            missing[file["path"]] = what
    for file in added:
        back = file.get("deletionVector") is None and missing.pop(file["path"], None) is not None
        if not back and not file["path"].startswith(mine.files):
            foreign[file["path"]] = what
    return DeltaAccount(missing, foreign)


def since_ours(log: Path, newest: int, mine: Mine) -> DeltaAccount:
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


def _said(files: Mapping[str, str], one: str, many: str) -> str:
    if not files:
        return ""
    causes = ", ".join(dict.fromkeys(files.values()))
    return f"{len(files)} {one if len(files) == 1 else many} ({causes})"
