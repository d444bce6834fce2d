"""The laws of what a flow may ask of a table beside commits: new columns, epochs that share a commit, and a layout.

Invariant: a table need not be able to any of it. One that says it is keeps the rows of all epochs apart, and whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import Definite, TidegaugeError
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.sinks.evolving import Evolving
from tidegauge.sinks.protocol import Keeping, Sink, StagedFile, Sweeping
from tidegauge.testing.kit.place import OUTPUT, SinkOnTrial, history, job, rows
from tidegauge.testing.kit.rows import Row, same
from tidegauge.testing.kit.sink_bench import ROWS, LaidOut
from tidegauge.testing.kit.trial import Law, NotTried, expect, raises

__all__ = ["NOTE", "OPTION_LAWS"]

NOTE: Final = "note"
"""The column that rows take on."""
_WIDER: Final = pa.schema([ROWS.field("user"), ROWS.field("amount"), (NOTE, pa.string()), ROWS.field("_epoch")])
_NARROWER: Final = pa.schema([ROWS.field("user"), (NOTE, pa.string()), ROWS.field("_epoch")])
_USERS: Final = ("ada", "a/b", "x=y %41", "..", "ü", None)
"""Values that mean something in paths, and none."""


def columns_come_with_the_rows_that_have_them(place: SinkOnTrial) -> None:
    """A table that takes on columns has them with the commit that brings the first rows with them, and not before.

    Add the columns in the same transaction as the rows and the upper. Rows from before are null there, and stay.
    """
    table = place.open()
    if not isinstance(table, Evolving):
        raise NotTried("its table has no `evolve` and `lacking`")
    table.evolve("add")
    place.commit(table, 0, 1)
    keeps = _keeps(place, "user")
    wanted = (NOTE,) if keeps else ()
    found = table.lacking(_WIDER)
    expect(tuple(found) == wanted, f"rows with a new column {NOTE!r} came, and it lacks {found}, not {wanted}")
    late = _staged(place, _WIDER, [0])
    told = "a commit of [0, 1), with a new column, to a table at 1"
    raises(TableUpperMismatch, told, lambda: table.commit(0, 1, _WIDER, late, write=job()))
    expect(not _keeps(place, NOTE), f"a commit that was refused has brought the table its column {NOTE!r}")
    place.shows(rows([0]), 1, f"a table was asked about a column {NOTE!r}, and a commit with it refused")
    table.commit(1, 3, _WIDER, _staged(place, _WIDER, [1, 2]), write=job())
    expect(_keeps(place, NOTE) == keeps, f"rows with the column {NOTE!r} were committed, and the table has none")
    expect(not table.lacking(_WIDER), f"it has the column {NOTE!r}, and says that it lacks {table.lacking(_WIDER)}")
    now = [*_with(rows([0]), None), *_with(rows([1, 2]), "new")]
    _shows(place, now, f"the epochs 1 and 2 brought the column {NOTE!r}")
    again = place.open()
    if isinstance(again, Evolving):
        again.evolve("evolve")
    again.commit(3, 4, _NARROWER, _staged(place, _NARROWER, [3]), write=job())
    expect(_keeps(place, "amount") == keeps, "rows without the column 'amount' were committed, and it is gone")
    last = {**rows([3])[0], "amount": None, NOTE: "new"}
    _shows(place, [*now, last], "epoch 3 came without the column 'amount'")


def epochs_that_share_a_commit_stay_apart(place: SinkOnTrial) -> None:
    """Files of several jobs, staged as epochs came, are committed together: each row keeps its own epoch.

    Take all files of a commit, whichever jobs they are of. A sweep leaves those that `keep` was told of.
    """
    table = place.open()
    place.commit(table, 0, 1)
    waiting = [file for epochs in ([1], [2, 3], [5]) for file in place.stage(epochs)]
    place.shows(rows([0]), 1, "three jobs have staged the epochs 1 to 5, which wait for their commit")
    if isinstance(table, Keeping) and isinstance(table, Sweeping):
        kept = table.keep(waiting)
        expect(kept, "files of earlier drivers are as they were staged, and `keep` says that they are not")
        table.sweep(lambda: None)
    table.commit(1, 7, ROWS, waiting, write=job(), history=history(1, 7))
    wanted = rows([0, 1, 2, 3, 5])
    place.shows(wanted, 7, "the epochs 1 to 6 were committed together, of three jobs")
    told = "the same commit once more"
    raises(TidegaugeError, told, lambda: place.open().commit(1, 7, ROWS, waiting, write=job()))
    place.shows(wanted, 7, "a commit of six epochs was made once more, and refused")
    place.commit(place.open(), 7, 8)
    place.shows([*wanted, *rows([7])], 8, "epoch 7 came after six epochs in one commit")


def a_layout_changes_no_rows(place: SinkOnTrial) -> None:
    """However rows lie in files, a reader sees the rows that were written, of every epoch.

    Write a partition's value into each of its rows, or where every reader finds it. Mind nulls, and values that mean
    something in a path.
    """
    if not isinstance(place.bench, LaidOut):
        raise NotTried("the bench has no `layouts`")
    for number in range(len(place.bench.layouts())):
        other = place.another()
        if not isinstance(other.bench, LaidOut):
            raise NotTried("the bench has no `layouts`")
        sink = other.bench.layouts()[number]
        wanted: list[Row] = []
        for epoch in (0, 1):
            new = [{"user": user, "amount": float(at), "_epoch": epoch} for at, user in enumerate(_USERS)]
            sink.check(ROWS)
            table = sink.open(OUTPUT)
            files = _stage(sink, ROWS, new)
            table.commit(epoch, epoch + 1, ROWS, files, write=job(), history=history(epoch, epoch + 1))
            wanted += new
            same(wanted, other.bench.rows(), f"the layout {sink.describe()} was written up to epoch {epoch}")
            held = sum(file.rows for file in table.files())
            expect(held == len(wanted), f"its files have {held} rows, and {len(wanted)} were committed")
        _goes_on(other, sink, wanted)


def _goes_on(place: SinkOnTrial, sink: Sink, wanted: Sequence[Row]) -> None:
    """Commit to the table with the layout of the bench, which may be another one: it takes the rows, or refuses."""
    try:
        place.commit(place.sink.open(OUTPUT), 2, 3)
    except Definite:
        same(wanted, place.bench.rows(), f"{sink.describe()} was committed to in another layout, and refused that")
    else:
        now = [*wanted, *rows([2])]
        same(now, place.bench.rows(), f"{sink.describe()} was committed to in another layout")


def _keeps(place: SinkOnTrial, column: str) -> bool:
    """Whether a table that is opened now has a column."""
    schema = place.open().schema
    return schema is not None and column in schema.names


def _staged(place: SinkOnTrial, schema: pa.Schema, epochs: Sequence[int]) -> Sequence[StagedFile]:
    return _stage(place.sink, schema, _with(rows(epochs), "new"))


def _stage(sink: Sink, schema: pa.Schema, new: Sequence[Row]) -> Sequence[StagedFile]:
    stager = sink.stage(schema, job=job(), task=0)
    stager.write(pa.RecordBatch.from_pylist([dict(row) for row in new], schema=schema))
    return stager.close()


def _with(some: Sequence[Row], note: str | None) -> list[dict[str, Any]]:
    return [{**row, NOTE: note} for row in some]


def _shows(place: SinkOnTrial, wanted: Sequence[Row], when: str) -> None:
    """Raise `LawBroken` unless a reader sees these rows. A row of JSON may lack a column that is null."""
    found = place.bench.rows()
    if not any(NOTE in row for row in found):
        raise NotTried(f"the reader of the bench shows no column {NOTE!r}, which rows took on")
    names = list(_WIDER.names)
    same(wanted, [{name: row.get(name) for name in names} for row in found], when)


OPTION_LAWS: Final[tuple[Law[SinkOnTrial], ...]] = (
    columns_come_with_the_rows_that_have_them,
    epochs_that_share_a_commit_stay_apart,
    a_layout_changes_no_rows,
)
"""What a flow may ask of a table."""
