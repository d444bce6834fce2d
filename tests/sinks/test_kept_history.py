"""What a table keeps of the flow's history: with each commit, and whatever cleans the table up."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.sinks.conftest import SCHEMA

from tidegauge.errors.history import DamagedHistory, HistoriesDiffer
from tidegauge.remap.history import NO_HISTORY, History, Link, Moves, agree, follow, origin
from tidegauge.sinks.commits import LIMIT
from tidegauge.sinks.delta import checkpoints as deltacheckpoints

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MANY = 2000


def chain(upper: int, *, partitions: int = 1, incarnation: str = "a" * 32) -> list[Link]:
    links, digest = list[Link](), origin(incarnation)
    for epoch in range(upper):
        moved = {"orders": Moves(positions={f"partition-{n:020d}": epoch + 1 for n in range(partitions)})}
        digest = follow(digest, moved)
        links.append(Link(epoch=epoch, digest=digest, minted_at=NOON + timedelta(seconds=epoch), sources=moved))
    return links


def told(links: list[Link], lower: int, upper: int) -> History:
    return History(tuple(links[lower:upper]), links[lower - 1].digest if lower else origin("a" * 32))


def commit(bench: Any, table: Any, links: list[Link], lower: int, upper: int) -> None:
    files = bench.stage(range(lower, upper))
    table.commit(lower, upper, SCHEMA, files, write=f"{upper:032x}", history=told(links, lower, upper))


def kept(table: Any) -> list[Link]:
    return sorted(table.links(), key=lambda link: link.epoch)


def test_a_table_keeps_the_digest_at_its_upper_and_the_links_of_all_commits(bench: Any) -> None:
    links, table = chain(5), bench.open()
    assert (table.digest, table.links()) == (None, [])
    commit(bench, table, links, 0, 2)
    commit(bench, table, links, 2, 5)
    for opened in (table, bench.open()):
        assert agree(opened.digest, links[4].digest)
        assert kept(opened) == links


def test_links_that_are_many_are_beside_the_commit(bench: Any) -> None:
    links, table = chain(3, partitions=MANY), bench.open()
    assert len(told(links, 0, 1).encode()) > LIMIT
    commit(bench, table, links, 0, 1)
    commit(bench, table, links, 1, 3)
    assert kept(bench.open()) == links
    assert bench.kind.rows(bench.path) == [("ada", 0), ("ada", 1), ("ada", 2)]


def test_a_commit_to_a_table_of_another_history_is_refused(bench: Any) -> None:
    links, table = chain(2), bench.open()
    commit(bench, table, links, 0, 1)
    others = chain(2, partitions=2)
    with pytest.raises(HistoriesDiffer):
        commit(bench, table, others, 1, 2)
    commit(bench, table, links, 1, 2)
    assert bench.open().upper == 2


def test_a_table_that_a_version_without_digests_wrote_has_one_from_its_next_commit_on(bench: Any) -> None:
    links, table = chain(2), bench.open()
    table.commit(0, 1, SCHEMA, bench.stage([0]), write="0" * 32, history=NO_HISTORY)
    assert bench.open().digest is None
    commit(bench, table, links, 1, 2)
    assert agree(bench.open().digest, links[1].digest)


def test_the_incarnation_of_a_table_is_known_without_its_store(bench: Any) -> None:
    assert bench.sink.incarnation("shop", "orders") is None
    commit(bench, bench.open(), chain(1), 0, 1)
    assert bench.sink.incarnation("shop", "orders") == "a" * 32
    assert bench.sink.incarnation("shop", "other") is None


@pytest.fixture
def delta(kinds: Any, tmp_path: Path) -> Any:
    return kinds("delta", str(tmp_path / "lake" / "orders"))


def test_a_delta_table_keeps_its_history_when_its_log_is_cleaned_up_and_vacuumed(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deltacheckpoints, "_LEAST", 10)
    links, table = chain(25), delta.open()
    commit(delta, table, links, 0, 1)
    log = Path(delta.path, "_delta_log")
    for epoch in range(1, 25):
        table.commit(epoch, epoch + 1, SCHEMA, [], write=f"{epoch:032x}", history=told(links, epoch, epoch + 1))
        if epoch == 15:  # what is in the log is older than it may become; the next checkpoint cleans it up
            table.end()
            for path in log.iterdir():
                os.utime(path, (0, 0))
    table.end()
    stranger = DeltaTable(delta.path)
    stranger.create_checkpoint()
    stranger.cleanup_metadata()
    stranger.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert not (log / f"{0:020d}.json").exists(), "the log was to be cleaned up"
    assert delta.sink.incarnation("shop", "orders") == "a" * 32
    found = delta.open()
    assert agree(found.digest, links[-1].digest)
    assert list({link.epoch: link for link in kept(found)}.values()) == links


def test_a_damaged_record_is_named_and_harms_nothing_else(delta: Any) -> None:
    links, table = chain(2, partitions=MANY), delta.open()
    commit(delta, table, links, 0, 1)
    [path] = Path(delta.path, "_tidegauge").iterdir()
    path.write_text('{"epoch": "x"}\n')
    with pytest.raises(DamagedHistory, match=path.name):
        delta.open().links()
    commit(delta, table, links, 1, 2)
    assert delta.open().upper == 2
