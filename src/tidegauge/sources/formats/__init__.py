"""Formats: how bytes become rows.

Invariant: a format is a value. It holds configuration, can be pickled, and knows nothing of files, epochs or Spark.

>>> import io
>>> from tidegauge.sources.formats import Json
>>> format = Json("id long, user string")
>>> stream = io.BytesIO(b'{"id": 1}')
>>> found = format.decode(stream, lower=0, upper=None, header=b"", schema=format.schema, on_bad=print)
>>> [decoded.rows.to_pylist() for decoded in found]
[[{'id': 1, 'user': None}]]
"""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.sources.formats.avro import Avro as Avro
    from tidegauge.sources.formats.csv import Csv as Csv
    from tidegauge.sources.formats.json import Json as Json
    from tidegauge.sources.formats.messages import MessageFormat as MessageFormat
    from tidegauge.sources.formats.messages import MessageRows as MessageRows
    from tidegauge.sources.formats.messages import OnBadMessage as OnBadMessage
    from tidegauge.sources.formats.parquet import Parquet as Parquet
    from tidegauge.sources.formats.plain import Raw as Raw
    from tidegauge.sources.formats.plain import Text as Text
    from tidegauge.sources.formats.protobuf import Protobuf as Protobuf
    from tidegauge.sources.formats.protocol import Decoded as Decoded
    from tidegauge.sources.formats.protocol import Format as Format
    from tidegauge.sources.formats.protocol import LineFormat as LineFormat
    from tidegauge.sources.formats.protocol import OnBad as OnBad
    from tidegauge.sources.formats.protocol import WholeFormat as WholeFormat
    from tidegauge.sources.formats.registry import Registry as Registry
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "avro": "Avro",
            "csv": "Csv",
            "json": "Json",
            "messages": "MessageFormat MessageRows OnBadMessage",
            "parquet": "Parquet",
            "plain": "Raw Text",
            "protobuf": "Protobuf",
            "protocol": "Decoded Format LineFormat OnBad WholeFormat",
            "registry": "Registry",
        },
    )
