"""Topics of a Kafka cluster as a source: `KafkaSource`.

The partitions are Kafka's (`orders-0`), the positions are offsets. Every epoch has a range of offsets of each
partition, bound before it is read, so Kafka's consumer groups and rebalances have no part in it: a task that reads a
range assigns itself the partition. Offsets are committed for a group when every output holds the records, for people
and their tools to see; they are never read back to decide anything.

Only committed records are read (`isolation.level` is `read_committed` unless `settings` says otherwise), and an epoch
reaches to the last one that no open transaction comes before.

>>> from tidegauge.sources import Json
>>> source = KafkaSource("localhost:9092", topic="orders", format=Json("id long, user string"))
>>> source.schema.names, source.unit
(['id', 'user'], 'records')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Literal

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sources import RecordsLost
from tidegauge.errors.store import SchemaChanged
from tidegauge.kafka.clients import admin, consumer, kafka
from tidegauge.kafka.cluster import AskedCluster
from tidegauge.kafka.java import java
from tidegauge.kafka.settings import Settings, Value
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.formats.avro import Avro
from tidegauge.sources.formats.messages import MessageFormat
from tidegauge.sources.kafka.acknowledging import commit, lacking
from tidegauge.sources.kafka.decoding import MessageDecoder, joined, key_and_value
from tidegauge.sources.kafka.enveloping import Envelope, check_envelope, row_columns
from tidegauge.sources.kafka.framing import Piece, beyond, bulk_of, frame, missing, received
from tidegauge.sources.kafka.further import further, tells, told
from tidegauge.sources.kafka.inferring import inferred, sample
from tidegauge.sources.kafka.inquiry import Given, Inquiry, Start, Topics, named
from tidegauge.sources.kafka.planning import KafkaSplit, Outrun, begun, overtaken, planned, seen
from tidegauge.sources.kafka.probing import TopicListing, confirm, survey
from tidegauge.sources.kafka.reading import messages
from tidegauge.sources.metadata import MESSAGE, METADATA_CHANGED, has_metadata
from tidegauge.sources.protocol import OnBadRecord, Split

__all__ = ["KafkaSource"]


@dataclass(frozen=True)
class KafkaSource:
    """The messages of one or more topics.

    Args:
        servers: `host:port` of one broker, or of several with commas. The client finds the others through them.
        topic: a name, a list of names, or `tg.Topics(pattern=...)`.
        format: the format of the values. Columns that it does not declare are inferred from the first messages, once.
            Of Debezium's changes, `Json` declares the columns of the rows; other formats have the whole record's.
        key: the format of the keys, whose columns come first. None, because most rows need no key. Either `format` or
            `key` has to declare its columns, or nothing would tell which inferred column belongs to which.
        envelope: what messages are: `"append"`, rows; `"upsert"`, the newest value of each key, or a tombstone;
            `"debezium"`, Debezium's changes; `"cdc"`, the same, all kept. `"append"`, because most messages are rows.
        start: where to begin in the partitions that exist when the source is first bound: `"earliest"`, `"latest"`, a
            datetime with its zone, a timedelta back from now, or offsets like `{"orders-0": 5}`. `"earliest"`, so
            that nothing is left out. It is resolved once; a restart never asks again.
        settings: passed on to librdkafka. Give secrets as `env:NAME` or `file:PATH`.
        group: the group to commit offsets for, so that Kafka's tools show the lag. None stands for
            `tidegauge.<flow>.<source>`, which no other program uses.
        metadata: add `_partition`, `_offset`, `_timestamp`, `_key` and `_headers`. False, to keep rows narrow.
        max_records_per_epoch: how many offsets one epoch takes at most, all partitions together. 10 million, so that
            a backlog becomes many epochs, each small enough for one job.
        split_records: how many offsets of a partition one task reads at once. 1 million, so that several tasks share
            a large partition.
        on_data_loss: what to do when records disappear before they are read. `"stop"`, because going on with a hole
            is your decision; `"gap"` goes on and leaves a row in `gaps`.
        reader: who fetches the messages on Spark. `"python"`, which needs no JAR; `"spark"` uses Spark's own
            connector, which has to be on the class path. The local engine always reads by itself, with the same rows.
        name: the source's name in its flow. The flow sets it.

    Raises `InvalidArgument`, `KeyAndValueClash`, `NoChangeRecords`, `ReservedColumn`, `SettingTaken`,
    `SecretInClear`, and `SettingNotShared`.
    """

    servers: str
    _: KW_ONLY
    topic: str | Sequence[str] | Topics
    format: MessageFormat
    key: MessageFormat | None = None
    envelope: Envelope = "append"
    start: Given = "earliest"
    settings: Mapping[str, Value] = field(default_factory=dict)
    group: str | None = None
    metadata: bool = False
    max_records_per_epoch: int = 10_000_000
    split_records: int = 1_000_000
    on_data_loss: Literal["stop", "gap"] = "stop"
    reader: Literal["python", "spark"] = "python"
    name: str = ""

    def __post_init__(self) -> None:
        for parameter, value in (("format", self.format), ("key", self.key)):
            if not isinstance(value, MessageFormat) and not (parameter == "key" and value is None):
                raise InvalidArgument(parameter=parameter, value=value, expected="a format of messages, like Json()")
        if self.key is not None and self.key.schema is None and self.format.schema is None:
            expected = "a format that declares its columns, as that of the values does not: it tells which are whose"
            raise InvalidArgument(parameter="key", value=self.key, expected=expected)
        check_envelope(self.envelope, self.format, self.key)
        for parameter in ("max_records_per_epoch", "split_records"):
            count = getattr(self, parameter)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InvalidArgument(parameter=parameter, value=count, expected="a whole number, at least 1")
        if self.on_data_loss not in ("stop", "gap"):
            raise InvalidArgument(parameter="on_data_loss", value=self.on_data_loss, expected="'stop' or 'gap'")
        if self.group is not None and not (isinstance(self.group, str) and 0 < len(self.group) <= 255):
            raise InvalidArgument(parameter="group", value=self.group, expected="a group's name, or None")
        if self.reader not in ("python", "spark"):
            raise InvalidArgument(parameter="reader", value=self.reader, expected="'python' or 'spark'")
        if self.reader == "spark":
            java(self.connection)
        for given in (self.topics, self.begin, self.connection, self.schema, self._inquiry):
            _ = given  # each raises what is wrong with it, and is what it is from now on

    @cached_property
    def topics(self) -> Topics:
        """Which topics are meant."""
        return named(self.topic)

    @cached_property
    def begin(self) -> Start:
        """Where the source begins."""
        return Start.of(self.start)

    @cached_property
    def connection(self) -> Settings:
        """How the cluster is reached."""
        return Settings.of(self.servers, self.settings)

    @property
    def unit(self) -> str:
        """Positions count records, the holes between them included."""
        return "records"

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The declared columns, metadata columns included, or None when they are to be inferred."""
        return self._joined(self._keys, self._values)

    @cached_property
    def _keys(self) -> pa.Schema | None:
        """The declared columns of keys, none without a format for them."""
        return pa.schema([]) if self.key is None else self.key.schema

    @cached_property
    def _values(self) -> pa.Schema | None:
        """The declared columns of the rows that values tell."""
        return row_columns(self.envelope, self.format, self.format.schema, self._keys)

    def _joined(self, keys: pa.Schema | None, values: pa.Schema | None) -> pa.Schema | None:
        if keys is None or values is None:
            return None
        return joined(keys, values, metadata=self.metadata, topics=self.topics, envelope=self.envelope)

    def _parts(self, bound: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
        """Return the bound columns of keys and of values. Raises `SchemaChanged`."""
        how = {"metadata": self.metadata, "source": self.name, "envelope": self.envelope}
        return key_and_value(bound, self._keys, self._values, **how)

    def unreadable(self, columns: pa.Schema) -> str:
        """Return why records cannot be read by columns that were declared before, "" if they can."""
        if self.envelope != "append":
            return f"the rows of envelope={self.envelope!r} are made of all columns of a message together"
        if isinstance(self.format, Avro) and self.format.registry is None:
            return "a schema of Avro without a registry is that of the messages, so it cannot be another one for some"
        try:
            keys, _ = self._parts(columns)
        except SchemaChanged as error:
            return METADATA_CHANGED if has_metadata(columns, MESSAGE) != self.metadata else error.summary
        return "" if self._keys is None or keys.equals(self._keys) else "the columns of the key never change"

    def placed(self, flow: str, name: str) -> KafkaSource:
        """Return the source as the one of this name in this flow, after which its group is named.

        Raises `KafkaMissing`: to be without the client is no state that passes while a flow waits.
        """
        kafka("confluent_kafka.admin")
        return replace(self, name=name, group=self.group or f"tidegauge.{flow}.{name}")

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON, with references in place of secrets."""
        topics = self.topics
        return {
            "kind": "kafka",
            **self.connection.describe(),
            "topic": {"pattern": topics.pattern} if topics.pattern else list(topics.names),
            "format": dict(self.format.describe()),
            "key": None if self.key is None else dict(self.key.describe()),
            **({} if self.envelope == "append" else {"envelope": self.envelope}),
            "start": self.begin.describe(),
            "group": self._group,
            "metadata": self.metadata,
            "max_records_per_epoch": self.max_records_per_epoch,
            "split_records": self.split_records,
            "on_data_loss": self.on_data_loss,
            "reader": self.reader,
        }

    @cached_property
    def _group(self) -> str:
        return self.group or "tidegauge"

    @cached_property
    def _inquiry(self) -> Inquiry:
        committed = self.connection.get("isolation.level", "read_committed") != "read_uncommitted"
        return Inquiry(
            name=self.name,
            servers=self.servers,
            topics=self.topics,
            start=self.begin,
            limit=self.max_records_per_epoch,
            committed=committed,
            stop=self.on_data_loss == "stop",
        )

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Ask the broker how far the topics are.

        Raises `TopicUnknown`, `NoTopicMatches`, `TopicDeleted`, `TopicRecreated`, `UpstreamRecreated`, `RecordsLost`,
        `NothingToInfer`, `KeyAndValueClash`, `SchemaChanged`, and what `tidegauge.kafka` raises.
        """
        if bound.schema is not None:
            self._parts(bound.schema)
        what = self._inquiry
        with admin(self.connection) as client:
            found, listing, note = survey(AskedCluster(client, self.servers), what, bound, now=now)
        schema = None if bound.schema is not None else self.schema or self._inferred(listing, what)
        return Observation(
            at=now,
            upper=found.upper,
            end=found.end,
            lower=Frontier(listing.lows),
            more=found.more,
            details=found.details,
            schema=schema,
            note=note,
            # With it the first probe is bound also when all partitions are empty, so where it began is durable.
            state=self._started(now) if bound.state is None else None,
            taken_back=found.taken_back,
        )

    def size(self, piece: Slice, bound: Bound) -> int:
        """Return the number of offsets from where the source begins."""
        return sum(part.size for part in begun([piece], bound))

    def cut(self, piece: Slice, size: int, bound: Bound) -> int:
        """Return where `size` offsets end from where the source begins: a partition can be cut anywhere."""
        return max([piece.lower, *(part.lower for part in begun([piece], bound))]) + size

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices into splits. The broker is asked whether it has them, unless it said so just now.

        Raises `RecordsLost`, `RangeOvertaken`, `TopicDeleted`, `TopicRecreated`, `UpstreamRecreated`.
        """
        schema = bound.schema or self.schema
        if schema is None:
            raise InvalidArgument(parameter="bound", value=bound, expected="a bound schema")
        self._parts(schema)
        pieces = begun(slices, bound)
        if gone := self._gone(pieces, bound):
            _piece, why = gone[0]
            raise why
        return list(planned(pieces, schema=schema, size=self.split_records))

    @property
    def loss(self) -> str:
        """The code of rows in `gaps`."""
        return RecordsLost.code

    def lost(self, slices: Sequence[Slice], bound: Bound) -> Sequence[Slice]:
        """Return the parts of slices that are gone and that are given up, which `on_data_loss="gap"` says."""
        if self.on_data_loss == "stop":
            return []
        return [piece for piece, _why in self._gone(begun(slices, bound), bound)]

    def _gone(self, pieces: Sequence[Slice], bound: Bound) -> list[tuple[Slice, Outrun]]:
        """Return the parts of slices that the broker has no longer, each with why."""
        if not pieces or seen(pieces, bound):
            return []
        with admin(self.connection) as client:
            return overtaken(AskedCluster(client, self.servers), self._inquiry, pieces, bound)

    def read(self, split: KafkaSplit | Piece, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split. Raises `RecordsLost`, `RangeOvertaken`, and what `tidegauge.kafka` raises."""
        parts = self._parts(split.schema)
        decoder = MessageDecoder(self.format, self.key, self.metadata, split.schema, *parts, self.envelope)
        if isinstance(split, Piece):
            yield decoder.decode(bulk_of(split), on_bad_record)
            return
        for bulk in messages(self.connection, self._group, split.ranges, self._inquiry, headers=self.metadata):
            yield decoder.decode(bulk, on_bad_record)

    @property
    def tells(self) -> bool:
        """Whether the columns of values are inferred, and their format tells of further ones."""
        return self.envelope == "append" and tells(self.format)

    def further(self, split: KafkaSplit, columns: pa.Schema) -> pa.Schema:
        """Return columns, and those that the values of a split's messages have besides. Raises as `read` does."""
        bulks = messages(self.connection, self._group, split.ranges, self._inquiry, headers=False)
        return further(bulks, self.format, *self._parts(columns), metadata=self.metadata)

    @property
    def framed(self) -> bool:
        """Whether Spark's own connector is to read."""
        return self.reader == "spark"

    def frame(self, session: Any, splits: Sequence[KafkaSplit]) -> Any:
        """Return the raw messages through Spark's own connector.

        Raises `ConnectorMissing`, `SettingNotShared`, `SecretUnavailable`.
        """
        size, headers = self.split_records, self.metadata
        return frame(session, self.connection, splits, source=self.name, size=size, headers=headers)

    def received(self, batches: Iterator[pa.RecordBatch], splits: Sequence[KafkaSplit]) -> Iterator[Split]:
        """Cut what comes from Spark's connector into pieces."""
        return received(batches, splits)

    def missing(self, splits: Sequence[KafkaSplit]) -> tuple[int, TidegaugeError] | None:
        """Return the first epoch with a message that the broker lacks, or that Spark cannot read; or None."""
        what = self._inquiry
        with admin(self.connection) as client:
            asked = AskedCluster(client, self.servers)
            found = missing(asked, what, splits)
            return found or beyond(asked, self.connection, self._group, what, splits)

    def confirm(self, bound: Bound) -> None:
        """Ask the broker whether the topics are those that are bound, by their ids.

        Raises `TopicDeleted`, `TopicRecreated`, `UpstreamRecreated`, and what `tidegauge.kafka` raises.
        """
        with admin(self.connection) as client:
            confirm(AskedCluster(client, self.servers), self._inquiry, bound)

    def acknowledge(self, frontier: Frontier) -> None:
        """Commit the offsets for the group, without joining it. All that it raises is transient."""
        with consumer(self.connection, self._group) as client:
            commit(client, self._group, dict(frontier.items()), servers=self.servers)

    def unacknowledged(self, frontier: Frontier) -> str:
        """Return what the group lacks of the offsets of a frontier, and why, as far as the broker says it."""
        with consumer(self.connection, self._group) as client:
            return lacking(client, self._group, dict(frontier.items()), servers=self.servers)

    def _started(self, now: datetime) -> SourceState:
        return SourceState(kind="kafka/started", source_id=self.servers, value={"at": now.isoformat()})

    def _inferred(self, listing: TopicListing, what: Inquiry) -> pa.Schema | None:
        """Return the columns that the first messages tell, None where the next look is to see."""
        return inferred(listing, partial(sample, self.connection, self._group, what=what), self._told)

    def _told(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> pa.Schema | None:
        """Return the columns that some messages tell, None if that is not all."""
        value = told(self.format.schema, self.format, values)
        key = told(self._keys, self.key, keys)
        return self._joined(key, row_columns(self.envelope, self.format, value, key))
