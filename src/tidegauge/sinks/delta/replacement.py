"""A Delta table that is made again under its name: all of its rows change places with others in one entry of the log.

Until that entry every reader of the table sees the old rows, and the output writes as to one that is not there yet.
The entry takes out every file that the log names by then, rewritten or not, adds the new ones, brings
the table their columns, and carries the edition of the new rows. So it says itself whether it was made.

Invariant (compare-and-replace): the entry is the very next one after a version at which the output's upper and
edition are those that were seen when the table was opened, and no change of others is open; or it is not made. A
driver that has slept finds another upper, or another edition, and changes nothing. Who takes a replacement back gives
the old rows another edition (`withdraw`), so that no driver which began with it can make the entry any more.

>>> import tempfile
>>> mine = OutputId("shop", "users", "0" * 32)
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     table = DeltaLog(folder, mine)
...     table.commit(0, 2, schema, [], write="1" * 32)
...     anew = table.replacement("e" * 32)
...     before = anew.upper, table.edition
...     anew.commit(0, 3, schema, [], write="2" * 32)
...     now = DeltaLog(folder, mine)
...     before, anew.upper, (now.upper, now.edition)
((0, ''), 3, (3, 'eeeeeeeeeeeeeee'))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from deltalake import Schema

from tidegauge.errors.objects import ObjectStoreAway
from tidegauge.errors.sinks import (
    ForeignTable,
    TableBusy,
    TableChangedByOthers,
    TableUpperMismatch,
    UnsupportedTable,
)
from tidegauge.remap.history import History, agree
from tidegauge.sinks.columns import differences, rows_schema
from tidegauge.sinks.commits import check_span
from tidegauge.sinks.delta.columns import described_anew
from tidegauge.sinks.delta.entry import about_span, changing, described, made, was_written_by
from tidegauge.sinks.delta.files import named_files
from tidegauge.sinks.delta.head import DeltaHead, entry, log_read, newest, unsupported
from tidegauge.sinks.delta.history import carried, number
from tidegauge.sinks.delta.log import DeltaLog
from tidegauge.sinks.delta.owner import (
    Mine,
    changed_id,
    check_taking,
    columns_of,
    edition_id,
    edition_in,
    key_id,
    key_mark,
    marks,
    open_changes,
    own_upper,
    replaced_id,
    since_ours,
)
from tidegauge.sinks.delta.view import holding
from tidegauge.sinks.layout.counting import TablePartitions
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.location import at, synchronise, writing
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume

__all__ = ["DeltaSwap", "withdraw"]

_ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True)
class DeltaSwap:
    """Puts the rows of an edition in the place of those that a table has.

    layout: how the new ones lie in files. seen: the upper and the edition of the others. key: the columns of whose
    values the new ones are one for each; none for all. opened: opens the table once the new rows are there.
    """

    folder: str
    output: OutputId
    layout: FileLayout
    seen: tuple[int, str]
    edition: str
    key: tuple[str, ...]
    opened: Callable[[], DeltaLog]

    def __call__(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        remove: Sequence[StagedFile],
        write: str,
        history: History,
        changes: tuple[int, int] | None = None,
    ) -> DeltaLog:
        """Make the swap; see `Swap`. changes: the first and the last epoch of changes by key, if there are any.

        Also raises `UnsupportedTable`, `TableChangedByOthers`, `StagedFileMissing`.
        """
        self.check(lower)
        check_span(lower, upper, files, remove=remove, partition=self.layout.names)
        TablePartitions(self.layout, self.folder, str(self.output)).check(files, Volume.of(files), set)
        columns = self.layout.columns(rows_schema(schema))
        chain = carried(self.folder, history, lower=lower, upper=upper, write=write)
        for _ in range(_ATTEMPTS):
            if self._attempt(upper, columns, files, chain, write, changes):
                return self.opened()
        raise TableBusy(table=self.folder, attempts=_ATTEMPTS)

    def check(self, lower: int) -> None:
        """Raise `TableUpperMismatch` unless the new rows are to begin here: they are all of the table."""
        if lower:
            raise _mismatch(self.folder, self.output, lower, 0)

    def _attempt(
        self,
        upper: int,
        columns: pa.Schema,
        files: Sequence[StagedFile],
        chain: Mapping[str, str],
        write: str,
        changes: tuple[int, int] | None,
    ) -> bool:
        """Make the entry the next version; False when somebody else has taken that. The entry knows how it went."""
        log = at(self.folder) / "_delta_log"
        with log_read(self.folder):
            head = newest(log)
        actual = _upper_in(head, self.folder, self.output)
        edition = edition_in(head, self.output)
        # What has this edition already holds these very files: one entry must not take them out and put them in.
        if head is None or (actual, edition) != self.seen or (edition and agree(edition, self.edition)):
            raise _mismatch(self.folder, self.output, 0, actual)
        self._check(head, actual)
        with log_read(self.folder):
            gone = named_files(self.folder, head.version)
        adding = described(self.folder, files, self.layout.stored(columns), head.configuration)
        version = head.version + 1
        vouching = {
            **marks(self.output, upper, chain, changed=changes is not None, key=key_mark(self.key)),
            edition_id(self.output): number(self.edition),
            replaced_id(self.output): version,
        }
        for owner in (changed_id(self.output), key_id(self.output)):
            if owner in head.transactions:  # of the edition before: this one has all rows, and nothing was taken out
                vouching.setdefault(owner, -1)
        mine = about_span(self.output, 0, upper, write=write, changes=changes)
        said = {**mine, **chain, **holding(Volume.of(files))}
        now = time.time_ns() // 1_000_000
        same = not differences(columns_of(head.schema), columns) and head.partitioned == list(self.layout.names)
        text = Schema.from_arrow(columns).to_json()
        anew = () if same else described_anew(head, text, partition=self.layout.names)
        text = changing(adding, gone, vouching, said, milliseconds=now, anew=anew)
        try:
            with writing(self.folder):
                return made(log, version, text, write=write)
        except (OSError, ObjectStoreAway):
            if was_written_by(entry(log, version), write):
                synchronise(log)
                return True
            raise

    def _check(self, head: DeltaHead, upper: int) -> None:
        """Raise unless the rows of the table may be taken out, and are its output's."""
        if (feature := unsupported(head)) is not None:
            raise UnsupportedTable(table=self.folder, feature=feature)
        check_taking(self.folder, head)
        log = at(self.folder) / "_delta_log"
        with log_read(self.folder):
            account = since_ours(log, head.version, Mine.of(self.output))
        if detail := open_changes(log, head, self.output, account):
            said = {"table": self.folder, "output": str(self.output), "detail": detail, "upper": upper}
            raise TableChangedByOthers(**said)


