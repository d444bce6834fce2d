"""The laws of staging and of one commit, each a function over a place (`kit.place`).

Invariant: after each step a law asks the reader of the bench, and a table that is opened only then.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import Definite, TidegaugeError
from tidegauge.errors.sinks import TableSchemaChanged, TableUpperMismatch
from tidegauge.sinks.columns import differences
from tidegauge.sinks.protocol import Sink, StagedFile
from tidegauge.testing.kit.place import OTHER_OUTPUT, OUTPUT, SinkOnTrial, job, rows
from tidegauge.testing.kit.sink_bench import ROWS, Placeable
from tidegauge.testing.kit.source_bench import WithSecrets
from tidegauge.testing.kit.trial import Law, NotTried, expect, raises

__all__ = ["COMMIT_LAWS"]


def it_is_a_value(place: SinkOnTrial) -> None:
    """A sink is a picklable value, which describes itself the same each time, in JSON and without secrets.

    Make it a frozen dataclass of plain values. Open connections in `open` and `stage`, and keep a secret as the name
    of the place that it is in.
    """
    sink = place.sink
    expect(isinstance(sink, Sink), f"{sink!r} lacks a member of `tidegauge.sinks.Sink`")
    packed, said = pickle.dumps(sink), _described(sink)
    copy = pickle.loads(packed)  # noqa: S301 (our own, from the line before)
    place.commit(place.open(), 0, 1)
    expect(copy == sink, f"a pickled copy is another value: {copy!r}, of {sink!r}")
    for who, now in (("it", _described(sink)), ("a copy", _described(copy))):
        expect(now == said, f"after a commit {who} describes itself as {now}, and before as {said}")
    named = isinstance(sink.identity, str) and sink.identity
    expect(named, f"its identity is {sink.identity!r}, and should be a text that names its place")
    same = (copy.identity, copy.shared) == (sink.identity, sink.shared)
    expect(same, f"the identity of a copy is {copy.identity!r}, and its own {sink.identity!r}")
    for secret in place.bench.secrets if isinstance(place.bench, WithSecrets) else ():
        expect(secret not in said + sink.identity, "its description or its identity has a secret in it")
        expect(secret.encode() not in packed, "its pickle has a secret in it")


def _described(sink: Sink) -> str:
    return json.dumps(dict(sink.describe()), sort_keys=True, allow_nan=False)


def its_identity_is_its_place(place: SinkOnTrial) -> None:
    """Two sinks have one identity if they write to one place, by whatever way each was told.

    Resolve symbolic links and spellings; leave out every option that does not choose the place.
    """
    if not isinstance(place.bench, Placeable):
        raise NotTried("the bench has no `ways` and `elsewhere`")
    own = place.sink.identity
    for way in place.bench.ways():
        expect(way.identity == own, f"{way!r} is the same place, and its identity {way.identity!r}, not {own!r}")
    other = place.bench.elsewhere()
    expect(other.identity != own, f"{other!r} is another place, with the same identity {own!r}")


def opening_changes_nothing(place: SinkOnTrial) -> None:
    """A table that is opened where there is none is empty, and nothing is written by it.

    Create files, tables and topics in the first commit. Commands that only look open the table as well.
    """
    before = place.names()
    table = place.open()
    found = (table.upper, table.digest, table.schema, list(table.files()), table.volume().rows, table.links())
    empty: tuple[object, ...] = (0, None, None, [], 0, [])
    expect(found == empty, f"upper, digest, schema, files, rows and links of no table are {found}, not {empty}")
    expect(table.version_of(0) is None, f"no table says that {table.version_of(0)!r} brought epoch 0")
    expect(place.names() == before, f"opening it has made the files {sorted(place.names() - before)}")
    place.shows([], 0, "opened and not committed to")


def rows_are_hidden_until_they_are_committed(place: SinkOnTrial) -> None:
    """Staged rows are seen by no reader, before, beside and after other commits, and after an `abort`.

    Write them where no reader looks, under a name that no other attempt has.
    """
    table = place.open()
    place.stage([0], "litter")
    place.shows([], 0, "one row was staged, and nothing committed")
    place.commit(table, 0, 1)
    place.stage([1], "litter")
    open_still = place.sink.stage(ROWS, job=job(), task=0)
    open_still.write(pa.RecordBatch.from_pylist(rows([1], "litter"), schema=ROWS))
    place.shows(rows([0]), 1, "epoch 0 was committed, and rows of epoch 1 staged")
    open_still.abort()
    empty = place.sink.stage(ROWS, job=job(), task=0).close()
    expect(empty == [], f"a stager that no row was written to gives {empty}")
    place.shows(rows([0]), 1, "epoch 0 was committed, and a stager aborted")


def attempts_at_one_task_do_not_meet(place: SinkOnTrial) -> None:
    """Two attempts at one task, at once, write files of their own; either can be committed, and the other discarded.

    Give each attempt a random part in its names: job and task are the same for a task that is tried again.
    """
    name = job()
    stagers = [place.sink.stage(ROWS, job=name, task=0) for _ in range(2)]
    for stager, user in zip(stagers, ("one", "two"), strict=True):
        stager.write(pa.RecordBatch.from_pylist(rows([0], user), schema=ROWS))
    one, two = (stager.close() for stager in stagers)
    expect(one and two, f"a stager that a row was written to gives {one or two}")
    table = place.open()
    table.commit(0, 1, ROWS, two, write=job())
    table.discard(one)
    place.shows(rows([0], "two"), 1, "of two attempts the second was committed and the first discarded")


def a_commit_shows_all_its_rows_and_moves_the_upper(place: SinkOnTrial) -> None:
    """A commit brings the rows of all its files, of all its epochs, and with them the upper.

    Keep the upper in the table, in the same transaction as the rows.
    """
    table = place.open()
    files = [*place.stage([0, 1], "ada"), *place.stage([2], "bob", task=1)]
    table.commit(0, 3, ROWS, files, write=job())
    expect(table.upper == 3, f"epochs 0 to 2 were committed, and the upper is {table.upper}")
    place.shows([*rows([0, 1]), *rows([2], "bob")], 3, "two files with the epochs 0, 1 and 2 were committed")
    place.commit(place.open(), 3, 4)
    place.shows([*rows([0, 1]), *rows([2], "bob"), *rows([3])], 4, "epoch 3 was committed after epochs 0 to 2")


def commits_without_rows_move_the_upper(place: SinkOnTrial) -> None:
    """No files is a commit too: it moves the upper.

    Do not return early when there is nothing to write.
    """
    table = place.open()
    table.commit(0, 1, ROWS, [], write=job())
    table.commit(1, 5, ROWS, [], write=job())
    place.shows([], 5, "epochs 0 to 4 were committed without rows")
    place.commit(place.open(), 5, 6)
    place.shows(rows([5]), 6, "epoch 5 was committed after five without rows")


def a_commit_elsewhere_than_at_the_upper_is_refused(place: SinkOnTrial) -> None:
    """A commit that does not begin at the table's upper raises `TableUpperMismatch`, and changes nothing.

    Compare `lower` with the upper that the table has now, in the transaction that adds the rows.
    """
    table = place.open()
    place.commit(table, 0, 2)
    for lower, upper in ((0, 1), (0, 2), (1, 3), (3, 4)):
        staged, told = place.stage(range(lower, upper), "twice"), f"a commit of [{lower}, {upper}) to a table at 2"
        raises(TableUpperMismatch, told, lambda: table.commit(lower, upper, ROWS, staged, write=job()))  # noqa: B023
        expect(table.upper == 2, f"after {told} its upper is {table.upper}")
    place.shows(rows([0, 1]), 2, "four commits were refused")
    for lower, upper in ((2, 2), (3, 2), (-1, 2)):
        told = f"a commit of [{lower}, {upper}), which has no epochs,"
        raises(TidegaugeError, told, lambda: table.commit(lower, upper, ROWS, [], write=job()))  # noqa: B023
    place.shows(rows([0, 1]), 2, "three commits of no epochs were refused")


def files_that_are_not_as_they_were_staged_are_not_committed(place: SinkOnTrial) -> None:
    """A commit of a staged file that is gone, or with rows of other epochs, raises and changes nothing.

    Look at each file before the commit (`sinks.commits.check_span`), and fail if it cannot be read.
    """
    table = place.open()
    gone = place.stage([0])
    table.discard(gone)
    raises(Exception, "a commit of a file that is gone", lambda: table.commit(0, 1, ROWS, gone, write=job()))
    place.shows([], 0, "a commit of a file that was gone failed")
    for epochs in ([0, 2], [5]):
        files, told = place.stage(epochs), f"a commit of [0, 2) with rows of the epochs {epochs}"
        raises(TidegaugeError, told, lambda: table.commit(0, 2, ROWS, files, write=job()))  # noqa: B023
    place.shows([], 0, "commits of rows of other epochs were refused")
    place.commit(table, 0, 1)
    place.shows(rows([0]), 1, "a commit that was right came after those that were refused")


def discard_removes_staged_rows_and_nothing_else(place: SinkOnTrial) -> None:
    """Files that are discarded leave nothing, may be gone already, and stay if they were committed after all.

    Remove a file only where it was staged, and never follow a path out of there (`sinks.attempt.discard`).
    """
    table = place.open()
    kept = place.commit(table, 0, 1)
    before = place.names()
    staged = [*place.stage([1]), *place.stage([1], task=1)]
    for _ in range(2):
        table.discard(staged)
    expect(place.names() == before, f"discarded, and left or lost: {sorted(place.names() ^ before)}")
    for one in (table, place.open()):
        one.discard(kept)
    place.shows(rows([0]), 1, "committed files were discarded")
    foreign = place.folder / "foreign"
    foreign.write_text("of somebody else")
    for path in (str(foreign), "../foreign", "../../foreign"):
        try:
            table.discard([StagedFile(path, 1, 1, 1, 1)])
        except (TidegaugeError, OSError):
            continue
    expect(Path(foreign).exists(), "a file outside its place was removed, by a path that leads out of it")


def the_columns_of_a_table_stay(place: SinkOnTrial) -> None:
    """A table with columns of its own refuses rows with others; another order or layout of them is the same.

    Compare with `sinks.columns.differences`, and raise `TableSchemaChanged` before anything is written.
    """
    table, early = place.open(), place.open()
    place.commit(table, 0, 1)
    stored = table.schema
    expect(stored == place.open().schema, f"the schema is {stored}, and opened again {place.open().schema}")
    if stored is None or differences(stored, ROWS):
        raise NotTried("it keeps no columns of the rows")
    raises(TableUpperMismatch, "a commit of [0, 1) again", lambda: early.commit(0, 1, ROWS, [], write=job()))
    expect(early.schema == stored, f"a table opened before the first commit still says {early.schema}")
    renamed = pa.schema([("user", pa.string()), ("amout", pa.float64()), ("_epoch", pa.int64())])
    retyped = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("_epoch", pa.int64())])
    for other in (renamed, retyped, pa.schema([("user", pa.string()), ("_epoch", pa.int64())])):
        told = f"a commit of rows with the columns {other.names} of {other.types}"
        raises(TableSchemaChanged, told, lambda: table.commit(1, 2, other, [], write=job()))  # noqa: B023
    turned = pa.schema([("_epoch", pa.int64()), ("amount", pa.float64()), ("user", pa.large_string())])
    table.commit(1, 2, turned, [], write=job())
    place.shows(rows([0]), 2, "a commit came with the same columns in another order")


def another_output_is_kept_apart(place: SinkOnTrial) -> None:
    """A place that is not shared refuses another output; one that is shared keeps an upper for each.

    Keep whose rows these are beside the upper, and compare the whole `OutputId`.
    """
    place.commit(place.open(), 0, 1)
    if not place.sink.shared:
        told = f"opening the table of '{OUTPUT}' as that of '{OTHER_OUTPUT}'"
        raises(Definite, told, lambda: place.open(OTHER_OUTPUT))
        place.shows(rows([0]), 1, "another output was refused")
        return
    place.commit(place.driven(OTHER_OUTPUT), 0, 2, "theirs", output=OTHER_OUTPUT)
    upper = place.open(OTHER_OUTPUT).upper
    expect(upper == 2, f"two outputs share it, and one is at {upper}, where it committed up to 2")
    place.shows([*rows([0]), *rows([0, 1], "theirs")], 1, "two outputs share it")


COMMIT_LAWS: Final[tuple[Law[SinkOnTrial], ...]] = (
    it_is_a_value,
    its_identity_is_its_place,
    opening_changes_nothing,
    rows_are_hidden_until_they_are_committed,
    attempts_at_one_task_do_not_meet,
    a_commit_shows_all_its_rows_and_moves_the_upper,
    commits_without_rows_move_the_upper,
    a_commit_elsewhere_than_at_the_upper_is_refused,
    files_that_are_not_as_they_were_staged_are_not_committed,
    discard_removes_staged_rows_and_nothing_else,
    the_columns_of_a_table_stay,
    another_output_is_kept_apart,
)
"""What a single driver does."""
