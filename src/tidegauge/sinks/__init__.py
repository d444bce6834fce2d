"""Sinks: stage in tasks, commit in the driver."""

from tidegauge.sinks.delta import DeltaSink
from tidegauge.sinks.kafka import KafkaSink
from tidegauge.sinks.parquet import ParquetSink
from tidegauge.sinks.protocol import OutputId, Sink, StagedFile, Stager, Table

__all__ = ["DeltaSink", "KafkaSink", "OutputId", "ParquetSink", "Sink", "StagedFile", "Stager", "Table"]
