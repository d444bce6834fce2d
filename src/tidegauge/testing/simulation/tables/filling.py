"""What changes leave out, for a simulated table by key: as a dictionary has it, beside what our own tables make.

A database leaves large values out that a change does not touch. A simulated table keeps all changes as rows, so it
puts the value into each: that of the row of the key before, or of the row that a change of the key takes away. The
code of our own tables (`sinks.keyed`) gets the same changes as the same staged files, and merges them, in a folder.

Invariant: both make the same table, or the commit fails.

>>> keeps, columns = KeptByKey(("id",), "n"), pa.schema([("id", pa.int64()), ("n", pa.int64()), ("doc", pa.string())])
>>> columns = pa.schema([*columns, ("_op", pa.string()), ("_epoch", pa.int64())])
>>> held = pa.Table.from_pylist([{"id": 1, "n": 4, "doc": "a", "_op": "insert", "_epoch": 0}], columns)
>>> change = {"id": 1, "n": 8, "doc": None, "_op": "update", "_epoch": 1, "left=": Mark(("doc",)).encode()}
>>> batch = pa.RecordBatch.from_pylist([change], pa.schema([*columns, ("left=", pa.string())]))
>>> filled_in({"staged/0-000": (batch,)}, held, keeps, table="orders")["staged/0-000"][0]["doc"].to_pylist()
['a']
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tidegauge.flow.spec import FlowSpec
from tidegauge.job.functions import columns_of
from tidegauge.job.leftout import carried_by
from tidegauge.leftout import COMING, LEAVING, LEFT, KeptByKey, Mark, taken
from tidegauge.operations import DELETE, OP
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.keyed.keys import Ends
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.merging import plain_leaf
from tidegauge.sinks.keyed.planning import SIZES, TableLeaf
from tidegauge.sinks.keyed.runs import RunStager
from tidegauge.sinks.keyed.working import KeyedWork, SettledChanges, done
from tidegauge.sinks.layout.layout import AS_IT_COMES
from tidegauge.sinks.location import staging
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.working import alone
from tidegauge.testing.simulation.tables.lake import applied

__all__ = ["filled_in", "filled_streams"]

Batches: TypeAlias = Mapping[str, Sequence[pa.RecordBatch]]
"""The batches of staged files, by path."""
TableByKey: TypeAlias = Mapping[tuple[Any, ...], Mapping[str, Any]]

_JOB: Final = "0" * 31


def filled_streams(flow: FlowSpec, source: str) -> frozenset[str]:
    """Return the streams of a database whose changes may leave values out, as far as all its outputs can tell."""
    schema, plans = flow.sources[source].schema, [one for one in flow.outputs.values() if one.source == source]
    if schema is None or any(plan.channel == "errors" for plan in plans):
        return frozenset()
    fills = {
        plan.name: carried_by(plan, columns).key == {columns.names[0]}
        for plan in plans
        if (columns := columns_of(schema, plan.channel))
    }
    return frozenset(one for one in schema.names if all(fills[plan.name] for plan in plans if plan.channel == one))


def filled_in(staged: Batches, held: pa.Table, keeps: KeptByKey, *, table: str) -> Batches:
    """Return staged rows with all values, and without marks. held: the rows of all commits before.

    Raises what a merge does of a value that nobody has.
    """
    if not any(taken(batch)[1] is not None for batches in staged.values() for batch in batches):
        return {path: [_plain(batch) for batch in batches] for path, batches in staged.items()}
    merged = _merged(staged, held, keeps, table)
    rows = {path: [batch.to_pylist() for batch in batches] for path, batches in staged.items()}
    _fill([row for parts in rows.values() for part in parts for row in part], applied(held, keeps.key), keeps)
    found = {
        path: [
            pa.RecordBatch.from_pylist(part, _columns(batch.schema))
            for part, batch in zip(rows[path], batches, strict=True)
        ]
        for path, batches in staged.items()
    }
    came = [pa.Table.from_batches(batches) for batches in found.values()]
    after = applied(pa.concat_tables([held, *came], promote_options="default"), keeps.key)
    if after != merged:
        different = [key for key in {*after, *merged} if after.get(key) != merged.get(key)][:3]
        shown = [(key, after.get(key), merged.get(key)) for key in different]
        raise AssertionError(f"{table} is not what its changes make of it: {shown}")
    return found


def _fill(rows: Sequence[dict[str, Any]], held: TableByKey, keeps: KeptByKey) -> None:
    """Put the values into rows."""
    there = dict(held)
    gone: Mapping[str, Any] = {}
    for row in sorted(rows, key=lambda row: (row[EPOCH], row[keeps.order or EPOCH])):
        key, text = tuple(row[name] for name in keeps.key), row.pop(LEFT, None)
        mark = Mark(()) if text is None else Mark.decode(text)
        if row[OP] == DELETE:
            gone = there.pop(key, {}) if mark.moves == LEAVING else {}
            there.pop(key, None)
            continue
        before = gone if mark.moves == COMING else there.get(key, {})
        row.update({name: before.get(name) for name in mark.columns})
        there[key] = row


def _merged(staged: Batches, held: pa.Table, keeps: KeptByKey, table: str) -> TableByKey:
    """Return the table by key that our own code makes of changes."""
    layout = Keyed.of(keeps.key, keeps.order, None)
    schema = _columns(next(batch.schema for one in staged.values() for batch in one))
    columns = layout.columns(schema)
    with tempfile.TemporaryDirectory(prefix="tidegauge-by-key-") as folder:
        place, runs = staging(folder), list[StagedFile]()
        for number, batches in enumerate(staged.values()):
            stager = RunStager(place, layout, schema, table=table, job=f"{_JOB}0", task=number)
            for batch in batches:
                stager.write(batch)
            runs += stager.close()
        leaves = _leaves(folder, [*applied(held, keeps.key).values()], columns)
        work = KeyedWork(folder, layout, AS_IT_COMES, SIZES)
        changes = SettledChanges(work, runs, schema, lambda: leaves, alone, job=lambda _said: f"{_JOB}3")
        found, changed = changes.attempt(1, columns)
        tasks, concerned = work.tasks(found, changed, leaves, columns, schema, job=f"{_JOB}2")
        made, over = done(tasks, concerned, alone)
        stay = [leaf.file for leaf in leaves if leaf.file not in over]
        rows = [row for file in (*stay, *made) for row in pq.read_table(f"{folder}/{file.path}").to_pylist()]
    return {tuple(row[name] for name in keeps.key): row for row in rows}


def _leaves(folder: str, rows: Sequence[Mapping[str, Any]], columns: pa.Schema) -> list[TableLeaf]:
    """Write the rows of a table as a leaf."""
    if not rows:
        return []
    leaf = plain_leaf(folder, columns, partition=(), job=f"{_JOB}1", task=0)
    leaf.write(pa.RecordBatch.from_pylist([*rows], columns))
    return [TableLeaf(file, Ends()) for file in leaf.close()]


def _columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([column for column in schema if column.name != LEFT])


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([LEFT]) if LEFT in batch.schema.names else batch
