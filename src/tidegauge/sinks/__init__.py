"""Sinks: stage in tasks, commit in the driver."""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.sinks.delta.sink import DeltaSink as DeltaSink
    from tidegauge.sinks.foreach.function import EpochAttempt as EpochAttempt
    from tidegauge.sinks.foreach.sink import ForeachEpochSink as ForeachEpochSink
    from tidegauge.sinks.iceberg.sink import IcebergSink as IcebergSink
    from tidegauge.sinks.kafka.sink import KafkaSink as KafkaSink
    from tidegauge.sinks.memory import MemorySink as MemorySink
    from tidegauge.sinks.parquet.sink import ParquetSink as ParquetSink
    from tidegauge.sinks.postgres.sink import PostgresSink as PostgresSink
    from tidegauge.sinks.protocol import OutputId as OutputId
    from tidegauge.sinks.protocol import Sink as Sink
    from tidegauge.sinks.protocol import StagedFile as StagedFile
    from tidegauge.sinks.protocol import Stager as Stager
    from tidegauge.sinks.protocol import Table as Table
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "delta.sink": "DeltaSink",
            "foreach.function": "EpochAttempt",
            "foreach.sink": "ForeachEpochSink",
            "iceberg.sink": "IcebergSink",
            "kafka.sink": "KafkaSink",
            "memory": "MemorySink",
            "parquet.sink": "ParquetSink",
            "postgres.sink": "PostgresSink",
            "protocol": "OutputId Sink StagedFile Stager Table",
        },
    )
