"""Mending a Delta table: what others have done to it is found in its log, and one entry puts it right.

The entry takes out the files that hold rows of the damaged epochs, and those of others, and adds the staged ones. A
file that holds rows of other epochs too, as OPTIMIZE makes them, is rewritten without the replaced ones. So a reader
sees the table either before or after the repair.

Invariant (compare-and-replace): the entry is the very next one after the version that was looked at, or it is not
made. It carries the output's transactions, so it vouches for the table as each commit does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.objects import ObjectStoreAway
from tidegauge.errors.sinks import (
    ForeignTable,
    RowsTakenOut,
    TableBusy,
    UnsupportedTable,
)
from tidegauge.remap.history import Link
from tidegauge.sinks.columns import EPOCH, rows_schema
from tidegauge.sinks.delta.creating import snapshot
from tidegauge.sinks.delta.entry import changing, described, made, was_written_by
from tidegauge.sinks.delta.files import LiveFile, epochs_in, live, remove_unnamed
from tidegauge.sinks.delta.head import DeltaHead, actions_of, entry, log_read, newest
from tidegauge.sinks.delta.history import carried, kept_links
from tidegauge.sinks.delta.owner import (
    Mine,
    changed_id,
    check_columns,
    columns_of,
    digest_in,
    marks,
    own_upper,
    paths,
    replaced_by,
    since_ours,
)
from tidegauge.sinks.delta.view import holding
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.layout.stager import LaidOutStager
from tidegauge.sinks.layout.values import PartitionValues, constants
from tidegauge.sinks.location import at, inside, staging, writing
from tidegauge.sinks.mending import HistoryOf, Ranges, TableDamage, apart, joined, within
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume
from tidegauge.sinks.vectors import live_rows

__all__ = ["DeltaMending"]

pc: Final[Any] = pyarrow.compute


class DeltaMending:
    """A `Mending`: the Delta table in `folder`, as the output `output` finds it."""

    def __init__(self, folder: str, output: OutputId, layout: FileLayout = AS_IT_COMES) -> None:
        self._layout: Final = layout
        self._folder: Final = folder
        self._output: Final = output
        self._log: Final = at(folder) / "_delta_log"
        self._mine: Final = Mine.of(output)
        with log_read(self._folder):
            self._head: Final = newest(self._log)
        self._upper: Final = 0 if self._head is None else self._own_upper(self._head)
        self._files: dict[str, LiveFile] = {}
        self._damage = TableDamage()
        if self._head is not None:
            with log_read(self._folder):
                self._look(self._head)

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by its last commit."""
        return self._upper

    @property
    def digest(self) -> str | None:
        """The first digits of the digest of the flow's history up to the upper, None where the log has none."""
        return digest_in(self._head, self._output)

    @property
    def schema(self) -> pa.Schema | None:
        """Its columns, None where there is no table."""
        return None if self._head is None else columns_of(self._head.schema)

    @property
    def damage(self) -> TableDamage:
        """What others have done since the output's last commit, and which files cannot be read as they were."""
        return self._damage

    def links(self) -> list[Link]:
        """Return the links that the table's log and its folder `_tidegauge` have. Raises `DamagedHistory`."""
        with log_read(self._folder):
            return kept_links(self._folder, self._output)

    def whole(self, epochs: Ranges) -> Ranges:
        """Return the epochs: any can be replaced."""
        return epochs

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Files that the log names are kept: an error may have come after the entry."""
        remove_unnamed(self._folder, files)

    def replace(
        self,
        epochs: Ranges,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        write: str,
        told: HistoryOf,
    ) -> None:
        """Take the rows of these epochs out, and the files of others, and put `files` in, as one entry of the log.

        Raises `TableBusy` when somebody has committed meanwhile, `UnsupportedTable`, `TableSchemaChanged`.
        """
        head = self._head
        if head is None:
            return
        if head.configuration.get("delta.appendOnly", "false").lower() == "true":
            raise UnsupportedTable(table=self._folder, feature="the property delta.appendOnly")
        if epochs and epochs[0].start <= head.transactions.get(changed_id(self._output), -1):
            raise RowsTakenOut(table=self._folder, output=str(self._output), epoch=epochs[0].start)
        columns = self._layout.columns(rows_schema(schema))
        check_columns(self._folder, self._output, head, columns, self._layout)
        gone, cut = self._taken(epochs)
        with writing(self._folder):
            said = self._history(epochs, upper, write, told)
        vouching = marks(self._output, upper, said)
        about = {"flow": self._output.flow, "output": self._output.output, "write": write}
        again = ", ".join(f"{one.start} to {one.stop - 1}" for one in epochs)
        rest = self._rest(cut, epochs, columns, write)
        try:
            adding = described(self._folder, (*files, *rest), self._layout.stored(columns), head.configuration)
            left = [file.known for path, file in self._files.items() if path not in gone and file.known is not None]
            held = holding(Volume.of([*left, *files, *rest]))
            now = time.time_ns() // 1_000_000
            text = changing(
                adding, list(gone.values()), vouching, {**about, "replaced": again, **said, **held}, milliseconds=now
            )
            done = self._put(head.version + 1, text, write)
        except BaseException:
            self.discard(rest)
            raise
        if not done:
            self.discard(rest)
            raise TableBusy(table=self._folder, attempts=1)

    # -- what is there

    def _own_upper(self, head: DeltaHead) -> int:
        upper = own_upper(head, self._folder, self._output)
        if upper is None:
            detail = "its log has no transaction of this output"
            raise ForeignTable(table=self._folder, output=str(self._output), detail=detail)
        return upper

    def _look(self, head: DeltaHead) -> None:
        account = since_ours(self._log, head.version, self._mine)
        found = live(snapshot(self._folder, head.version), self._folder)
        self._files = {file.path: file for file in found}
        old = dict.fromkeys(self._replaced(head), "it was put back after all rows had been replaced")
        strange = paths(account.foreign)
        foreign = {path: what for path, what in strange.items() if path in self._files and path not in old}
        lost = [file.path for file in found if not file.sound and file.path not in foreign]
        missing = {**paths(account.missing), **old, **dict.fromkeys(lost, "it is gone, or is not as it was")}
        held = self._held(set(missing), head.version)
        epochs = joined(held.values())
        unknown = tuple(sorted(set(missing) - set(held)))
        self._damage = TableDamage(missing, foreign, epochs, unknown)

    def _replaced(self, head: DeltaHead) -> list[str]:
        """Return the files there whose rows were replaced, as somebody has restored the version before that."""
        return sorted(self._files.keys() & replaced_by(self._log, head, self._output))

    def _held(self, paths: set[str], newest: int) -> dict[str, range]:
        """Return the epochs that files held, as far as the files or the entries that added them are still there."""
        held: dict[str, range] = {}
        for path in paths:
            known = self._files[path].epochs if path in self._files else epochs_in(inside(self._folder, path))
            if known is not None:
                held[path] = known
        for version in range(newest, -1, -1):
            if held.keys() >= paths:
                break
            try:
                actions = actions_of(entry(self._log, version))
            except FileNotFoundError:
                break
            for file in (action["add"] for action in actions if "add" in action):
                if file["path"] in paths - held.keys() and (found := _said(file)) is not None:
                    held[file["path"]] = found
        return held

    # -- the replacement

    def _taken(self, epochs: Ranges) -> tuple[dict[str, StagedFile], list[str]]:
        """Return the files that are taken out, and those of them that hold other epochs too."""
        gone: dict[str, StagedFile] = {}
        cut: list[str] = []
        for path, file in self._files.items():
            known = file.known or StagedFile(path, 0, 0, 0, 0)
            if file.epochs is None or path in self._damage.foreign:
                gone[path] = known
            elif not apart(file.epochs, epochs):
                gone[path] = known
                if not within(file.epochs, epochs):
                    cut.append(path)
        return gone, cut

    def _rest(self, cut: Sequence[str], epochs: Ranges, columns: pa.Schema, write: str) -> list[StagedFile]:
        """Stage what files hold of other epochs."""
        if not cut:
            return []
        stager = LaidOutStager(
            staging(self._folder), "", self._layout, columns, job=write, task=0, statistics=True, most=None
        )
        at = pc.field(EPOCH)
        others = reduce(and_, [(at < one.start) | (at >= one.stop) for one in epochs])
        try:
            for path in cut:
                held = constants(_partition_of(self._files[path]), columns)
                known = self._files[path].known
                deletions = "" if known is None else known.deletions
                for batch in live_rows(str(inside(self._folder, path)), columns, held, deletions):
                    stager.write(batch.filter(others))
            return stager.close()
        except BaseException:
            stager.abort()
            raise

    def _history(self, epochs: Ranges, upper: int, write: str, told: HistoryOf) -> Mapping[str, str]:
        """Return what the entry says of the history, nothing where that is what the table has already."""
        lower = min([upper - 1, *(one.start for one in epochs)])
        history = told(max(lower, 0), upper)
        if self.digest is not None and upper == self._upper and history.digest.startswith(self.digest):
            return {}
        return carried(self._folder, history, lower=max(lower, 0), upper=upper, write=write)

    def _put(self, version: int, text: str, write: str) -> bool:
        """Make the entry; return False when somebody else has taken its version. The entry knows how it went."""
        try:
            with writing(self._folder):
                return made(self._log, version, text, write=write)
        except (OSError, ObjectStoreAway):
            if was_written_by(entry(self._log, version), write):
                return True
            raise


def _partition_of(file: LiveFile) -> PartitionValues:
    return () if file.known is None else file.known.partition


def _said(file: Mapping[str, Any]) -> range | None:
    """Return the epochs of a file by the statistics that the log has of it."""
    said = json.loads(file.get("stats") or "{}")
    first, last = (said.get(name, {}).get(EPOCH) for name in ("minValues", "maxValues"))
    return None if first is None or last is None else range(first, last + 1)
