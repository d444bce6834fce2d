"""A Delta table opens as fast at any age, and what is found is what the whole log says; checkpoints keep nobody."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.sinks.conftest import KINDS, OUTPUT, Bench, rows
from tests.waiting import eventually

from tidegauge.errors.sinks import TableChangedByOthers, TableUnavailable
from tidegauge.sinks import DeltaSink
from tidegauge.sinks.delta import checkpoints as deltacheckpoints
from tidegauge.sinks.delta import view as deltaview
from tidegauge.sinks.delta.head import hinted, newest
from tidegauge.sinks.protocol import Volume


def bench_at(path: Path) -> Bench:
    return Bench(KINDS["delta"], str(path), DeltaSink(str(path)))


@pytest.fixture
def delta(tmp_path: Path) -> Bench:
    return bench_at(tmp_path / "lake" / "orders")


@pytest.fixture(autouse=True, scope="module")
def often() -> Iterator[None]:
    """What is done at every hundredth entry is done at every second and third."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deltaview, "_KEEP_EVERY", 2)
        patch.setattr(deltacheckpoints, "_LEAST", 3)
        yield


def commits(delta: Bench, count: int) -> Any:
    table = delta.open()
    for _ in range(count):
        delta.commit(table, table.upper, table.upper + 1)
    table.end()
    return table


def head(delta: Bench) -> Path:
    return Path(delta.path, "_tidegauge", "head.json")


def entry(delta: Bench, version: int) -> Path:
    return Path(delta.path, "_delta_log", f"{version:020d}.json")


def forget(path: str) -> None:
    """Remove the entries before the last checkpoint, as a clean-up does."""
    DeltaTable(path).create_checkpoint()
    for version in range(DeltaTable(path).version()):
        Path(path, "_delta_log", f"{version:020d}.json").unlink(missing_ok=True)


OTHERS: dict[str, Callable[[str], object]] = {
    "optimize": lambda path: DeltaTable(path).optimize.compact(),
    "delete": lambda path: DeltaTable(path).delete(f"_epoch = {DeltaTable(path).version() // 2}"),
    "property": lambda path: DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"}),
    "append": lambda path: write_deltalake(path, pa.Table.from_batches([rows([0])]), mode="append"),
    "restore": lambda path: DeltaTable(path).restore(max(0, DeltaTable(path).version() - 1)),
    "checkpoint": lambda path: DeltaTable(path).create_checkpoint(),
    "forget": forget,
}


def _seen(delta: Bench) -> Any:
    try:
        table = delta.open()
    except TableChangedByOthers as refused:
        return str(refused)
    except TableUnavailable:
        return "away"
    assert table.volume() == Volume.of(table.files())
    head = table._head
    return table.upper, table.volume(), table.schema, head.version, head.configuration, head.transactions


@settings(max_examples=10)
@given(steps=st.lists(st.one_of(st.sampled_from(sorted(OTHERS)), st.sampled_from(["commit", "anew"])), max_size=14))
@example(steps=["delete", "commit", "append", "delete", "forget", "commit"])  # it was counted; what came then is gone
def test_what_is_found_is_what_the_whole_log_says(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        delta = bench_at(Path(folder, "lake"))
        table = commits(delta, 3)
        for step in steps:
            if step in OTHERS:
                with suppress(DeltaError):  # a version whose entries are gone cannot be restored
                    OTHERS[step](delta.path)
            elif step == "anew":
                table = delta.open() if isinstance(_seen(delta), tuple) else table
            else:
                try:
                    delta.commit(table, table.upper, table.upper + 1)
                except TableChangedByOthers:
                    continue
                finally:
                    table.end()
            found = _seen(delta)
            kept = head(delta).read_bytes() if head(delta).exists() else None
            head(delta).unlink(missing_ok=True)
            assert _seen(delta) == found
            if kept is not None:
                head(delta).write_bytes(kept)


def test_an_old_table_is_opened_without_a_list_of_its_log_and_without_a_checkpoint(
    delta: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(delta, 7)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("this costs more with every epoch")

    for module, name in ((os, "listdir"), (pq, "read_table"), (DeltaTable, "__init__")):
        monkeypatch.setattr(module, name, refused)
    table = delta.open()
    assert (table.upper, table.volume().files, table.volume().rows) == (7, 7, 7)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"entry": 1}', b"\xff", b"[" * 100_000])
def test_a_kept_head_that_is_damaged_is_passed_over(delta: Bench, damage: bytes) -> None:
    commits(delta, 7)
    assert head(delta).exists()
    head(delta).write_bytes(damage)
    assert delta.open().upper == 7


def test_a_kept_head_of_another_log_is_passed_over(delta: Bench, tmp_path: Path) -> None:
    commits(delta, 7)
    other = bench_at(tmp_path / "other")
    commits(other, 1)
    OTHERS["property"](other.path)
    commits(other, 4)
    head(delta).write_bytes(head(other).read_bytes())
    assert (delta.open().upper, delta.open()._head.configuration) == (7, {})


def test_an_entry_that_is_missing_after_the_kept_head_is_an_error_and_no_older_table(
    delta: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(delta, 4)
    monkeypatch.setattr(deltacheckpoints, "_LEAST", 100)
    commits(delta, 5)
    entry(delta, 7).unlink()
    with pytest.raises(TableUnavailable, match="is not there, and later entries are"):
        delta.open()


def test_what_others_have_changed_is_counted_with_the_next_checkpoint(delta: Bench) -> None:
    commits(delta, 3)
    DeltaTable(delta.path).optimize.compact()
    table = delta.open()
    for epoch in range(3, 9):
        delta.commit(table, epoch, epoch + 1)
        table.end()
    assert DeltaTable(delta.path).history(1)[0]["holds"] == [7, 9, sum(file.bytes for file in table.files())]


def test_a_checkpoint_is_of_the_commit_that_it_follows_whatever_has_come_since(
    delta: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deltacheckpoints, "_LEAST", 100)
    commits(delta, 9)
    monkeypatch.setattr(deltacheckpoints, "_LEAST", 3)
    checkpoints = deltacheckpoints.Checkpoints(delta.path, OUTPUT)
    checkpoints.after(5, None)
    checkpoints.end()
    assert hinted(Path(delta.path, "_delta_log")) == 5
    assert (checkpoints.counted or (-1,))[0] == 5
    assert delta.open().upper == 9


def test_no_commit_waits_for_a_checkpoint_and_one_is_made_at_a_time(
    delta: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, go_on, create = list[int](), threading.Event(), DeltaTable.create_checkpoint

    def slow(table: DeltaTable) -> None:
        made.append(table.version())
        assert go_on.wait(60)
        create(table)

    monkeypatch.setattr(DeltaTable, "create_checkpoint", slow)
    table = delta.open()
    for epoch in range(12):
        delta.commit(table, epoch, epoch + 1)
    eventually(lambda: bool(made))
    assert (table.upper, len(made)) == (12, 1)
    go_on.set()
    table.end()
    assert pa.table(DeltaTable(delta.path).get_add_actions()).num_rows == 12
    delta.commit(table, 12, 13)
    table.end()
    assert len(made) == 2
    found = newest(Path(delta.path, "_delta_log"))
    assert found is not None
    assert found.transactions[str(OUTPUT)] == 12
