"""By which commit of its own a table holds an epoch: the same question to every sink, and what others do to Delta."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.sinks import DeltaSink, OutputId
from tidegauge.sinks.delta.history import version_of

OUTPUT = OutputId("shop", "orders", "a" * 32)
LIFE = f"shop:orders@{'a' * 32}"
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])


@pytest.fixture
def delta(tmp_path: Path, kinds: Any) -> Any:
    return kinds("delta", str(tmp_path / "t"))


def named(kind: str, spans: list[tuple[int, int]]) -> list[str]:
    """What the tables of a kind call their commits."""
    return [str(n) if kind == "delta" else f"from_epoch={lower:012d}" for n, (lower, _) in enumerate(spans)]


def others_commit(path: str, **properties: Any) -> None:
    said = CommitProperties(app_transactions=[Transaction("somebody else", 1)], **properties)
    DeltaTable(path).create_write_transaction([], mode="append", schema=SCHEMA, commit_properties=said)


def test_every_epoch_is_held_by_the_commit_whose_span_it_is_in(bench: Any) -> None:
    table, spans = bench.open(), [(0, 1), (1, 5), (5, 6), (6, 9)]
    assert [table.version_of(epoch) for epoch in (-1, 0, 2**70)] == [None, None, None]
    for number, (lower, upper) in enumerate(spans):
        bench.commit(table, lower, upper, empty=number == 2)
    for opened in (table, bench.open()):
        for name, (lower, upper) in zip(named(bench.kind.name, spans), spans, strict=True):
            assert {opened.version_of(epoch) for epoch in range(lower, upper)} == {name}
        assert [opened.version_of(epoch) for epoch in (-1, 9, 2**70)] == [None, None, None]


def test_a_commit_of_another_driver_is_known_as_well(bench: Any) -> None:
    early = bench.open()
    bench.commit(bench.open(), 0, 2)
    assert early.version_of(1) == named(bench.kind.name, [(0, 2)])[0]


def test_a_table_that_was_made_anew_in_its_place_knows_its_own_commits_alone(bench: Any) -> None:
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    shutil.rmtree(bench.path)
    assert table.version_of(1) is None
    bench.commit(bench.open(), 0, 2)
    assert [table.version_of(epoch) for epoch in range(3)] == [*named(bench.kind.name, [(0, 2)]) * 2, None]


def test_commits_of_others_in_between_and_after_are_not_taken_for_ours(delta: Any) -> None:
    table = delta.open()
    DeltaTable.create(delta.path, SCHEMA)
    expected = {}
    for epoch in range(6):
        for _ in range(epoch):
            others_commit(delta.path)
        delta.commit(table, 2 * epoch, 2 * epoch + 2)
        expected[2 * epoch] = expected[2 * epoch + 1] = str(DeltaTable(delta.path).version())
    others_commit(delta.path)
    assert {epoch: delta.open().version_of(epoch) for epoch in range(12)} == expected


def test_what_another_writer_says_in_our_words_is_not_believed_without_the_transaction(delta: Any) -> None:
    table = delta.open()
    delta.commit(table, 0, 2)
    words = {"flow": "shop", "output": "orders", "lower": 0, "upper": 2, "write": "x"}
    others_commit(delta.path, custom_metadata=words)
    assert [table.version_of(epoch) for epoch in range(3)] == ["0", "0", None]


def test_compacted_and_vacuumed_tables_still_know_the_commits(delta: Any) -> None:
    table = delta.open()
    for epoch in range(4):
        delta.commit(table, epoch, epoch + 1)
    DeltaTable(delta.path).optimize.compact()
    DeltaTable(delta.path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    DeltaTable(delta.path).delete("_epoch = 1")
    delta.commit(delta.open(), 4, 6)
    last = str(DeltaTable(delta.path).version())
    assert [table.version_of(epoch) for epoch in range(7)] == ["0", "1", "2", "3", last, last, None]


def test_a_commit_whose_entry_was_cleaned_up_is_no_longer_known_and_the_epoch_is_still_held(delta: Any) -> None:
    table = delta.open()
    for epoch in range(6):
        delta.commit(table, epoch, epoch + 1)
    log = Path(delta.path, "_delta_log")
    DeltaTable(delta.path).create_checkpoint()
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    for opened in (table, delta.open()):
        assert [opened.version_of(epoch) for epoch in range(6)] == [None, None, None, None, "4", "5"]
        assert opened.upper == 6


def test_entries_that_nobody_can_read_are_nobodys_commits(delta: Any) -> None:
    table = delta.open()
    for epoch in range(3):
        delta.commit(table, epoch, epoch + 1)
    log = Path(delta.path, "_delta_log")
    DeltaTable(delta.path).create_checkpoint()
    for text in ("", "{", "[" * 100_000, '{"commitInfo": 7}\n[]\n"x"\nnull', f'{{"commitInfo": {"9" * 5000}}}', "\0"):
        (log / f"{1:020d}.json").write_text(text)
        found = [version_of(log, OUTPUT, LIFE, epoch, newest=2) for epoch in range(3)]
        assert found == [0, None, 2]
    (log / f"{1:020d}.json").write_bytes(b"\xff\xfe")
    assert version_of(log, OUTPUT, LIFE, 1, newest=2) is None


def test_a_log_that_cannot_be_listed_is_an_error_that_may_pass(delta: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegauge.errors.sinks import TableUnavailable

    table = delta.open()
    delta.commit(table, 0, 1)

    def refuses(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuses)
    with pytest.raises(TableUnavailable, match="Permission denied"):
        table.version_of(0)


def entry(log: Path, version: int, span: tuple[int, int] | None) -> None:
    lines: list[Any] = [{"commitInfo": {"operation": "OPTIMIZE"}}, {"txn": {"appId": "x", "version": 9}}]
    if span is not None:
        said = {"flow": "shop", "output": "orders", "lower": span[0], "upper": span[1]}
        lines = [{"commitInfo": said}, {"txn": {"appId": LIFE, "version": span[1] - 1}}]
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))


@given(st.lists(st.one_of(st.none(), st.integers(1, 4)), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_the_commit_is_found_wherever_ours_and_others_lie_and_however_much_of_the_log_is_gone(
    tmp_path_factory: pytest.TempPathFactory, history: list[int | None], gone: int, newest: int
) -> None:
    log, upper = tmp_path_factory.mktemp("log"), 0
    truth: dict[int, int] = {}
    for version, size in enumerate(history):
        span = None if size is None else (upper, upper + size)
        if span is not None:
            upper = span[1]
        if version >= gone:
            entry(log, version, span)
            if span is not None and version <= newest:
                truth |= dict.fromkeys(range(*span), version)
    found = {epoch: version_of(log, OUTPUT, LIFE, epoch, newest=newest) for epoch in range(upper + 1)}
    assert {epoch: version for epoch, version in found.items() if version is not None} == truth


@pytest.mark.parametrize(("others", "most"), [(0, 15), (5000, 5000)])
def test_few_of_many_entries_are_read_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int, most: int
) -> None:
    ours = 5000 - others
    monkeypatch.setattr(os, "listdir", lambda log: [f"{version:020d}.json" for version in range(5000)])
    read: list[str] = []

    def text(path: Path, **how: Any) -> str:
        read.append(path.name)
        version = int(path.name[:20])
        said = {"flow": "shop", "output": "orders", "lower": version, "upper": version + 1}
        lines: list[Any] = [{"commitInfo": said}, {"txn": {"appId": LIFE, "version": version}}]
        return "\n".join(map(json.dumps, lines)) if version < ours else "{}"

    monkeypatch.setattr(Path, "read_text", text)
    assert version_of(tmp_path, OUTPUT, LIFE, 1234, newest=4999) == (1234 if ours else None)
    assert len(read) == len(set(read)) <= most


def test_the_commits_that_a_checkpoint_let_go_are_no_longer_known_and_the_others_are(delta: Any) -> None:
    table = delta.open()
    table.commit(0, 1, SCHEMA, [], write="0")
    DeltaTable(delta.path).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    for epoch in range(1, 100):
        table.commit(epoch, epoch + 1, SCHEMA, [], write=str(epoch))
    table.end()
    kept = sorted(int(path.name[:20]) for path in Path(delta.path, "_delta_log").glob("*.json"))
    assert len(kept) < 50
    known = [epoch for epoch in range(100) if table.version_of(epoch) is not None]
    assert known == [version - 1 for version in kept if version >= 2]
    assert DeltaSink(delta.path).open(OUTPUT).upper == 100
