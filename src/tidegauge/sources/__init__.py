"""Sources: probe, plan, read, acknowledge."""

from tidegauge.sources.file import FileSource, FileSplit
from tidegauge.sources.formats import Csv, Json, Parquet
from tidegauge.sources.generator import GeneratorSource, GeneratorSplit
from tidegauge.sources.protocol import BadRecord, Source, Split

__all__ = [
    "BadRecord",
    "Csv",
    "FileSource",
    "FileSplit",
    "GeneratorSource",
    "GeneratorSplit",
    "Json",
    "Parquet",
    "Source",
    "Split",
]
