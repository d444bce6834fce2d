"""A simulated table whose rows change places with others answers as a Delta table does, whatever is asked."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep
from tests.testing.simulation.test_table_parity import OTHER, OURS, SCHEMA, Drivers, history, in_memory, on_disk, stem

from tidegauge.errors.base import TidegaugeError
from tidegauge.sinks import DeltaSink, StagedFile


class Step(NamedTuple):
    """A call of one of two drivers. far: how long a span is. edition: one of a few. schema: which columns."""

    call: str
    who: int
    far: int
    edition: int
    schema: int


CALLS = ["stage"] * 3 + ["commit"] * 3 + ["reopen", "replacement", "replacement", "withdraw", "keep", "look", "look"]
STEP = st.builds(
    Step,
    call=st.sampled_from(CALLS),
    who=st.integers(0, 1),
    far=st.sampled_from([1, 1, 2, 3]),
    edition=st.integers(1, 3),
    schema=st.sampled_from([0, 0, 0, 1]),
)

SLEPT = (
    Step("stage", 0, 1, 1, 0),
    Step("commit", 0, 2, 1, 0),
    Step("reopen", 1, 1, 1, 0),
    Step("replacement", 0, 1, 1, 0),
    Step("replacement", 1, 1, 2, 0),
    Step("stage", 0, 1, 1, 1),
    Step("commit", 0, 3, 1, 1),  # with other columns
    Step("look", 0, 1, 1, 0),
    Step("stage", 1, 1, 1, 0),
    Step("commit", 1, 2, 1, 0),  # it slept
    Step("reopen", 1, 1, 1, 0),
    Step("withdraw", 1, 1, 3, 0),
    Step("commit", 0, 1, 1, 1),  # its rows have got another edition
    Step("look", 0, 1, 1, 0),
)


class Both:
    """Two drivers of one table, each with what it opened: the table, or what is to take its place."""

    def __init__(self, drivers: Drivers) -> None:
        self.drivers = drivers
        self.tables: list[Any] = [drivers.sink.open(OURS) for _ in range(2)]
        self.opened: list[Any] = [*self.tables]
        self.staged: list[list[StagedFile]] = [[], []]

    def act(self, step: Step, number: int) -> Any:
        """Do a step. Return what is to be the same for every sink: the fault, or the answer."""
        try:
            return getattr(self, f"_{step.call}")(step, number)
        except (TidegaugeError, OSError) as error:
            return type(error)

    def _stage(self, step: Step, number: int) -> Any:
        columns, lower = (SCHEMA, OTHER)[step.schema], self.tables[step.who].upper
        rows = [{columns.names[0]: f"step {number}", "_epoch": lower + n} for n in range(step.far)]
        stager = self.drivers.sink.stage(columns, job=f"{OURS.incarnation[-16:]}{number:016x}", task=step.who)
        for row in rows:
            stager.write(_batch(row, step.schema))
        self.staged[step.who] = stager.close()
        return [(stem(file), file.rows) for file in self.staged[step.who]]

    def _commit(self, step: Step, number: int) -> Any:
        table, files = self.tables[step.who], self.staged[step.who]
        lower = table.upper
        upper = max([lower + step.far, *(file.last_epoch + 1 for file in files)])
        write = f"{OURS.incarnation[-16:]}{number:016x}"
        columns = (SCHEMA, OTHER)[step.schema]
        table.commit(lower, upper, columns, files, write=write, history=history("ours", lower, upper))
        self.staged[step.who] = []

    def _reopen(self, step: Step, _number: int) -> Any:
        self.opened[step.who] = self.tables[step.who] = self.drivers.sink.open(OURS)

    def _replacement(self, step: Step, _number: int) -> Any:
        if self.opened[step.who].upper:  # as a flow asks for one
            self.tables[step.who] = self.opened[step.who].replacement(f"{step.edition:032x}"[::-1])

    def _withdraw(self, step: Step, number: int) -> Any:
        if self.opened[step.who].upper:
            self.opened[step.who].withdraw(f"{number + 16:032x}"[::-1])

    def _keep(self, step: Step, _number: int) -> Any:
        return self.tables[step.who].keep(self.staged[step.who])

    def _look(self, _step: Step, _number: int) -> Any:
        now = self.drivers.sink.open(OURS)
        return [_seen(now), now.edition[:15], [table.upper for table in self.tables]]


def _batch(row: dict[str, Any], schema: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=(SCHEMA, OTHER)[schema])


def _seen(table: Any) -> Any:
    files: Sequence[StagedFile] = table.files()
    return {
        "upper": table.upper,
        "digest": None if table.digest is None else table.digest[:15],
        "schema": None if table.schema is None else sorted(table.schema.names),
        "files": sorted((stem(file), file.rows) for file in files),
        "volume": table.volume().rows,
        "held": [table.version_of(epoch) is not None for epoch in range(table.upper + 1)],
        "links": sorted({(link.epoch, link.digest) for link in table.links()}),
    }


@deep(120)
@example(steps=[*SLEPT])
@given(steps=st.lists(STEP, max_size=24))
def test_rows_change_places_as_in_a_real_table(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, simulated = Both(on_disk(DeltaSink(f"{folder}/delta"))), Both(in_memory())
        for number, step in enumerate(steps):
            assert simulated.act(step, number) == real.act(step, number), (number, step)
        last = Step("look", 0, 1, 1, 0)
        assert simulated.act(last, -1) == real.act(last, -1)
