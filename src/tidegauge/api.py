"""All public names, as `import tidegauge as tg` has them.

They are a module of their own so that `tidegauge` itself is there at once, and loads them when the first is asked
for: that takes a second, in which a command can already be interrupted.
"""

from tidegauge.env import Env
from tidegauge.errors import TidegaugeError
from tidegauge.pipeline.backup import backup
from tidegauge.pipeline.bindings import bindings
from tidegauge.pipeline.compact import compact, hold, release
from tidegauge.pipeline.engine import LocalEngine, SparkEngine
from tidegauge.pipeline.flow import Dataflow, Stream
from tidegauge.pipeline.inspect import epochs, explain, status
from tidegauge.pipeline.locate import locate, origin
from tidegauge.pipeline.read import read, read_arrow
from tidegauge.pipeline.reclock import reclock_column
from tidegauge.pipeline.recover import recover
from tidegauge.pipeline.repair import repair
from tidegauge.pipeline.resume import resume
from tidegauge.pipeline.skip import skip
from tidegauge.pipeline.verify import verify
from tidegauge.remap.policy import Every, Manual
from tidegauge.sinks import DeltaSink, KafkaSink, ParquetSink
from tidegauge.sources import (
    Avro,
    Csv,
    FileSource,
    GeneratorSource,
    Json,
    KafkaSource,
    Parquet,
    Protobuf,
    Raw,
    Registry,
    Text,
    Topics,
)

__all__ = [
    "Avro",
    "Csv",
    "Dataflow",
    "DeltaSink",
    "Env",
    "Every",
    "FileSource",
    "GeneratorSource",
    "Json",
    "KafkaSink",
    "KafkaSource",
    "LocalEngine",
    "Manual",
    "Parquet",
    "ParquetSink",
    "Protobuf",
    "Raw",
    "Registry",
    "SparkEngine",
    "Stream",
    "Text",
    "TidegaugeError",
    "Topics",
    "backup",
    "bindings",
    "compact",
    "epochs",
    "explain",
    "hold",
    "locate",
    "origin",
    "read",
    "read_arrow",
    "reclock_column",
    "recover",
    "release",
    "repair",
    "resume",
    "skip",
    "status",
    "verify",
]
