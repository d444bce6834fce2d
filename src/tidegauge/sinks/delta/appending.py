"""An entry of ours becomes the very next version of a Delta table's log, and durable, or it does not get there.

The first entry of a table, and checkpoints, are delta-rs's. It replays all files of a table at each commit, so the
other entries are written here (`delta.head`, `delta.entry`).

An error is a question: whether it came before or after the entry was there, the entry knows. A version that is there
and could not be made durable is made so first (`settle`), before the table is asked for anything.

Invariant: an entry takes no version but the one after the head that it was compared with.

>>> import tempfile
>>> from tidegauge.sinks.layout.layout import AS_IT_COMES
>>> columns = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
>>> said = {"lower": 0, "upper": 1, "write": "a" * 32}
>>> with tempfile.TemporaryDirectory() as folder:
...     output = OutputId("shop", "orders", "0" * 32)
...     appending = DeltaAppending(folder, output, layout=AS_IT_COMES, vectors=False)
...     mine = appending.attempt(None, NewEntry(columns, vouching={}, said=said))
...     theirs = appending.attempt(None, NewEntry(columns, vouching={}, said=said | {"write": "b" * 32}))
>>> mine, theirs
(True, False)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidegauge.errors.objects import ObjectStoreAway
from tidegauge.evolution import Evolution
from tidegauge.objects.address import is_address
from tidegauge.sinks.delta.columns import with_columns, with_vectors
from tidegauge.sinks.delta.creating import create
from tidegauge.sinks.delta.entry import MarkedFile, changing, described, made, was_written_by
from tidegauge.sinks.delta.head import Action, DeltaHead, entry, follow, log_read
from tidegauge.sinks.delta.owner import check_columns
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.location import at, prove, synchronise, writing
from tidegauge.sinks.protocol import OutputId, StagedFile

__all__ = ["DeltaAppending", "NewEntry"]


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What an entry is made of. columns: of the rows. said: what it has for people and for us, `write` among it.

    files: come in. remove: go out. marked: lose rows. vouching: the application transactions.
    """

    columns: pa.Schema
    vouching: Mapping[str, int]
    said: Mapping[str, Any]
    files: Sequence[StagedFile] = ()
    remove: Sequence[StagedFile] = ()
    marked: Sequence[MarkedFile] = ()


class DeltaAppending:
    """The entries of an output in the log of its table. vectors: whether the table is to have deletion vectors."""

    def __init__(self, folder: str, output: OutputId, *, layout: FileLayout, vectors: bool) -> None:
        self._folder: Final = folder
        self._output: Final = output
        self._layout: Final = layout
        self._vectors: Final = vectors
        self._log: Final = at(folder) / "_delta_log"
        self.how: Evolution = "strict"
        """How the table takes rows with other columns."""
        self._unsettled: int | None = None
        """A version of ours that is there, and that could not be made durable yet."""
        self._proved = False
        """Whether the place was seen to refuse a second file of one name."""

    def attempt(self, head: DeltaHead | None, new: NewEntry) -> bool:
        """Commit as the next version of the head; return False when somebody else has taken that version.

        head: None where there is no table. Raises what `DeltaLog.commit` raises of columns, files and the place.
        """
        version, write = 0 if head is None else head.version + 1, str(new.said["write"])
        if not self._proved:
            prove(self._log / f"_commit_{write}.json.tmp")
            self._proved = True
        stored = self._layout.stored(new.columns)
        adding = described(self._folder, new.files, stored, {} if head is None else head.configuration)
        anew = list[Action]()
        if head is not None:
            after = check_columns(self._folder, self._output, head, new.columns, self._layout, self.how)
            anew = with_columns(head, after)
            if self._vectors:
                anew = _last_of_each([*anew, *with_vectors(follow(head, anew))])
        try:
            with writing(self._folder):
                if head is None:
                    names = self._layout.names
                    create(self._folder, new.columns, adding, new.vouching, new.said, partition=names)
                else:
                    text = changing(
                        adding,
                        new.remove,
                        new.vouching,
                        new.said,
                        milliseconds=time.time_ns() // 1_000_000,
                        rows=new.said["lower"] < new.said["upper"],
                        anew=anew,
                        marked=new.marked,
                    )
                    return made(self._log, version, text, write=write)
        except (DeltaError, OSError, ObjectStoreAway) as error:
            if not was_written_by(entry(self._log, version), write):
                if entry(self._log, version).exists():
                    return False
                if isinstance(error, DeltaError) or is_address(self._folder):
                    with log_read(self._folder):
                        raise
                raise
        self._settle(version)  # delta-rs leaves this to the operating system
        return True

    def settle(self) -> None:
        """Make the version durable that could not be made so when it came, if there is one."""
        if self._unsettled is not None:
            self._settle(self._unsettled)

    def _settle(self, version: int) -> None:
        self._unsettled = version
        with writing(self._folder):
            synchronise(entry(self._log, version))
            synchronise(self._log)
            synchronise(at(self._folder))
        self._unsettled = None


def _last_of_each(actions: Sequence[Action]) -> list[Action]:
    """Return the last action of each kind: an entry has one protocol, and one description of the table."""
    return list({next(iter(action)): action for action in actions}.values())
