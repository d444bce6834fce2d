"""Formats: how bytes become rows.

Invariant: a format is a value. It holds configuration, can be pickled, and knows nothing of files, epochs or Spark.

>>> import io
>>> format = Json("id long, user string")
>>> stream = io.BytesIO(b'{"id": 1}')
>>> found = format.decode(stream, lower=0, upper=None, header=b"", schema=format.schema, on_bad=print)
>>> [decoded.rows.to_pylist() for decoded in found]
[[{'id': 1, 'user': None}]]
"""

from tidegauge.sources.formats.avro import Avro
from tidegauge.sources.formats.csv import Csv
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.messages import MessageFormat, Messages, OnBadMessage
from tidegauge.sources.formats.parquet import Parquet
from tidegauge.sources.formats.plain import Raw, Text
from tidegauge.sources.formats.protobuf import Protobuf
from tidegauge.sources.formats.protocol import Decoded, Format, LineFormat, OnBad, WholeFormat
from tidegauge.sources.formats.registry import Registry

__all__ = [
    "Avro",
    "Csv",
    "Decoded",
    "Format",
    "Json",
    "LineFormat",
    "MessageFormat",
    "Messages",
    "OnBad",
    "OnBadMessage",
    "Parquet",
    "Protobuf",
    "Raw",
    "Registry",
    "Text",
    "WholeFormat",
]
