"""The driver's side of a topic: what it holds of an output, and how the next epochs get there.

The order of a commit, each step safe to crash after:

    shut out older drivers     init_transactions with the output's transactional id; what they had open is aborted
    read the progress topic    to its true end: only now it cannot change any more
    compare                    with the epochs that are to be committed
    send, in order of epochs   in one transaction, the progress record last
    commit
    remove the staged files

Invariant: the topic holds exactly the epochs before the upper of the last committed progress record, each message
once, for readers of committed messages. The first two steps are taken once for each driver (when it begins, in
`sweep`), and again after any commit that failed or whose outcome was not heard: then the record says whether it was
committed.

*Why a sweep begins by shutting out older drivers.* An older driver that still lives may be sending the very files
that are about to be removed. Once it is shut out it can commit nothing any more, so its staged files are nobody's.

Commands that only look, such as `status`, open the output too. So opening changes nothing and shuts nobody out. It
waits a moment for commits to become stable, which a broker does shortly after it has answered; if something is open
for longer, it is content with the stable part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from tidegauge.env import Env
from tidegauge.errors.history import DamagedHistory
from tidegauge.errors.kafkasink import (
    OutputTopicRecreated,
    ProgressUnreadable,
    StagedMessagesMissing,
    TopicMissing,
    WriterFenced,
)
from tidegauge.errors.sinks import NothingTakenOut, OutputIsNoTable, StagedFileMissing, TableUpperMismatch
from tidegauge.evolution import Evolution
from tidegauge.kafka import Settings
from tidegauge.kafka.clients import admin
from tidegauge.kafka.cluster import Topic, described
from tidegauge.operations import carries
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import discard, sweep
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span, expect, staged_status
from tidegauge.sinks.kafka.debezium import ORDER, paired
from tidegauge.sinks.kafka.messages import MESSAGES, MessageLayout, lasts
from tidegauge.sinks.kafka.progress import ProgressRecord, key_of, resumed
from tidegauge.sinks.kafka.topics import check_progress_topic, made, scan
from tidegauge.sinks.kafka.writer import TransactionalProducer
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.ordered import GROUP_ROWS, merged
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark

__all__ = ["TopicOutput", "transactional_id"]

_GLANCE: Final = 1.0
"""Seconds for which a command that only looks tries to come to the true end."""

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


def transactional_id(output: OutputId, topic: str, *, prefix: str) -> str:
    """Return the id under which drivers shut each other out: always the same for one output and topic."""
    return f"{prefix}{key_of(output, topic)}"


class TopicOutput:
    """A `Table` that can `sweep`: the topic `layout.topic`, as the output `output` sees it.

    id: the transactional id, "" for at least once. partitions: how many a topic gets that is not there; None for an
    error. folder: where tasks stage.
    """

    def __init__(
        self,
        settings: Settings,
        layout: MessageLayout,
        output: OutputId,
        *,
        id: str,
        progress_topic: str,
        partitions: int | None,
        folder: str,
        env: Env | None = None,
    ) -> None:
        self._settings: Final = settings
        self._layout: Final = layout
        self._output: Final = output
        self._id: Final = id
        self._progress_topic: Final = progress_topic
        self._partitions: Final = partitions
        self._folder: Final = folder
        self._env: Final = env or Env()
        self._writer: TransactionalProducer | None = None
        self._fenced: WriterFenced | None = None
        self._topic_id = ""
        self._progress = self._read(self._found(make=False), true_end=False)

    @property
    def upper(self) -> int:
        """The first epoch that the topic does not hold, by the last commit seen of it."""
        return self._progress.upper

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper, None where the last progress record has none."""
        return self._progress.digest or None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of a message, None before the first commit. Rows may have other columns at any time."""
        return MESSAGES if self.upper else None

    def evolve(self, how: Evolution) -> None:
        """Do nothing: a message has the columns of its row, whatever others have."""

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:  # noqa: ARG002
        """Return none: a topic keeps no columns."""
        return ()

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
    ) -> None:
        """Send the messages of `files` as the epochs `[lower, upper)`, or raise and show nothing to anybody.

        Raises `NothingTakenOut` for files to remove; `TableUpperMismatch`, `HistoriesDiffer`,
        `TableOfAnotherIncarnation`, `StagedMessagesMissing`, `MisplacedRows`; the faults of a message
        (`OutputMessageTooLarge`, `MessageRefused`, `PartitionUnknown`, `LastUndecided`); the errors that stop this
        driver (`WriterFenced`, `TransactionTooLong`, `OutputTopicRecreated`); and errors that may pass.
        """
        if remove:
            raise NothingTakenOut(files=len(remove), table=self._layout.topic)
        check_span(lower, upper, files)
        self._layout.check(rows_schema(schema))
        for file in files:
            self._check_staged(file)
        if self._fenced is not None:
            raise self._fenced
        before = self._topic_id
        if self._writer is None or not self._id:
            self._take()
        elif self._found(make=False).get(self._layout.topic, Topic("", 0)).id != self._topic_id:
            self._leave()
            raise OutputTopicRecreated(topic=self._layout.topic, output=str(self._output))
        known = self._progress
        if (known.upper, known.write) != (upper, write):  # it is ours already, when the answer to it was lost
            if known.upper != lower:
                if self._topic_id != before and before:
                    raise OutputTopicRecreated(topic=self._layout.topic, output=str(self._output))
                raise self._mismatch(lower)
            expect(self, self._output, history, mendable=False)
            self._send(lower, upper, self._in_order(files, rows_schema(schema)), write, history)
        self.discard(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files."""
        discard(LocalFiles(self._folder), files)

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Shut out earlier drivers of the output, see what they committed, and remove what they left; see above."""
        confirm()  # before taking over, which shuts out whoever writes
        self._take()
        sweep(LocalFiles(self._folder), job_mark(self._output.incarnation), confirm)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:  # noqa: ARG002 - a topic has no earlier state
        """Return the topic as one file: how many messages of this output it was given, and their bytes."""
        held = self._progress
        if not held.upper:
            return []
        return [StagedFile(self._layout.topic, held.messages, held.size, 0, held.upper - 1)]

    def volume(self) -> Volume:
        """Return how many messages of this output the topic was given, as one file, and their bytes."""
        return Volume.of(self.files())

    def uris(self, files: Sequence[StagedFile]) -> list[str]:  # noqa: ARG002
        """Raise `OutputIsNoTable`."""
        raise OutputIsNoTable(output=self._output.output, place=f"the Kafka topic {self._layout.topic!r}")

    def version_of(self, epoch: int) -> str | None:  # noqa: ARG002
        """Return None: the progress topic keeps the last commit alone."""
        return None

    def links(self) -> list[Link]:
        """Return the links of the last progress record. Raises `DamagedHistory`."""
        try:
            return list(map(Link.decode, self._progress.links))
        except ValueError as error:
            topic = self._layout.topic
            raise DamagedHistory(table=topic, path=self._progress_topic, detail=str(error)) from error

    # -- who may write, and what is there

    def _take(self) -> None:
        """Shut out older drivers, and read the committed progress."""
        if self._fenced is not None:
            raise self._fenced
        found = self._found(make=True)
        if self._writer is None:
            writer = TransactionalProducer(self._settings, self._layout, self._id, env=self._env)
            try:
                writer.fence()
            except BaseException:
                writer.abandon()
                raise
            self._writer = writer
        try:
            self._progress = self._read(found, true_end=True)  # after fencing: no older driver can commit any more
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()

    def _found(self, *, make: bool) -> dict[str, Topic]:
        """Return the topic and the progress topic, as far as they exist. Raises `TopicMissing`."""
        topic, progress = self._layout.topic, self._progress_topic
        with admin(self._settings) as client:
            found = described(client, [topic, progress], servers=self._settings.servers)
            if topic not in found and self._partitions is None:
                raise TopicMissing(topic=topic, servers=self._settings.servers)
            if make and topic not in found and self._partitions is not None:
                compact = self._layout.envelope == "upsert"
                found[topic] = made(
                    client, self._settings, topic, partitions=self._partitions, compact=compact, env=self._env
                )
            if make and progress not in found:
                found[progress] = made(client, self._settings, progress, partitions=1, compact=True, env=self._env)
            if make and self._writer is None:
                check_progress_topic(client, self._settings, progress, found[progress])
        return found

    def _read(self, found: dict[str, Topic], *, true_end: bool) -> ProgressRecord:
        topic = self._layout.topic
        last = None
        if self._progress_topic in found:
            ask = partial(scan, self._settings, self._progress_topic, key_of(self._output, topic), env=self._env)
            try:
                last = ask(true_end=True) if true_end else ask(true_end=True, patience=_GLANCE)
            except ProgressUnreadable:
                if true_end:
                    raise
                last = ask(true_end=False)
        self._topic_id = found[topic].id if topic in found else ""
        return resumed(last, self._output, topic=topic, topic_id=self._topic_id)

    # -- the append

    def _send(
        self, lower: int, upper: int, epochs: Iterator[tuple[int, pa.RecordBatch]], write: str, history: History
    ) -> None:
        """Send and commit. After an error the writer is abandoned: the next commit begins by taking over from it."""
        writer, held = self._writer, self._progress
        if writer is None:  # `_take` came before
            raise RuntimeError("a commit without a writer")
        messages = size = 0
        try:
            writer.begin(lower, upper)
            for epoch, batch in epochs:
                writer.send(epoch, batch)
                messages += batch.num_rows
                size += sum(pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
            after = held.after(upper, history, write=write, messages=messages, size=size)
            key = key_of(self._output, self._layout.topic).encode()
            writer.commit(self._progress_topic, key, after.encode())
        except BaseException as error:
            self._leave()
            if isinstance(error, WriterFenced):
                self._fenced = error
            raise
        self._progress = after

    def _in_order(self, files: Sequence[StagedFile], rows: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return the messages in the order of epochs; with a key, what each epoch has to say of it."""
        if self._layout.envelope == "append":
            return merged(self._folder, files)
        deciding = self._layout.deciding(rows)
        if self._layout.envelope == "debezium":
            return self._changes(files, ordered=ORDER in deciding)
        return self._lasts(files, deciding, exact=carries(rows))

    def _lasts(
        self, files: Sequence[StagedFile], deciding: Collection[str], *, exact: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield of each key in each epoch the last message."""
        keys = groupby(merged(self._folder, files, ["key", "_epoch", *deciding]), key=itemgetter(0))
        everything = groupby(merged(self._folder, files), key=itemgetter(0))
        for (epoch, found), (_, batches) in zip(keys, everything, strict=True):
            table = pa.Table.from_batches([batch for _, batch in found])
            last = lasts(table, ordered=ORDER in deciding, topic=self._layout.topic, epoch=epoch, exact=exact)
            start = 0
            for _, batch in batches:
                kept = batch if last is None else batch.filter(last.slice(start, batch.num_rows))
                start += batch.num_rows
                yield epoch, kept

    def _changes(self, files: Sequence[StagedFile], *, ordered: bool) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield of each key in each epoch what became of its row."""
        for epoch, found in groupby(merged(self._folder, files), key=itemgetter(0)):
            table = pa.Table.from_batches([batch for _, batch in found])
            made = paired(table, ordered=ordered, topic=self._layout.topic, epoch=epoch)
            for batch in made.to_batches(max_chunksize=GROUP_ROWS):
                yield epoch, batch

    def _check_staged(self, file: StagedFile) -> None:
        try:
            staged_status(self._folder, file)
        except StagedFileMissing as error:
            problem = error.evidence["problem"]
            raise StagedMessagesMissing(path=file.path, staging=self._folder, problem=problem) from None

    def _mismatch(self, expected: int) -> TableUpperMismatch:
        return TableUpperMismatch(
            table=self._layout.topic, output=str(self._output), expected=expected, actual=self.upper
        )