def withdraw(folder: str, output: OutputId, *, seen: tuple[int, str], edition: str) -> None:
    """Give the rows of a table another edition, and change nothing else; see `Replaceable.withdraw`.

    seen: the upper and the edition that it must have. edition: 32 hex digits. The entry vouches for nothing: what
    others did before it stays open.
    """
    log = at(folder) / "_delta_log"
    for _ in range(_ATTEMPTS):
        with log_read(folder):
            head = newest(log)
        actual = _upper_in(head, folder, output)
        if head is None or (actual, edition_in(head, output)) != seen:
            raise _mismatch(folder, output, seen[0], actual)
        said = {"flow": output.flow, "output": output.output, "write": edition}
        now = time.time_ns() // 1_000_000
        text = changing((), (), {edition_id(output): number(edition)}, said, milliseconds=now)
        with writing(folder):
            if made(log, head.version + 1, text, write=edition):
                return
    raise TableBusy(table=folder, attempts=_ATTEMPTS)


def _upper_in(head: DeltaHead | None, folder: str, output: OutputId) -> int:
    upper = 0 if head is None else own_upper(head, folder, output)
    if upper is None:
        detail = "its log has no transaction of this output"
        raise ForeignTable(table=folder, output=str(output), detail=detail)
    return upper


def _mismatch(folder: str, output: OutputId, expected: int, actual: int) -> TableUpperMismatch:
    return TableUpperMismatch(table=folder, output=str(output), expected=expected, actual=actual)
