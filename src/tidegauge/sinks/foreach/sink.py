"""A function of the user's as an output: it gets the rows of one epoch after the other, in the driver's process.

    <path>/progress.json         how far it is
    <path>/lock                  held by the driver that is in the function
    <path>/_staged/<job>/...     rows that wait for it

Invariant: the function has returned for every epoch before the upper, in order. It may have been called for the epoch
at the upper, any number of times, and for none after that: so it is called at least once for each epoch with rows.

The calls for one epoch have the same rows, as law 1 says, perhaps in another order. Each has an id of its own.

>>> import tempfile
>>> def show(rows: pa.RecordBatchReader, attempt: EpochAttempt) -> None:
...     print(attempt.epoch, rows.read_all().to_pylist())
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     sink = ForeachEpochSink(show, folder)
...     table = sink.open(OutputId("shop", "users", "0" * 32))
...     stager = sink.stage(schema, job="1" * 32, task=0)
...     stager.write(pa.record_batch({"user": ["ada", "bob"], "_epoch": [1, 0]}))
...     table.commit(0, 2, schema, stager.close(), write="2" * 32)
0 [{'user': 'bob', '_epoch': 0}]
1 [{'user': 'ada', '_epoch': 1}]
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.foreach.function import EpochAttempt, EpochFunction
from tidegauge.sinks.location import LocalFiles, local_folder
from tidegauge.sinks.ordered import OrderedStager
from tidegauge.sinks.protocol import OutputId

if TYPE_CHECKING:
    from tidegauge.sinks.foreach.output import FunctionOutput

__all__ = ["ForeachEpochSink"]


@dataclass(frozen=True)
class ForeachEpochSink:
    """Give the rows of each epoch to a function: in the driver, in the order of epochs, at least once.

    After a crash, or an error, the function gets the same epoch again. To be exactly once, it keeps the epoch in the
    transaction that writes the rows, and does nothing for an epoch that is there. An epoch without rows is left out.

    Args:
        function: called as `function(rows, attempt)` with a `pyarrow.RecordBatchReader` and an `EpochAttempt`. An
            `OSError`, such as a `ConnectionError`, is tried again after growing delays; any other fails the output.
        path: a folder, or a `file://` URI, that the tasks see too, for the output's progress and its staged rows.

    Raises `InvalidArgument`, and `UnsupportedLocation` for remote schemes.
    """

    function: EpochFunction = field(compare=False)
    path: str

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument(
                parameter="ForeachEpochSink(function)", value=self.function, expected="function(rows, attempt)"
            )
        object.__setattr__(self, "path", local_folder(self.path, sink="ForeachEpochSink"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the function where it is: tasks only stage. So it may hold what cannot be pickled."""
        return ForeachEpochSink, (_elsewhere, self.path)

    @property
    def identity(self) -> str:
        """The folder, without symbolic links."""
        return os.path.realpath(self.path)

    @property
    def shared(self) -> bool:
        """False: the folder belongs to one output."""
        return False

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"kind": "foreach", "path": self.path}

    def check(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedColumn`, `InvalidColumnName` or `EpochColumnMissing` when rows could not be staged."""
        rows_schema(schema)

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation in the progress file, None where there is none. Raises `ProgressFileDamaged`."""
        from tidegauge.sinks.foreach.progress import read

        found = read(self.path)
        return None if found is None or (found.flow, found.output) != (flow, output) else found.incarnation

    def open(self, output: OutputId) -> FunctionOutput:
        """Return how far the output is. Raises `ForeignTable`, `TableOfAnotherIncarnation`, `ProgressFileDamaged`."""
        from tidegauge.sinks.foreach.output import FunctionOutput  # tasks only stage

        return FunctionOutput(self.function, self.path, output)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> OrderedStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        return OrderedStager(LocalFiles(self.path), rows_schema(schema), job=job, task=task)


def _elsewhere(_rows: pa.RecordBatchReader, attempt: EpochAttempt) -> None:
    """Stand for the function in a copy of the sink: nothing is lost, as nothing counts as done."""
    raise RuntimeError(f"epoch {attempt.epoch} was given to a copy of the sink, which has no function")
