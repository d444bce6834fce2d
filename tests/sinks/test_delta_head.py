"""What is known of a Delta table's log by following it is what delta-rs finds in it, from whatever checkpoint on."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.sinks.delta.head import DeltaHead, newer, newest, unsupported

SCHEMA = pa.schema([("n", pa.int64())])
STEP = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from(["a", "b"]), st.integers(0, 9)),
    st.tuples(st.just("property"), st.just("delta.appendOnly"), st.sampled_from(["true", "false"])),
    st.tuples(st.just("checkpoint"), st.just(""), st.just(0)),
    st.tuples(st.just("forget"), st.just(""), st.just(0)),
)


def do(path: str, step: tuple[str, str, Any]) -> None:
    table, (kind, name, value) = DeltaTable(path), step
    if kind == "commit":
        properties = CommitProperties(app_transactions=[Transaction(name, value)])
        table.create_write_transaction([], mode="append", schema=SCHEMA, commit_properties=properties)
    elif kind == "property":
        table.alter.set_table_properties({name: value})
    elif kind == "checkpoint":
        table.create_checkpoint()
    else:  # entries before the last checkpoint, as a clean-up removes them
        last = Path(path, "_delta_log", "_last_checkpoint")
        if last.exists():
            for version in range(json.loads(last.read_text())["version"]):
                Path(path, "_delta_log", f"{version:020d}.json").unlink(missing_ok=True)


def followed(log: Path, head: DeltaHead) -> DeltaHead:
    return next((found for found, _ in reversed(list(newer(log, head)))), head)


def agrees(head: DeltaHead | None, path: str) -> None:
    table = DeltaTable(path)
    assert head is not None
    assert (head.version, head.configuration) == (table.version(), table.metadata().configuration)
    assert head.protocol["minWriterVersion"] == table.protocol().min_writer_version
    assert json.loads(head.schema) == json.loads(table.schema().to_json())
    for owner in ("a", "b", "c"):
        assert head.transactions.get(owner) == table.transaction_version(owner)


@settings(max_examples=15)
@given(steps=st.lists(STEP, max_size=8), seen=st.integers(0, 8))
def test_the_head_is_the_one_of_delta_rs(steps: list[tuple[str, str, Any]], seen: int) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = Path(path, "_delta_log")
        assert newest(log) is None
        DeltaTable.create(path, SCHEMA)
        head = newest(log)
        assert head is not None
        for number, step in enumerate(steps):
            do(path, step)
            if number < seen:
                head = followed(log, head)
        agrees(newest(log), path)
        if not any(kind == "forget" for kind, _, _ in steps[seen:]):
            agrees(followed(log, head), path)


def test_a_checkpoint_in_parts_counts_when_all_are_there(tmp_path: Path) -> None:
    path, log = str(tmp_path), tmp_path / "_delta_log"
    DeltaTable.create(path, SCHEMA)
    for number in range(3):
        do(path, ("commit", "a", number))
    do(path, ("checkpoint", "", 0))
    whole = log / f"{3:020d}.checkpoint.parquet"
    rows = pq.read_table(whole)
    whole.unlink()
    parts = [log / f"{3:020d}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1, 2)]
    pq.write_table(rows.slice(0, 1), parts[0])
    assert newest(log) == DeltaHead(3, *_rest(newest(log)))
    pq.write_table(rows.slice(1), parts[1])
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    (log / f"{3:020d}.json").unlink()
    found = newest(log)
    assert found is not None
    assert (found.version, found.transactions, json.loads(found.schema)["fields"][0]["name"]) == (3, {"a": 2}, "n")


def _rest(head: DeltaHead | None) -> Any:
    assert head is not None
    return head.protocol, head.metadata, head.transactions


def test_an_entry_that_is_missing_is_an_error_and_no_older_table(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), SCHEMA)
    for number in range(3):
        do(str(tmp_path), ("commit", "a", number))
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(ValueError, match=r"00000000000000000002\.json is not there"):
        newest(tmp_path / "_delta_log")


@pytest.mark.parametrize("key", ["delta.invariants", "delta.generationExpression", "delta.identity.start"])
def test_columns_that_a_writer_must_check_or_make_are_said(key: str) -> None:
    fields = [{"name": "n", "type": "long", "nullable": True, "metadata": {key: "1"}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    assert unsupported(DeltaHead(metadata={"schemaString": schema})) is not None
    plain = {"type": "struct", "fields": [{**fields[0], "metadata": {"comment": key}}]}
    assert unsupported(DeltaHead(metadata={"schemaString": json.dumps(plain)})) is None
