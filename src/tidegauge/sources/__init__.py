"""Sources: probe, plan, read, acknowledge."""

from tidegauge.sources.file import FileSource, FileSplit
from tidegauge.sources.formats import Avro, Csv, Json, Parquet, Protobuf, Raw, Registry, Text
from tidegauge.sources.generator import GeneratorSource, GeneratorSplit
from tidegauge.sources.kafka import KafkaSource, KafkaSplit, Topics
from tidegauge.sources.protocol import BadRecord, Source, Split

__all__ = [
    "Avro",
    "BadRecord",
    "Csv",
    "FileSource",
    "FileSplit",
    "GeneratorSource",
    "GeneratorSplit",
    "Json",
    "KafkaSource",
    "KafkaSplit",
    "Parquet",
    "Protobuf",
    "Raw",
    "Registry",
    "Source",
    "Split",
    "Text",
    "Topics",
]
