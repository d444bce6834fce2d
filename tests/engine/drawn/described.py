"""A small flow as plain data: what its files hold, its outputs, and their steps as they are called on a stream.

Invariant: the same description makes the same flow, in any process, over the same files.

>>> import json
>>> from dataclasses import asdict
>>> described = Described({"a": (('{"id": 1}',),)}, 300, (Output("a", (("filter", "id > 0"),), "parquet"),))
>>> described_by(json.loads(json.dumps(asdict(described)))) == described
True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

import tidegauge as tg

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

Called: TypeAlias = tuple[Any, ...]
"""A step: the name of a method, and what it is called with. The last of `partition` and `split_by` is the part."""

COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a": "id long, n int, x double, user string, at timestamp, day date, flag boolean, tags array<string>, "
        "items array<struct<sku:string,n:long>>, place struct<lat:double,deep:struct<n:int>>, money decimal(10,2)",
        "b": "id long, user string, till int, wall timestamp_ntz, tags array<string>",
    }
)
UNLUCKY: Final = 13
"""The id that `raising` does not take."""


@dataclass(frozen=True)
class Output:
    """source: 'a', 'b', their union 'both', or one of them with '.errors'. sink: its form, and a key for 'upsert'."""

    source: str
    steps: tuple[Called, ...]
    sink: str


@dataclass(frozen=True)
class Described:
    """files: of each source, the lines of each file. bytes: how many of them an epoch takes at most."""

    files: Mapping[str, tuple[tuple[str, ...], ...]]
    bytes: int
    outputs: tuple[Output, ...]

    @property
    def names(self) -> list[str]:
        """The outputs' names, in their order."""
        return [f"o{number}" for number in range(len(self.outputs))]


def described_by(data: Mapping[str, Any]) -> Described:
    """Return the description of its JSON data."""
    files = {name: tuple(map(tuple, of)) for name, of in data["files"].items()}
    outputs = [Output(of["source"], tuple(map(_called, of["steps"])), of["sink"]) for of in data["outputs"]]
    return Described(files, data["bytes"], tuple(outputs))


def _called(step: Any) -> Called:
    return tuple(tuple(part) if isinstance(part, list) else part for part in step)


def write(described: Described, folder: Path) -> None:
    """Write the files."""
    for name, files in described.files.items():
        (folder / name).mkdir(parents=True)
        for number, lines in enumerate(files):
            (folder / name / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def flow_of(described: Described, files: Path, root: Path, names: Collection[str]) -> tg.Dataflow:
    """Return the flow with these of its outputs, whose store and tables are in a folder."""
    flow = tg.Dataflow("any", store=f"sqlite:///{root}/flow.db", tick=0.01)
    streams = {}
    for name in described.files:
        lines = tg.FileSource(
            f"{files}/{name}/*.jsonl",
            format=tg.Json(COLUMNS[name]),
            max_bytes_per_epoch=described.bytes,
            split_bytes=described.bytes // 3 + 1,
        )
        streams[name] = flow.source(name, lines, required=True)
    if len(streams) > 1:
        streams["both"] = flow.source("both", tg.union(*streams.values()))
    for name, output in zip(described.names, described.outputs, strict=True):
        if name in names:
            source, _, errors = output.source.partition(".")
            stream = streams[source].errors if errors else streams[source]
            for step in output.steps:
                stream = then(stream, step)
            flow.sink(name, stream, _sink(output.sink, f"{root}/lake/{name}"))
    return flow


def then(stream: tg.RowStream, step: Called) -> tg.RowStream:
    """Call a step on a stream."""
    match step:
        case ("map_batches", str(name)):
            return stream.map_batches(FUNCTIONS[name])
        case ("transform", str(name)):
            return stream.transform(FRAMES[name])
        case ("partition", int(parts), *key, part):
            return stream.partition(parts, *key)[part]
        case ("split_by", str(column), values, value):
            streams = stream.split_by(column, values)
            return streams.rest if value is None else streams[value]
        case (str(word), *rest):
            made: tg.RowStream = getattr(stream, word)(*rest)
            return made
    raise ValueError(step)


def _sink(form: str, path: str) -> Any:
    match form.split():
        case ["memory"]:
            return tg.MemorySink()
        case ["delta"]:
            return tg.DeltaSink(path)
        case ["upsert", key]:
            return tg.DeltaSink(path, envelope="upsert", key=key)
    return tg.ParquetSink(path)


def as_it_is(batch: Any) -> Any:
    return batch


def marked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Say of each row whether its first column is null."""
    return batch.append_column("none", pc.is_null(batch.column(0)))


def twice(batch: pa.RecordBatch) -> pa.Table:
    """Each row two times, one after the other; as a table."""
    places = pa.array([row for row in range(batch.num_rows) for _ in range(2)], pa.int64())
    return pa.Table.from_batches([batch.take(places)])


def present(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Those with a first column."""
    return batch.filter(pc.is_valid(batch.column(0)))


def backwards(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns, the last one first."""
    return batch.select(batch.schema.names[::-1])


def raising(batch: pa.RecordBatch) -> pa.RecordBatch:
    if UNLUCKY in batch.column("id").to_pylist():
        raise ValueError("an unlucky id")
    return batch


def wrong(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A column of another type, where there are rows at all."""
    return batch.set_column(0, "id", pa.array(["x"] * batch.num_rows)) if batch.num_rows else batch


FUNCTIONS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {function.__name__: function for function in (as_it_is, marked, twice, present, backwards, raising, wrong)}
)


def counted(frame: Any) -> Any:
    return frame.groupBy("_epoch", "user").count()


def known(frame: Any) -> Any:
    return frame.where("user IS NOT NULL")


def unready(frame: Any) -> Any:
    return frame.select("user", "nothing", "_epoch")


FRAMES: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {function.__name__: function for function in (as_it_is, counted, known, unready)}
)
