"""`SimulatedLog`: a log in memory as a source, which a flow reads as it reads Kafka.

The code of `sources.kafka` decides what may be bound, which records are lost, and what a missing range means. Only
the answers come from memory, and so do the rows: the writer says of each record whether it is a row or a bad one. A
flow gets from here what it gets from a `KafkaSource` over a topic with the same records.

`meet` is called with the name of a call right before it does anything, and with another name when it is done and has
not answered yet (`POINTS`). What it raises is raised by the call: at the second name, an answer got lost.

>>> log = PartitionedLog({"orders": 1})
>>> _ = log.append("orders-0", pa.record_batch({"id": [7, 8]}))
>>> source, said = SimulatedLog(log, columns="id long", max_records_per_epoch=1, meet=(met := []).append), Bound()
>>> observed = source.probe(said, now=datetime(2026, 11, 23))
>>> observed.upper, observed.more, met
(Frontier({'orders-0': 1}), True, ['probe', 'probed'])
>>> said = Bound(frontier=observed.upper, details=observed.details, schema=observed.schema)
>>> [split] = source.plan([Slice("orders", 0, "orders-0", 0, 1)], said)
>>> [batch.to_pydict() for batch in source.read(split, print)]
[{'id': [7]}]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sources import RecordsLost
from tidegauge.evolution import filled
from tidegauge.kafka.cluster import split as place_of
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.ddl import as_schema, to_ddl
from tidegauge.sources.kafka.acknowledging import forward
from tidegauge.sources.kafka.decoding import key_and_value
from tidegauge.sources.kafka.inquiry import Given, Inquiry, Start, Topics, named
from tidegauge.sources.kafka.planning import KafkaSplit, Outrun, Range, begun, outrun, overtaken, planned, seen
from tidegauge.sources.kafka.probing import confirm, survey
from tidegauge.sources.metadata import MESSAGE, METADATA_CHANGED, TIMESTAMP, has_metadata, with_metadata
from tidegauge.sources.protocol import BadRecord, OnBadRecord, Split
from tidegauge.testing.simulation.upstream.log import SERVERS, PartitionedLog
from tidegauge.testing.simulation.upstream.partition import UNTIMED, LogChunk

__all__ = ["BATCH", "POINTS", "SimulatedLog", "unmet"]

POINTS: Final = (
    *("probe", "probed", "lost", "told lost", "plan", "planned"),
    *("read", "have read", "confirm", "confirmed", "acknowledge", "acknowledged", "commit offsets"),
)
"""What `meet` is called with: for each call its name, then the name of when it is done and has not answered.

