"""`format("tidegauge")`: a Python data source of Spark, for tables and for streams; and for queries that write.

    tg.register(spark)
    spark.read.format("tidegauge").option("store", ...).option("flow", ...).option("output", ...).load()
    frame.writeStream.format("tidegauge").option("path", ...).queryName(...)

Spark makes these objects in Python processes of the driver, or of the Connect server, and pickles them to where tasks
run. So this package has to be installed there.

Invariant: an object holds the options, and for a table the epoch that was settled when it was loaded; nothing open,
and no secret. So a frame shows the same epoch however often it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.readers import SparkTooOld
from tidegauge.looking.datasource.columns import check_columns, columns_of
from tidegauge.looking.datasource.options import Options
from tidegauge.looking.datasource.planning import read
from tidegauge.looking.datasource.portions import of_view
from tidegauge.looking.datasource.stored import stored

__all__ = ["TidegaugeDataSource", "register"]

LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark tells a stream where its query is, and how much it may read: since 4.2."""


def register(spark: Any) -> None:
    """Make the format `tidegauge` known to a session, classic or Connect: `read`, `readStream` and `writeStream`.

    A classic one becomes the active session of this thread: that is the one where Spark looks for the format when a
    query starts that writes, whichever session the query is of.
    """
    spark.dataSource.register(TidegaugeDataSource)
    spark.createDataFrame([], "n int")  # PySpark makes a session active by that; on Connect it does nothing


class TidegaugeDataSource(DataSource):
    """An output of a flow, or the place of a query's batches. It is given `Options`, or those of `StreamWriter`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._epoch: int | None = None
        named = {name.lower() for name in options}
        if "store" in named or "path" not in named:  # otherwise of a query that writes
            _ = self._given

    @property
    def _given(self) -> Options:
        return Options.of(self.options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tidegauge"

    def schema(self) -> StructType:
        """Return the columns of the table, and settle the epoch that it is read as of."""
        options = self._given
        with stored(options) as output:
            view = output.view(options.as_of)
            self._epoch = view.epoch
            return columns_of(view, output.name, changes=options.changes)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads it as a table."""
        self._given.check_batch()
        epoch = self._given.as_of if self._epoch is None else self._epoch
        if not isinstance(epoch, int):  # columns were given, so nothing has been settled, and nothing keeps it
            expected = "an epoch, where .schema(...) says the columns"
            raise InvalidArgument(parameter="asOf", value=self._given.as_of, expected=expected)
        return TableReader(self._given, epoch, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what follows it."""
        self._given.check_stream()
        if LIMITS:
            from tidegauge.looking.datasource.limited import LimitedReader

            return LimitedReader(self._given, schema)
        if self._given.epochs is not None:
            raise SparkTooOld(feature="maxEpochsPerTrigger", needed="4.2", version=pyspark.__version__)
        from tidegauge.looking.datasource.unlimited import UnlimitedReader

        return UnlimitedReader(self._given, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802
        """Return what writes a query's batches."""
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            raise SparkTooOld(feature="writeStream.format('tidegauge')", needed="4.1", version=pyspark.__version__)
        from tidegauge.looking.datasource.writer import StreamWriter

        return StreamWriter(self.options, complete=overwrite)


class TableReader(DataSourceReader):
    """Reads an output as of an epoch, a portion of its files in each task."""

    def __init__(self, options: Options, epoch: int, schema: StructType) -> None:
        self._options = options
        self._epoch = epoch
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the portions."""
        with stored(self._options) as output:
            view = output.view(self._epoch)
            check_columns(view, output.name, self._schema, changes=False)
            return [InputPartition(portion) for portion in of_view(output.name, view, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a portion."""
        return read(partition, self._schema)
