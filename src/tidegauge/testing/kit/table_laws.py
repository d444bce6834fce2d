"""The laws of what a table tells and keeps: its files, its history, and files that are taken out.

Invariant: a table may be poor (one file of all rows, no versions, no links), but what it tells is true.
"""

from __future__ import annotations

from typing import Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.history import HistoriesDiffer
from tidegauge.errors.sinks import NothingTakenOut
from tidegauge.remap.history import agree
from tidegauge.sinks.protocol import StagedFile, Volume
from tidegauge.testing.kit.place import SinkOnTrial, digests, history, job, rows
from tidegauge.testing.kit.sink_bench import ROWS
from tidegauge.testing.kit.trial import Law, NotTried, expect, raises

__all__ = ["TABLE_LAWS"]


def a_table_tells_its_files_by_epoch(place: SinkOnTrial) -> None:
    """`files` come in commit order with the rows and epochs committed; `as_of` an epoch they have all rows up to it.

    Keep for each file its rows and the span of its epochs. A sink that keeps less tells one file of all rows.
    """
    table = place.open()
    for lower, upper in ((0, 2), (2, 3), (3, 6)):
        place.commit(table, lower, upper)
    for opened in (table, place.open()):
        files = list(opened.files())
        count = sum(file.rows for file in files)
        expect(count == 6, f"6 rows were committed, and its files have {count}")
        spans = [(file.first_epoch, file.last_epoch) for file in files]
        expect(spans == sorted(spans), f"its files are not in commit order: they have the epochs {spans}")
        inside = all(0 <= first <= last < 6 for first, last in spans)
        expect(inside, f"epochs 0 to 5 were committed, and its files have the epochs {spans}")
        volume = opened.volume()
        expect(volume == Volume.of(files), f"its volume is {volume}, and that of its files {Volume.of(files)}")
        for epoch in range(6):
            held = list(opened.files(as_of=epoch))
            lost = [file.path for file in files if file.first_epoch <= epoch and file not in held]
            expect(not lost, f"files(as_of={epoch}) lack {lost}, which has rows of that epoch or before")
        known = [opened.version_of(epoch) for epoch in (0, 5, 6)]
        expect(known[2] is None, f"it does not hold epoch 6, and says that {known[2]!r} brought it")


def a_table_keeps_the_history_it_was_told(place: SinkOnTrial) -> None:
    """A commit keeps the digest of the flow's history, and one that comes after another history is refused.

    Store `history.digest` with the upper, and call `sinks.commits.expect` before the commit.
    """
    table, wanted = place.open(), digests(3)
    place.commit(table, 0, 2)
    for opened in (table, place.open()):
        kept = opened.digest
        right = kept is not None and agree(kept, wanted[2])
        expect(right, f"the digest is {kept!r} after a commit with the history of epochs 0 and 1, {wanted[2]!r}")
    other = history(2, 3, before="f" * 32)
    staged = place.stage([2])
    told = "a commit of [2, 3), after another history of epochs 0 and 1,"
    raises(HistoriesDiffer, told, lambda: table.commit(2, 3, ROWS, staged, write=job(), history=other))
    place.shows(rows([0, 1]), 2, "a commit after another history was refused")
    place.commit(table, 2, 3)
    brought = {link.digest for link in history(0, 3).links}
    strange = [link for link in table.links() if link.digest not in brought]
    expect(not strange, f"it tells links that no commit brought: {strange}")


def files_are_taken_out_in_whole_or_not_at_all(place: SinkOnTrial) -> None:
    """A commit that takes files out puts the others in by the same step; a sink that can take none out says so.

    Raise `NothingTakenOut` before anything is written, or make both changes in one transaction.
    """
    table = place.open()
    place.commit(table, 0, 2)
    old, staged = list(table.files()), place.stage([0, 1, 2], "again")
    try:
        table.commit(2, 3, ROWS, staged, remove=old, write=job())
    except NothingTakenOut:
        place.shows(rows([0, 1]), 2, "a commit that was to take files out was refused")
        raise NotTried("it takes nothing out (`NothingTakenOut`)") from None
    place.shows(rows([0, 1, 2], "again"), 3, "a commit replaced the files of epochs 0 and 1")
    old, one = list(table.files()), place.stage([0, 1, 2], "once more")
    for _ in range(2):  # its answer may be lost
        table.commit(3, 3, ROWS, one, remove=old, write=job())
        place.shows(rows([0, 1, 2], "once more"), 3, "a commit that moves no upper replaced all files")
    unknown = [StagedFile("unknown", 3, 1, 0, 2)]
    staged = place.stage([0, 1, 2], "never")
    told = "a commit that takes out a file which is not there"
    raises(TidegaugeError, told, lambda: table.commit(3, 3, ROWS, staged, remove=unknown, write=job()))
    place.shows(rows([0, 1, 2], "once more"), 3, "a commit that was to take out an unknown file was refused")


TABLE_LAWS: Final[tuple[Law[SinkOnTrial], ...]] = (
    a_table_tells_its_files_by_epoch,
    a_table_keeps_the_history_it_was_told,
    files_are_taken_out_in_whole_or_not_at_all,
)
"""What a table keeps."""
