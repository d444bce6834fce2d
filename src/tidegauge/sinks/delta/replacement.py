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
from functools import partial
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
from tidegauge.remap.history import NO_HISTORY, History, Link, agree
from tidegauge.sinks.columns import differences, rows_schema
from tidegauge.sinks.commits import all_staged, check_span
from tidegauge.sinks.delta.columns import described_anew
from tidegauge.sinks.delta.entry import MarkedFile, about_span, changing, described, made, was_written_by
from tidegauge.sinks.delta.files import named_files, remove_unnamed
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
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.location import at, synchronise, writing
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume

__all__ = ["DeltaReplacement", "withdraw"]

_ATTEMPTS: Final = 50


class DeltaReplacement:
    """A `Table` that holds nothing, until its first commit puts its rows in the place of those of `before`."""

    def __init__(
        self,
        folder: str,
        output: OutputId,
        before: DeltaLog,
        edition: str,
        *,
        key: Sequence[str] = (),
        after: Callable[[], DeltaLog] | None = None,
        layout: FileLayout = AS_IT_COMES,
    ) -> None:
        """key, layout: see `DeltaLog`. after: opens the table once the new rows are there."""
        self._key: Final = tuple(key)
        self._layout: Final = layout
        self._open: Final = after or partial(DeltaLog, folder, output, layout=layout)
        self._folder: Final = folder
        self._output: Final = output
        self._log: Final = at(folder) / "_delta_log"
        self._edition: Final = edition
        self._seen: Final = before.upper, before.edition
        self._before: Final = before
        self._after: DeltaLog | None = None

    @property
    def upper(self) -> int:
        """The first epoch that the new rows lack: 0 until they are there."""
        return 0 if self._after is None else self._after.upper

    @property
    def digest(self) -> str | None:
        """The first digits of the digest of the history of the new rows, None until they are there."""
        return None if self._after is None else self._after.digest

    @property
    def version(self) -> int:
        """The newest version seen with the new rows, -1 until they are there."""
        return -1 if self._after is None else self._after.version

    @property
    def marks(self) -> bool:
        """Whether rows of the new files may be marked deleted."""
        return self._after is not None and self._after.marks

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the new rows, None until they are there."""
        return None if self._after is None else self._after.schema

    def commit(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        remove: Sequence[StagedFile] = (),
        write: str,
        history: History = NO_HISTORY,
        changes: tuple[int, int] | None = None,
        marked: Sequence[MarkedFile] = (),
    ) -> None:
        """Put the epochs `[0, upper)` in the place of all that the table holds; from then on append, as `DeltaLog`.

        Also raises `UnsupportedTable`, `TableChangedByOthers`, `StagedFileMissing`.
        """
        if self._after is not None:
            self._after.commit(
                lower,
                upper,
                schema,
                files,
                remove=remove,
                write=write,
                history=history,
                changes=changes,
                marked=marked,
            )
            return
        if lower:
            raise self._mismatch(lower, 0)
        check_span(lower, upper, files, remove=remove, partition=self._layout.names)
        TablePartitions(self._layout, self._folder, str(self._output)).check(files, Volume.of(files), set)
        columns = self._layout.columns(rows_schema(schema))
        chain = carried(self._folder, history, lower=lower, upper=upper, write=write)
        for _ in range(_ATTEMPTS):
            if self._attempt(upper, columns, files, chain, write, changes):
                self._after = self._open()
                return
        raise TableBusy(table=self._folder, attempts=_ATTEMPTS)

    def check(self, lower: int, history: History) -> None:
        """Raise unless the table can be given epochs from `lower` on; before it is there, as `DeltaLog.check`."""
        if self._after is not None:
            self._after.check(lower, history)
        elif lower:
            raise self._mismatch(lower, 0)

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
        with log_read(self._folder):
            head = newest(self._log)
        actual = self._upper_in(head)
        edition = edition_in(head, self._output)
        # What has this edition already holds these very files: one entry must not take them out and put them in.
        if head is None or (actual, edition) != self._seen or (edition and agree(edition, self._edition)):
            raise self._mismatch(0, actual)
        self._check(head, actual)
        with log_read(self._folder):
            gone = named_files(self._folder, head.version)
        adding = described(self._folder, files, self._layout.stored(columns), head.configuration)
        version = head.version + 1
        vouching = {
            **marks(self._output, upper, chain, changed=changes is not None, key=key_mark(self._key)),
            edition_id(self._output): number(self._edition),
            replaced_id(self._output): version,
        }
        for owner in (changed_id(self._output), key_id(self._output)):
            if owner in head.transactions:  # of the edition before: this one has all rows, and nothing was taken out
                vouching.setdefault(owner, -1)
        mine = about_span(self._output, 0, upper, write=write, changes=changes)
        said = {**mine, **chain, **holding(Volume.of(files))}
        now = time.time_ns() // 1_000_000
        same = not differences(columns_of(head.schema), columns) and head.partitioned == list(self._layout.names)
        text = Schema.from_arrow(columns).to_json()
        anew = () if same else described_anew(head, text, partition=self._layout.names)
        text = changing(adding, gone, vouching, said, milliseconds=now, anew=anew)
        try:
            with writing(self._folder):
                return made(self._log, version, text, write=write)
        except (OSError, ObjectStoreAway):
            if was_written_by(entry(self._log, version), write):
                synchronise(self._log)
                return True
            raise

    def _check(self, head: DeltaHead, upper: int) -> None:
        """Raise unless the rows of the table may be taken out, and are its output's."""
        if (feature := unsupported(head)) is not None:
            raise UnsupportedTable(table=self._folder, feature=feature)
        check_taking(self._folder, head)
        with log_read(self._folder):
            account = since_ours(self._log, head.version, Mine.of(self._output))
        if detail := open_changes(self._log, head, self._output, account):
            said = {"table": self._folder, "output": str(self._output), "detail": detail, "upper": upper}
            raise TableChangedByOthers(**said)

    def _upper_in(self, head: DeltaHead | None) -> int:
        return _upper_in(head, self._folder, self._output)

    def _mismatch(self, expected: int, actual: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self._folder, output=str(self._output), expected=expected, actual=actual)

    # -- the rest is as of a table without rows, or of the new one

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Files that the log names are kept."""
        remove_unnamed(self._folder, files)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Say whether all files are as they were staged."""
        return all_staged(self._folder, files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table, old or new."""
        (self._after or self._before).stand()

    def end(self) -> None:
        """Wait for the checkpoint under way."""
        (self._after or self._before).end()

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the files of the new rows."""
        return [] if self._after is None else self._after.files(as_of=as_of)

    def volume(self) -> Volume:
        """Return how much the new rows come to."""
        return Volume() if self._after is None else self._after.volume()

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        return self._before.uris(files)

    def version_of(self, epoch: int) -> str | None:
        """Return the version that brought an epoch of the new rows."""
        return None if self._after is None else self._after.version_of(epoch)

    def links(self) -> list[Link]:
        """Return the links that the table has, those of earlier editions among them: all are true."""
        return self._before.links()


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
            raise TableUpperMismatch(table=folder, output=str(output), expected=seen[0], actual=actual)
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
