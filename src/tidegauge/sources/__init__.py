"""Sources: probe, plan, read, acknowledge."""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.sources.batches.source import BatchSource as BatchSource
    from tidegauge.sources.batches.source import BatchSplit as BatchSplit
    from tidegauge.sources.bytewax.logged import BytewaxLogSource as BytewaxLogSource
    from tidegauge.sources.bytewax.source import BytewaxSource as BytewaxSource
    from tidegauge.sources.file.reading import FileSplit as FileSplit
    from tidegauge.sources.file.source import FileSource as FileSource
    from tidegauge.sources.formats.avro import Avro as Avro
    from tidegauge.sources.formats.csv import Csv as Csv
    from tidegauge.sources.formats.json import Json as Json
    from tidegauge.sources.formats.parquet import Parquet as Parquet
    from tidegauge.sources.formats.plain import Raw as Raw
    from tidegauge.sources.formats.plain import Text as Text
    from tidegauge.sources.formats.protobuf import Protobuf as Protobuf
    from tidegauge.sources.formats.registry import Registry as Registry
    from tidegauge.sources.generator import GeneratorSource as GeneratorSource
    from tidegauge.sources.generator import GeneratorSplit as GeneratorSplit
    from tidegauge.sources.kafka.inquiry import Topics as Topics
    from tidegauge.sources.kafka.planning import KafkaSplit as KafkaSplit
    from tidegauge.sources.kafka.source import KafkaSource as KafkaSource
    from tidegauge.sources.listings.source import ListingSource as ListingSource
    from tidegauge.sources.mysql.source import MySqlSource as MySqlSource
    from tidegauge.sources.polls.http import HttpSource as HttpSource
    from tidegauge.sources.polls.source import Fetched as Fetched
    from tidegauge.sources.polls.source import PollingSource as PollingSource
    from tidegauge.sources.postgres.source import PostgresSource as PostgresSource
    from tidegauge.sources.protocol import BadRecord as BadRecord
    from tidegauge.sources.protocol import Source as Source
    from tidegauge.sources.protocol import Split as Split
    from tidegauge.sources.push.protocol import DecodedLater as DecodedLater
    from tidegauge.sources.push.protocol import PushSource as PushSource
    from tidegauge.sources.push.protocol import Received as Received
    from tidegauge.sources.push.protocol import Subscription as Subscription
    from tidegauge.sources.push.socket import SocketSource as SocketSource
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "batches.source": "BatchSource BatchSplit",
            "bytewax.logged": "BytewaxLogSource",
            "bytewax.source": "BytewaxSource",
            "file.reading": "FileSplit",
            "file.source": "FileSource",
            "formats.avro": "Avro",
            "formats.csv": "Csv",
            "formats.json": "Json",
            "formats.parquet": "Parquet",
            "formats.plain": "Raw Text",
            "formats.protobuf": "Protobuf",
            "formats.registry": "Registry",
            "generator": "GeneratorSource GeneratorSplit",
            "kafka.inquiry": "Topics",
            "kafka.planning": "KafkaSplit",
            "kafka.source": "KafkaSource",
            "listings.source": "ListingSource",
            "mysql.source": "MySqlSource",
            "polls.http": "HttpSource",
            "polls.source": "Fetched PollingSource",
            "postgres.source": "PostgresSource",
            "protocol": "BadRecord Source Split",
            "push.protocol": "DecodedLater PushSource Received Subscription",
            "push.socket": "SocketSource",
        },
    )
