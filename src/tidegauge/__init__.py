"""Many sources, one durable timeline of epochs, many Spark tables that agree, exactly once.

A flow binds the clocks of its sources (file positions, offsets, row numbers) to one count of epochs, durably, and
writes every epoch to every output exactly once.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> clicks = flow.source("clicks", tg.FileSource("landing/*.jsonl", format=tg.Json("user string, page string")))
>>> flow.sink("clicks", clicks, tg.DeltaSink("lake/clicks"))

`flow.run()` runs it; `tg.read` and `tg.read_arrow` give its tables back, all at one epoch.
"""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.dsl.dataflow import Dataflow as Dataflow
    from tidegauge.dsl.past import From as From
    from tidegauge.dsl.shared import shared as shared
    from tidegauge.dsl.stream import RowStream as RowStream
    from tidegauge.dsl.stream import StreamParts as StreamParts
    from tidegauge.dsl.union import union as union
    from tidegauge.engine.local import LocalEngine as LocalEngine
    from tidegauge.engine.sail.engine import SailEngine as SailEngine
    from tidegauge.engine.spark.engine import SparkEngine as SparkEngine
    from tidegauge.env import Env as Env
    from tidegauge.errors.base import TidegaugeError as TidegaugeError
    from tidegauge.flow.publication import Publication as Publication
    from tidegauge.looking.asof import AsOf as AsOf
    from tidegauge.looking.bindings import bindings as bindings
    from tidegauge.looking.bindings import reclock_column as reclock_column
    from tidegauge.looking.datasource.source import register as register
    from tidegauge.looking.inspect import epochs as epochs
    from tidegauge.looking.inspect import explain as explain
    from tidegauge.looking.inspect import outputs as outputs
    from tidegauge.looking.inspect import status as status
    from tidegauge.looking.locate import locate as locate
    from tidegauge.looking.locate import origin as origin
    from tidegauge.looking.read import read as read
    from tidegauge.looking.read import read_arrow as read_arrow
    from tidegauge.looking.scan import scan as scan
    from tidegauge.looking.scan import scan_arrow as scan_arrow
    from tidegauge.looking.snapshot import Snapshot as Snapshot
    from tidegauge.looking.snapshot import duckdb as duckdb
    from tidegauge.looking.snapshot import scan_polars as scan_polars
    from tidegauge.looking.snapshot import snapshot as snapshot
    from tidegauge.looking.verify import verify as verify
    from tidegauge.looking.waiting import wait_for as wait_for
    from tidegauge.looking.waiting import wait_until as wait_until
    from tidegauge.maintenance.compact import compact as compact
    from tidegauge.maintenance.compact import hold as hold
    from tidegauge.maintenance.compact import release as release
    from tidegauge.maintenance.loading import Load as Load
    from tidegauge.maintenance.loading import load as load
    from tidegauge.maintenance.maintain import maintain as maintain
    from tidegauge.maintenance.outputs import add as add
    from tidegauge.maintenance.outputs import drop as drop
    from tidegauge.maintenance.outputs import from_here as from_here
    from tidegauge.maintenance.outputs import limit as limit
    from tidegauge.maintenance.outputs import pause as pause
    from tidegauge.maintenance.outputs import rebuild as rebuild
    from tidegauge.maintenance.outputs import replace as replace
    from tidegauge.maintenance.outputs import unpause as unpause
    from tidegauge.maintenance.recover import recover as recover
    from tidegauge.maintenance.repair import repair as repair
    from tidegauge.maintenance.resume import resume as resume
    from tidegauge.maintenance.resume import skip as skip
    from tidegauge.maintenance.store import backup as backup
    from tidegauge.remap.policy import Every as Every
    from tidegauge.remap.policy import Manual as Manual
    from tidegauge.sinks.delta.sink import DeltaSink as DeltaSink
    from tidegauge.sinks.foreach.function import EpochAttempt as EpochAttempt
    from tidegauge.sinks.foreach.sink import ForeachEpochSink as ForeachEpochSink
    from tidegauge.sinks.iceberg.sink import IcebergSink as IcebergSink
    from tidegauge.sinks.kafka.sink import KafkaSink as KafkaSink
    from tidegauge.sinks.layout.transforms import bucket as bucket
    from tidegauge.sinks.layout.transforms import day as day
    from tidegauge.sinks.layout.transforms import hour as hour
    from tidegauge.sinks.layout.transforms import month as month
    from tidegauge.sinks.memory import MemorySink as MemorySink
    from tidegauge.sinks.parquet.sink import ParquetSink as ParquetSink
    from tidegauge.sinks.postgres.sink import PostgresSink as PostgresSink
    from tidegauge.sources.batches.source import BatchSource as BatchSource
    from tidegauge.sources.batches.streaming import write_batches as write_batches
    from tidegauge.sources.bytewax.logged import BytewaxLogSource as BytewaxLogSource
    from tidegauge.sources.bytewax.source import BytewaxSource as BytewaxSource
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
    from tidegauge.sources.kafka.inquiry import Topics as Topics
    from tidegauge.sources.kafka.source import KafkaSource as KafkaSource
    from tidegauge.sources.listings.source import ListingSource as ListingSource
    from tidegauge.sources.mysql.source import MySqlSource as MySqlSource
    from tidegauge.sources.polls.http import HttpSource as HttpSource
    from tidegauge.sources.polls.source import Fetched as Fetched
    from tidegauge.sources.polls.source import PollingSource as PollingSource
    from tidegauge.sources.postgres.source import PostgresSource as PostgresSource
    from tidegauge.sources.push.socket import SocketSource as SocketSource
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "env": "Env",
            "errors.base": "TidegaugeError",
            "maintenance.store": "backup",
            "flow.publication": "Publication",
            "looking.asof": "AsOf",
            "looking.bindings": "bindings reclock_column",
            "maintenance.compact": "compact hold release",
            "engine.local": "LocalEngine",
            "engine.sail.engine": "SailEngine",
            "engine.spark.engine": "SparkEngine",
            "dsl.dataflow": "Dataflow",
            "dsl.past": "From",
            "dsl.shared": "shared",
            "dsl.union": "union",
            "looking.datasource.source": "register",
            "dsl.stream": "RowStream StreamParts",
            "looking.inspect": "epochs explain outputs status",
            "looking.locate": "locate origin",
            "looking.read": "read read_arrow",
            "maintenance.loading": "Load load",
            "maintenance.maintain": "maintain",
            "maintenance.outputs": "add drop from_here limit pause rebuild replace unpause",
            "maintenance.recover": "recover",
            "maintenance.repair": "repair",
            "maintenance.resume": "resume skip",
            "looking.scan": "scan scan_arrow",
            "looking.snapshot": "Snapshot duckdb scan_polars snapshot",
            "looking.verify": "verify",
            "looking.waiting": "wait_for wait_until",
            "remap.policy": "Every Manual",
            "sinks.delta.sink": "DeltaSink",
            "sinks.foreach.function": "EpochAttempt",
            "sinks.foreach.sink": "ForeachEpochSink",
            "sinks.iceberg.sink": "IcebergSink",
            "sinks.kafka.sink": "KafkaSink",
            "sinks.layout.transforms": "bucket day hour month",
            "sinks.memory": "MemorySink",
            "sinks.parquet.sink": "ParquetSink",
            "sinks.postgres.sink": "PostgresSink",
            "sources.batches.source": "BatchSource",
            "sources.batches.streaming": "write_batches",
            "sources.bytewax.logged": "BytewaxLogSource",
            "sources.bytewax.source": "BytewaxSource",
            "sources.file.source": "FileSource",
            "sources.formats.avro": "Avro",
            "sources.formats.csv": "Csv",
            "sources.formats.json": "Json",
            "sources.formats.parquet": "Parquet",
            "sources.formats.plain": "Raw Text",
            "sources.formats.protobuf": "Protobuf",
            "sources.formats.registry": "Registry",
            "sources.generator": "GeneratorSource",
            "sources.kafka.source": "KafkaSource",
            "sources.kafka.inquiry": "Topics",
            "sources.listings.source": "ListingSource",
            "sources.mysql.source": "MySqlSource",
            "sources.polls.http": "HttpSource",
            "sources.polls.source": "Fetched PollingSource",
            "sources.postgres.source": "PostgresSource",
            "sources.push.socket": "SocketSource",
        },
    )