The last one is in the middle of `acknowledge`, which reads the group's offsets, and then commits some.
"""

BATCH: Final = 10_000
"""Rows in a batch, at most."""
_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_KEYS: Final = pa.schema([])
_Held: TypeAlias = tuple[LogChunk, int, int]


def unmet(_name: str) -> None:
    """Let a call pass: nobody waits for it."""


@dataclass(frozen=True)
class SimulatedLog:
    """The records of topics of a log in memory. Two are equal if they are configured alike, whatever log they read.

    Args:
        log: the upstream.
        columns: those of its rows' columns that it reads: a DDL string or an Arrow schema.
        topic: which topics, as `KafkaSource` has it; None for those that the log has now.
        start: where to begin, as `KafkaSource` has it. `"earliest"`, so that nothing is left out.
        group: the group to commit offsets for. None stands for `tidegauge.<flow>.<source>`.
        metadata: add `_partition`, `_offset`, `_timestamp`, `_key` and `_headers`. False, to keep rows narrow.
        max_records_per_epoch: how many offsets one epoch takes at most. 10 million, as `KafkaSource` has it.
        split_records: how many offsets of a partition one task reads at once. 1 million, as `KafkaSource` has it.
        on_data_loss: `"stop"` or `"gap"`, when records disappear before they are read.
        committed: whether records of transactions are read only when these are committed. True, as Kafka has it.
        name: the source's name in its flow. The flow sets it.
        meet: called before and after each call, with its name.

    Raises `InvalidArgument`, `InvalidSchema`, `ReservedColumn`.
    """

    log: PartitionedLog = field(compare=False, repr=False)
    _: KW_ONLY
    columns: str | pa.Schema
    topic: str | Sequence[str] | Topics | None = None
    start: Given = "earliest"
    group: str | None = None
    metadata: bool = False
    max_records_per_epoch: int = 10_000_000
    split_records: int = 1_000_000
    on_data_loss: Literal["stop", "gap"] = "stop"
    committed: bool = True
    name: str = ""
    meet: Callable[[str], None] = field(default=unmet, compare=False, repr=False)

    def __post_init__(self) -> None:
        for parameter in ("max_records_per_epoch", "split_records"):
            count = getattr(self, parameter)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InvalidArgument(parameter=parameter, value=count, expected="a whole number, at least 1")
        if self.on_data_loss not in ("stop", "gap"):
            raise InvalidArgument(parameter="on_data_loss", value=self.on_data_loss, expected="'stop' or 'gap'")
        for given in (self._what, self.schema):
            _ = given  # each raises what is wrong with it, and is what it is from now on

    @property
    def unit(self) -> str:
        """Positions count records, the holes between them included."""
        return "records"

    @cached_property
    def data(self) -> pa.Schema:
        """The columns of the rows in the log that are read."""
        found = as_schema(self.columns)
        if found is None or not len(found):
            raise InvalidArgument(parameter="columns", value=self.columns, expected="a DDL string or an Arrow schema")
        return found

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, metadata columns included."""
        return with_metadata(self.data, metadata=self.metadata, where="the simulated log", columns=MESSAGE)

    @cached_property
    def _what(self) -> Inquiry:
        return Inquiry(
            name=self.name,
            servers=SERVERS,
            topics=named(list(self.log.topics) if self.topic is None else self.topic),
            start=Start.of(self.start),
            limit=self.max_records_per_epoch,
            committed=self.committed,
            stop=self.on_data_loss == "stop",
        )

    def placed(self, flow: str, name: str) -> SimulatedLog:
        """Return the source as the one of this name in this flow, after which its group is named."""
        topic = list(self.log.topics) if self.topic is None else self.topic  # also once they are deleted
        return replace(self, name=name, topic=topic, group=self.group or f"tidegauge.{flow}.{name}")

    @property
    def _group(self) -> str:
        return self.group or "tidegauge"

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        topics = self._what.topics
        return {
            "kind": "simulated log",
            "topic": {"pattern": topics.pattern} if topics.pattern else list(topics.names),
            "columns": to_ddl(self.data),
            "start": self._what.start.describe(),
            "group": self._group,
            "metadata": self.metadata,
            "max_records_per_epoch": self.max_records_per_epoch,
            "split_records": self.split_records,
            "on_data_loss": self.on_data_loss,
            "committed": self.committed,
        }

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Ask the log how far its topics are.

        Raises `TopicUnknown`, `NoTopicMatches`, `TopicDeleted`, `TopicRecreated`, `UpstreamRecreated`, `RecordsLost`,
        `EndTakenBack`, `SchemaChanged`, `BrokerUnreachable`.
        """
        self.meet("probe")
        if bound.schema is not None:
            self._check(bound.schema)
        found, listing, note = survey(self.log, self._what, bound, now=now)
        observed = Observation(
            at=now,
            upper=found.upper,
            end=found.end,
            lower=Frontier(listing.lows),
            more=found.more,
            details=found.details,
            schema=self.schema if bound.schema is None else None,
            note=note,
            state=self._started(now) if bound.state is None else None,
            taken_back=found.taken_back,
        )
        self.meet("probed")
        return observed

    def _started(self, now: datetime) -> SourceState:
        return SourceState(kind="kafka/started", source_id=SERVERS, value={"at": now.isoformat()})

    def _check(self, bound: pa.Schema) -> None:
        """Raise `SchemaChanged` unless these are the columns."""
        if bound != self.schema:
            key_and_value(bound, _NO_KEYS, self.data, metadata=self.metadata, source=self.name)

    def unreadable(self, columns: pa.Schema) -> str:
        """Return why records cannot be read by columns that were declared before, "" if they can."""
        return "" if has_metadata(columns, MESSAGE) == self.metadata else METADATA_CHANGED

    def size(self, piece: Slice, bound: Bound) -> int:
        """Return the number of offsets from where the source begins."""
        return sum(part.size for part in begun([piece], bound))

    def cut(self, piece: Slice, size: int, bound: Bound) -> int:
        """Return where `size` offsets end from where the source begins: a partition can be cut anywhere."""
        return max([piece.lower, *(part.lower for part in begun([piece], bound))]) + size

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices into splits, after a look whether the log has them, unless it said so just now.

        Raises `RecordsLost`, `RangeOvertaken`, `TopicDeleted`, `TopicRecreated`, `UpstreamRecreated`.
        """
        self.meet("plan")
        schema = bound.schema or self.schema
        self._check(schema)
        pieces = begun(slices, bound)
        if gone := self._gone(pieces, bound):
            _piece, why = gone[0]
            raise why
        splits: list[Split] = list(planned(pieces, schema=schema, size=self.split_records))
        self.meet("planned")
        return splits

    @property
    def loss(self) -> str:
        """The code of rows in `gaps`."""
        return RecordsLost.code

    def lost(self, slices: Sequence[Slice], bound: Bound) -> Sequence[Slice]:
        """Return the parts of slices that are gone and that are given up, which `on_data_loss="gap"` says."""
        if self.on_data_loss == "stop":
            return []
        self.meet("lost")
        found = [piece for piece, _why in self._gone(begun(slices, bound), bound)]
        self.meet("told lost")
        return found

    def _gone(self, pieces: Sequence[Slice], bound: Bound) -> list[tuple[Slice, Outrun]]:
        if not pieces or seen(pieces, bound):
            return []
        return overtaken(self.log, self._what, pieces, bound)

    def read(self, split: KafkaSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split.

        Raises `RecordsLost`, `RangeOvertaken`, `UpstreamRecreated`, `TopicRecreated`, `TopicUnknown`,
        `BrokerUnreachable`.
        """
        self.meet("read")
        for piece in split.ranges:
            at: int | None = piece.lower
            while at is not None:
                held, at = self._held(replace(piece, lower=at), on_bad_record)
                if held:
                    yield self._batch(piece.partition, held, split.schema)
        self.meet("have read")

    def _held(self, piece: Range, on_bad_record: OnBadRecord) -> tuple[list[_Held], int | None]:
        """Return the next rows of a range, and where it goes on, None where it does not."""
        where = [place_of(piece.partition)]
        lows, ends = self.log.offsets(where, "earliest"), self.log.offsets(where, "latest", committed=False)
        low, end = lows[piece.partition], ends[piece.partition]
        if (gone := outrun(self._what, piece.partition, piece.lower, piece.upper, low=low, end=end)) is not None:
            raise gone
        found: list[_Held] = []
        left = BATCH
        for held in self.log.held(piece.partition, piece.lower, piece.upper, committed=self.committed):
            chunk, first, last = held
            if chunk.rows is None:
                on_bad_record(_bad(piece.partition, chunk))
                continue
            taken = min(left, last - first)
            found.append((chunk, first, first + taken))
            left -= taken
            if not left:
                return found, chunk.offsets[first + taken - 1] + 1
        return found, None

    def _batch(self, partition: str, held: Sequence[_Held], schema: pa.Schema) -> pa.RecordBatch:
        """Return rows as one batch of `schema`."""
        slices = []
        for chunk, first, last in held:
            if chunk.rows is None or any(one not in chunk.rows.schema for one in self.data):
                raise InvalidArgument(parameter="columns", value=self.columns, expected=f"as the log: {chunk.rows}")
            slices.append(chunk.rows.slice(first, last - first))
        rows = slices[0] if len(slices) == 1 else pa.concat_batches(slices)
        facts = _facts(partition, held, rows.num_rows) if self.metadata else []
        rows = filled(rows, pa.schema(list(schema)[: len(schema) - len(facts)]))
        return pa.RecordBatch.from_arrays([*rows.columns, *facts], schema=schema)

    def committed_rows(self, place: str, lower: int, upper: int) -> pa.RecordBatch | None:
        """Return the rows of a range, for a check: those that retention took, too. None for none.

        place: a partition, by either of its names (`PartitionedLog.lasting`).
        """
        there = self.log.held(place, lower, upper, committed=self.committed)
        held = [one for one in there if one[0].rows is not None]
        return self._batch(self.log.plain(place), held, self.schema) if held else None

    def committed_bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:
        """Return the records of a range that cannot be decoded, for a check, as `committed_rows` does the others."""
        there = self.log.held(place, lower, upper, committed=self.committed)
        return [_bad(self.log.plain(place), chunk) for chunk, _first, _last in there if chunk.rows is None]

    def told(self) -> Mapping[str, int]:
        """Return the offsets that are committed for the group."""
        return self.log.groups.get(self._group, {})

    def confirm(self, bound: Bound) -> None:
        """Ask the log whether the topics are those that are bound.

        Raises `TopicDeleted`, `TopicRecreated`, `UpstreamRecreated`, `BrokerUnreachable`.
        """
        self.meet("confirm")
        confirm(self.log, self._what, bound)
        self.meet("confirmed")

    def acknowledge(self, frontier: Frontier) -> None:
        """Commit the offsets that the group does not have yet. Raises `BrokerUnreachable`."""
        self.meet("acknowledge")
        self.log.answer("read offsets")
        ahead = forward(dict(frontier.items()), self.told())
        self.meet("commit offsets")
        self.log.commit_offsets(self._group, ahead)
        self.meet("acknowledged")

    def unacknowledged(self, frontier: Frontier) -> str:
        """Return what the group lacks of the offsets of a frontier."""
        self.log.answer("read offsets")
        ahead = forward(dict(frontier.items()), self.log.groups.get(self._group, {}))
        some = f"{len(ahead)} of {len(frontier)} partitions"
        return f"the group {self._group} has not committed what is published of {some}" if ahead else ""


def _facts(partition: str, held: Sequence[_Held], count: int) -> list[pa.Array]:
    """Return the metadata columns of rows."""
    offsets, times, keys = list[int](), list[int | None](), list[bytes | None]()
    for chunk, first, last in held:
        offsets += chunk.offsets[first:last]
        times += [None if chunk.time == UNTIMED else chunk.time * 1000] * (last - first)
        keys += [None] * (last - first) if chunk.keys is None else chunk.keys[first:last]
    return [
        pa.repeat(pa.scalar(partition, pa.string()), count),
        pa.array(offsets, pa.int64()),
        pa.array(times, TIMESTAMP),
        pa.array(keys, pa.binary()),
        pa.nulls(count, MESSAGE.field("_headers").type),
    ]


def _bad(partition: str, chunk: LogChunk) -> BadRecord:
    return BadRecord(
        partition,
        chunk.offsets[0],
        chunk.raw,
        *chunk.why,
        key=None if chunk.keys is None else chunk.keys[0],
        timestamp=None if chunk.time == UNTIMED else _ZERO + timedelta(milliseconds=chunk.time),
    )
