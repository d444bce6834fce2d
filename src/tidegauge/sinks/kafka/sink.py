"""A Kafka topic as an output: tasks make messages of rows and stage them, the driver sends them, exactly once.

    tasks     rows -> messages (key, value, headers, ...) -> Arrow files in a folder that the driver sees
    driver    those of a span of epochs, in order -> one transaction, with the progress record in it

Invariant: what readers of committed messages see is, for each epoch, all of its messages or none, each once. The
progress record in the same transaction is the output's upper; there is no other copy of it.

>>> sink = KafkaSink("localhost:9092", topic="orders", key="id", staging="/mnt/shared/staging")
>>> sink.describe()
{'kind': 'kafka', 'servers': 'localhost:9092', 'topic': 'orders', 'key': 'id', 'staging': '/mnt/shared/staging'}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from typing import Any, Final, get_args

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafka import SettingTaken
from tidegauge.kafka import Settings
from tidegauge.kafka.clients import admin
from tidegauge.kafka.cluster import described
from tidegauge.kafka.settings import Value
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.envelope import KafkaEnvelope, check_envelope, named_columns
from tidegauge.sinks.kafka.messages import MessageLayout
from tidegauge.sinks.kafka.output import TopicOutput, transactional_id
from tidegauge.sinks.kafka.progress import key_of
from tidegauge.sinks.kafka.staging import MessageStager
from tidegauge.sinks.kafka.topics import scan
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.protocol import OutputId
from tidegauge.sinks.temporary import make_if_own, own_folder, staging_folder

__all__ = ["KafkaSink"]

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._:/-]{0,128}")
_COLUMNS: Final = ("key", "value", "headers", "partition", "timestamp", "envelope", "deleted", "order")
_SHOWN: Final = (*_COLUMNS, "exactly_once", "partitions", "progress_topic", "transactional_id_prefix")


@dataclass(frozen=True)
class KafkaSink:
    """Write an output to a topic.

    Args:
        servers: `host:port` of one broker, or of several with commas.
        topic: the topic to write to.
        key: the column of the message's key, or columns; None for no key. A string or binary column is used
            unchanged, any other as JSON; several make a JSON object.
        value: the name of one string or binary column for its bytes unchanged, or columns for a JSON object of these.
            None, for a JSON object of all columns that are not used below.
        headers: a column with a map, or with a list of `key` and `value`.
        partition: a column of partition numbers. Without it, and for a null, the hash of the key decides as in Java's
            client, so that other producers agree.
        timestamp: a column of instants. Without it, and for a null, the time of sending.
        envelope: `"append"`, because a stream need not have keys; `"upsert"`, to send the last row of each key in
            each epoch, and a tombstone for a null value, a true `deleted` column or the operation `delete`; or
            `"debezium"`, to send what each epoch did to the row of each key: `before`, `after` and `op`.
        deleted: for upserts, a column of booleans; true makes a tombstone.
        order: the column whose greatest value marks the last row of a key, where an envelope asks for it.
        exactly_once: send each commit as one transaction. False for at least once, if you cannot have transactions.
        partitions: create a missing topic with this number of partitions. None, so that a mistyped name is an error
            and not a new topic.
        progress_topic: where the progress of outputs is kept; created if missing.
        transactional_id_prefix: put before the transactional id, for the ACLs of a cluster.
        settings: passed on to librdkafka. Give secrets as `env:NAME` or `file:PATH`.
        staging: a folder that the driver and the tasks share, needed if they are on several machines. None stands for
            a folder in the system's temporary directory.

    Raises `InvalidArgument`, `SettingTaken`, `SecretInClear`, `UnsupportedLocation`.
    """

    servers: str
    _: KW_ONLY
    topic: str
    key: str | Sequence[str] | None = None
    value: str | Sequence[str] | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    envelope: KafkaEnvelope = "append"
    deleted: str | None = None
    order: str | None = None
    exactly_once: bool = True
    partitions: int | None = None
    progress_topic: str = "tidegauge-progress"
    transactional_id_prefix: str = ""
    settings: Mapping[str, Value] = field(default_factory=dict, hash=False)
    staging: str | None = None

    def __post_init__(self) -> None:
        for name in ("key", "value"):
            object.__setattr__(self, name, named_columns("KafkaSink", name, getattr(self, name)))
        for name in ("topic", "progress_topic"):
            _check_topic(name, getattr(self, name))
        if self.topic == self.progress_topic:
            raise _invalid("progress_topic", self.progress_topic, "a topic of its own")
        check_envelope("KafkaSink", self.envelope, self.key, {"order": self.order}, known=get_args(KafkaEnvelope))
        if self.deleted is not None and self.envelope != "upsert":
            raise _invalid("deleted", self.deleted, "it together with envelope='upsert'")
        if self.envelope == "debezium" and isinstance(self.value, str):
            raise _invalid("value", self.value, "a list of columns, as a change has the row as JSON")
        if self.partitions is not None and (type(self.partitions) is not int or self.partitions < 1):
            raise _invalid("partitions", self.partitions, "a number from 1, or None")
        if _PREFIX.fullmatch(self.transactional_id_prefix) is None:
            raise _invalid(
                "transactional_id_prefix", self.transactional_id_prefix, "letters, digits and any of ._:/-"
            )
        if "isolation.level" in self.settings:
            raise SettingTaken(setting="isolation.level", why="what an output holds is read from committed messages")
        _ = self.connection  # it raises what is wrong with the settings
        object.__setattr__(self, "settings", dict(self.settings))
        object.__setattr__(self, "staging", staging_folder(self.staging, sink="KafkaSink"))

    @cached_property
    def connection(self) -> Settings:
        """How the cluster is reached."""
        return Settings.of(self.servers, self.settings)

    @cached_property
    def _layout(self) -> MessageLayout:
        own: Any = {name: getattr(self, name) for name in _COLUMNS}
        return MessageLayout(self.topic, **own)

    @property
    def identity(self) -> str:
        """The topic, at these brokers in any order. Whether other brokers are of the same cluster nobody asks."""
        servers = sorted(self.servers.lower().split(","))
        return f"kafka:{','.join(servers)}/{self.topic}"

    @property
    def shared(self) -> bool:
        """True: each output has a progress record, and transactions, of its own."""
        return True

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON, with references in place of secrets, and without default values."""
        usual = {found.name: found.default for found in fields(self)}
        names = [name for name in _SHOWN if getattr(self, name) != usual[name]]
        settings = {"settings": dict(self.settings)} if self.settings else {}
        said = {name: list(v) if isinstance(v := getattr(self, name), tuple) else v for name in names}
        where = {} if self.staging == own_folder() else {"staging": self.staging}
        return {"kind": "kafka", "servers": self.servers, "topic": self.topic, **said, **settings, **where}

    @property
    def applies(self) -> bool:
        """Whether it takes rows with an operation."""
        return self.envelope != "append"

    def check(self, schema: pa.Schema) -> None:
        """Raise `ColumnUnfit`, `UnsupportedColumn` or `EpochColumnMissing` when rows could not be made messages."""
        self._layout.check(rows_schema(schema))

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation in the last progress record, None where there is none. Raises as `open` does."""
        key = key_of(OutputId(flow, output, ""), self.topic)
        with admin(self.connection) as client:
            if self.progress_topic not in described(client, [self.progress_topic], servers=self.servers):
                return None
        last = scan(self.connection, self.progress_topic, key, true_end=False, env=Env())
        return None if last is None else str(last.incarnation)

    def open(self, output: OutputId) -> TopicOutput:
        """Return what the topic holds now. Asks the broker, and changes nothing there.

        Raises `TopicMissing`, `TableOfAnotherIncarnation`, `ProgressRegressed`, `DamagedProgress`, errors of the
        broker.
        """
        prefix = self.transactional_id_prefix
        return TopicOutput(
            self.connection,
            self._layout,
            output,
            id=transactional_id(output, self.topic, prefix=prefix) if self.exactly_once else "",
            progress_topic=self.progress_topic,
            partitions=self.partitions,
            folder=self._folder,
        )

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> MessageStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        make_if_own(self.staging, sink="KafkaSink")
        return MessageStager(LocalFiles(self._folder), self._layout, schema, job=job, task=task)

    @property
    def _folder(self) -> str:
        return f"{self.staging}/{self.topic}"


def _check_topic(name: str, topic: Any) -> None:
    if not isinstance(topic, str) or _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        raise _invalid(name, topic, "the name of a topic: at most 249 letters, digits and any of ._-")


def _invalid(name: str, value: Any, expected: str) -> InvalidArgument:
    return InvalidArgument(parameter=f"KafkaSink({name})", value=value, expected=expected)
