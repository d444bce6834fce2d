"""Lines that files have lost: which of them the flow has to speak of, and which it may not.

Writers keep each thing that they do to files and that may lose lines, as a `Harm`. At that instant it is noted how
much of the file every table held, and how much of it the store knew of. So there are three sorts of lines:

    in every table              nothing may be said of them
    known to the store          they arrive, or are told: a row of `gaps`, also where the source failed before
    not known to the store      they may never arrive, and nothing has to be said of them

Bound lines are for `Checks` to judge: every table has those that `gaps` does not have.

Invariant: the durable facts count, those of the instant at which a file was harmed. So nothing depends on a driver's
own memory. A driver may know more, and then tell more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidegauge.errors.command import PassedOver
from tidegauge.errors.sources import EndTakenBack, FileGone, FileRewritten
from tidegauge.testing.simulation.checks import Checks
from tidegauge.testing.simulation.ledger import BindingLedger, Broken
from tidegauge.testing.simulation.writers.folder import FolderUpstream
from tidegauge.testing.simulation.writers.written import Harm

__all__ = ["MENDABLE", "FileLaws"]

MENDABLE: Final = (FileRewritten.code, FileGone.code, EndTakenBack.code)
"""The codes with which a source fails whose files have lost something."""

_DETAIL: Final = """
    SELECT p.detail FROM partitions p JOIN sources s ON s.id = p.source_id WHERE s.name = ? AND p.key = ?"""
_LOSSES: Final = """
    SELECT s.name, l.epoch, l.partition, l.lower, l.upper, l.code
    FROM losses l JOIN sources s ON s.id = l.source_id"""


class FileLaws:
    """The laws of files that lose something, in one world."""

    def __init__(self, checks: Checks, ledger: BindingLedger, upstreams: Mapping[str, Any]) -> None:
        self._checks: Final = checks
        self._ledger: Final = ledger
        self.files: Final = {name: up for name, up in upstreams.items() if isinstance(up, FolderUpstream)}
        self._noted: Final = dict.fromkeys(self.files, 0)
        self._told: Final[set[tuple[Any, ...]]] = set()

    def note(self, source: str, *, in_transaction: bool) -> None:
        """Note the durable facts of the files of a source that were harmed just now.

        in_transaction: whether a driver is in one, so that the store shows facts that are not durable yet.
        """
        files = self.files[source]
        for harm in files.harms[self._noted[source] :]:
            followed = False
            if harm.partition is not None:
                harm.held = self._checks.held(source, harm.partition)
                bound = self._ledger.frontiers[source].get(harm.partition, 0)
                harm.seen = bound
                if not in_transaction:
                    size, inode = self._known(source, harm.partition)
                    harm.seen = max(bound, size)
                    followed = harm.inode == inode > 0
            if harm.how == "hidden" and not followed:
                harm.file.due = harm.seen
        self._noted[source] = len(files.harms)

    def said(self, source: str) -> list[str]:
        """Return all that has happened to files since this was asked last."""
        said = [*self.files[source].said]
        self.files[source].said.clear()
        return said

    def _known(self, source: str, partition: str) -> tuple[int, int]:
        """Return the size and the inode number of a file, as the store has them."""
        [(detail,)] = self._ledger.ask(_DETAIL, source, partition) or [('{"size": 0, "ino": 0}',)]
        known = json.loads(detail)
        return int(known["size"]), int(known["ino"])

    def forget(self) -> None:
        """Hear that the store was put back: it no longer knows what it knew."""
        for files in self.files.values():
            for harm in files.harms:
                harm.seen = 0

    def read_again(self, source: str) -> None:
        """Hear that a table of a source is gone: it holds no line any more, and all are read again for it."""
        for harm in self.files[source].harms if source in self.files else ():
            harm.held = 0

    def at_commit(self) -> None:
        """Look at the losses that have become durable. A law that breaks is kept in the checks, as theirs are."""
        try:
            self._follow()
        except Broken as broken:
            self._checks.broken = self._checks.broken or broken

    def _follow(self) -> None:
        for row in self._ledger.ask(_LOSSES):
            source, _epoch, partition, lower, upper, code = row
            if source in self.files and row not in self._told:
                self._told.add(row)
                skipped = code == PassedOver.code and (source, partition, lower) in self._checks.skipped
                if not skipped and not any(
                    _explains(harm, partition, lower, upper) for harm in self.files[source].harms
                ):
                    raise Broken(
                        "no loss is told that is none", f"{source}: {partition} from {lower} to {upper}, {code}"
                    )

    def failed(self, source: str, code: str) -> None:
        """Look at a source that has failed. Raises `Broken` where nothing was lost."""
        if not any(_may_fail(harm) for harm in self.files[source].harms):
            raise Broken("no source fails without need", f"{source} has failed with {code}")

    def untold(self) -> Iterator[str]:
        """Yield, in words, what the store knew of and is lost, and nothing says so yet."""
        for source, files in self.files.items():
            for harm in files.harms:
                if harm.how not in ("cut", "gone") or not harm.file.gone or harm.partition is None:
                    continue
                reached = [self._ledger.frontiers[source].get(harm.partition, 0)]
                reached += [row[4] for row in self._told if (row[0], row[2]) == (source, harm.partition)]
                if max(reached) < harm.seen:
                    yield f"{source}: {harm.partition} was seen to {harm.seen}, and is told to {max(reached)}"

    def at_the_end(self) -> None:
        """Look at what the store knew of and is lost. Raises `Broken` where nothing says so."""
        for said in self.untold():
            raise Broken("what was seen and is lost is told", said)


def _explains(harm: Harm, partition: str, lower: int, upper: int) -> bool:
    """Whether a loss is of what somebody did."""
    return harm.partition in (None, partition) and harm.held <= lower and harm.held < upper <= harm.size


def _may_fail(harm: Harm) -> bool:
    """Whether a source may fail of what somebody did.

    A log that was cut off may have grown again: nothing tells then whether what it was is somewhere. Nothing tells
    either what a file was that is saved anew before anything of it is bound.
    """
    return harm.how in ("cut", "saved") or (harm.how in ("gone", "torn") and harm.held < harm.size)
