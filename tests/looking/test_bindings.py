"""The timeline as a table: one row for each range that belongs to an epoch, on both kinds of store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegauge as tg
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import DamagedStore
from tidegauge.looking.bindings import BINDINGS
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.store import Lease, LeaseHolder, SourceSpec, Store

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAMES = ("clicks", "orders")
Moves = dict[tuple[str, str], int]


@dataclass
class Told:
    """A flow whose bindings are told by hand, and the rows that its table must have."""

    store: Store
    name: str
    lease: Lease
    rows: list[dict[str, Any]] = field(default_factory=list)
    at: dict[str, Frontier] = field(default_factory=lambda: dict.fromkeys(NAMES, ORIGIN))
    lives: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    upper: int = 0

    @property
    def flow(self) -> tg.Dataflow:
        return tg.Dataflow(self.name, store=self.store.url)

    def bind(self, moves: Moves) -> None:
        minted = NOON + timedelta(seconds=self.upper, microseconds=7)
        proposals = {}
        for source in NAMES:
            moved = {p: self.at[source][p] + n for (s, p), n in sorted(moves.items()) if s == source}
            for partition, position in moved.items():
                where = {
                    "source": source,
                    "incarnation": self.lives[source],
                    "epoch": self.upper,
                    "partition": partition,
                }
                span = {"partition": partition, "position": position, "lower": self.at[source][partition]}
                self.rows.append({**where, **span, "minted_at": minted, "published_at": None})
            if moved:
                self.at[source] = Frontier({**self.at[source], **moved})
                proposals[source] = Proposal(frontier=self.at[source])
        self.store.append(self.lease, expected=self.upper, at=minted, proposals=proposals)
        self.upper += 1

    def renew(self, source: str) -> None:
        self.lives[source] += 1
        life = f"life {self.lives[source]}"
        self.store.begin_incarnation(self.lease, source, at=NOON, reason="made anew", identity=life)
        self.at[source] = ORIGIN

    def publish(self, upper: int) -> None:
        self.store.publish(self.lease, expected=0, upper=upper, at=NOON + timedelta(days=1))
        for row in self.rows:
            if row["epoch"] < upper:
                row["published_at"] = NOON + timedelta(days=1)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Makes flows, all in one store, so that none may see what is of another."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
    else:
        url = request.getfixturevalue("postgres").place()
    store, numbers = Store.open(url, env=tg.Env()), count()

    def tell() -> Told:
        name = f"flow{next(numbers)}"
        lease = store.acquire(name, holder=LeaseHolder.current(tg.Env()))
        store.register(lease, sources={source: SourceSpec({}) for source in NAMES}, outputs={})
        return Told(store, name, lease)

    yield tell
    store.close()


moves = st.dictionaries(st.tuples(st.sampled_from(NAMES), st.sampled_from(["p10", "p9", "ü"])), st.integers(1, 5))
ends = st.one_of(st.none(), st.integers(-1, 6))
questions = st.lists(st.tuples(st.sampled_from([None, *NAMES]), ends, ends), min_size=5, max_size=5)


def asked_for(row: dict[str, Any], source: str | None, first: int | None, last: int | None) -> bool:
    after = first is None or row["epoch"] >= first
    return source in (None, row["source"]) and after and (last is None or row["epoch"] <= last)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(moves | st.sampled_from(NAMES), max_size=8), questions, st.data())
def test_the_table_has_each_range_of_the_epochs_and_the_source_asked_for_once(
    place: Any, history: list[Moves | str], questions: list[Any], data: st.DataObject
) -> None:
    """A name in the history is a source whose upstream was made anew there."""
    told = place()
    for happened in history:
        told.renew(happened) if isinstance(happened, str) else told.bind(happened)
    if told.upper:
        told.publish(data.draw(st.integers(1, told.upper)))
    for question in [(None, None, None), *questions]:
        source, first, last = question
        found = told.store.bindings(told.name, source=source, first=first, last=last)
        assert found.schema == BINDINGS
        assert found.to_pylist() == [row for row in told.rows if asked_for(row, *question)]


def test_rows_are_in_the_order_of_their_epochs_then_sources_then_partitions(place: Any) -> None:
    told = place()
    told.bind({("orders", "p9"): 1, ("clicks", "ü"): 1})
    told.bind({("orders", "p10"): 1, ("orders", "ü"): 1, ("orders", "p9"): 1, ("clicks", "p9"): 1})
    found = told.flow.bindings().select(["epoch", "source", "partition"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (0, "clicks", "ü"),
        (0, "orders", "p9"),
        (1, "clicks", "p9"),
        (1, "orders", "p10"),
        (1, "orders", "p9"),
        (1, "orders", "ü"),
    ]


def test_a_stretch_begins_where_its_partitions_were_and_may_reach_beyond_all_epochs(place: Any) -> None:
    told = place()
    for step in (3, 4, 5):
        told.bind({("orders", "p0"): step})
    for first, last, spans in (
        (1, 1, [(3, 7)]),
        (1, 2**70, [(3, 7), (7, 12)]),
        (-(2**70), 0, [(0, 3)]),
        (-(2**70), -1, []),
        (2**63, 2**70, []),
        (2, 1, []),
    ):
        found = tg.bindings(told.flow, first=first, last=last).to_pylist()
        assert [(row["lower"], row["position"]) for row in found] == spans


def test_the_rows_of_a_source_are_its_slices_also_when_its_history_was_compacted(place: Any) -> None:
    told = place()
    for step in range(1, 6):
        told.bind({("orders", "p0"): step, ("clicks", f"p{step % 2}"): 1})
    told.publish(4)
    told.store.advance_since(told.lease, 2)
    for name, source in told.store.load(told.name).sources.items():
        kept = told.flow.bindings(source=name)
        rows = [kept[column].to_pylist() for column in ("epoch", "partition", "lower", "position")]
        assert list(zip(*rows, strict=True)) == [
            (s.epoch, s.partition, s.lower, s.upper) for s in source.table.slices(2, 5)
        ]


def test_every_row_of_an_output_is_in_one_range_of_its_epoch(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.01)
    files = tg.FileSource(f"{tmp_path}/in/*.jsonl", format=tg.Json("id long"), metadata=True)
    flow.sink("orders", flow.source("orders", files), tg.ParquetSink(f"{tmp_path}/orders"))
    (tmp_path / "in").mkdir()
    for number in range(6):
        with open(tmp_path / "in" / f"{number % 2}.jsonl", "a") as file:
            file.write(json.dumps({"id": number}) + "\n")
        flow.run(engine="local", until="caught-up")
    ranges = flow.bindings().to_pylist()
    assert {row["epoch"] for row in ranges} == set(range(6))
    assert all(row["minted_at"] <= row["published_at"] for row in ranges)
    for row in tg.read_arrow(flow, "orders").to_pylist():
        assert [row["_epoch"]] == [
            r["epoch"]
            for r in ranges
            if r["partition"] == row["_partition"] and r["lower"] <= row["_offset"] < r["position"]
        ]


def test_what_cannot_be_asked_for_is_refused(place: Any, tmp_path: Path) -> None:
    told = place()
    told.bind({("orders", "p0"): 1})
    with pytest.raises(UnknownName, match="'clicks', 'orders'"):
        told.flow.bindings(source="order")
    for wrong in ({"source": 7}, {"first": "1"}, {"first": True}, {"last": 1.0}):
        with pytest.raises(InvalidArgument):
            told.flow.bindings(**wrong)
    for never in (
        tg.Dataflow("never", store=told.store.url),
        tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/no.db"),
    ):
        with pytest.raises(FlowNeverRan):
            never.bindings()
    assert not (tmp_path / "no.db").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE changes SET position = 'many'", "no integer"),
        ("UPDATE changes SET position = 5.5", "no integer"),
        ("UPDATE changes SET partition_id = 99", "a partition that is not there"),
        ("UPDATE timeline SET epoch = 7", "never minted"),
        ("UPDATE timeline SET minted_at = 'noon'", "a time that is none"),
    ],
)
def test_rows_that_were_edited_by_hand_are_said_to_be_damaged(damage: str, said: str, tmp_path: Path) -> None:
    env = tg.Env()
    store = Store.open(f"sqlite:///{tmp_path}/shop.db", env=env)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
    store.append(lease, expected=0, at=NOON, proposals={"orders": Proposal(frontier=Frontier({"p0": 5}))})
    store.close()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as rows, rows:
        rows.execute(damage)
    with pytest.raises(DamagedStore, match=f"'orders'.*{said}"):
        tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db").bindings()


def test_a_stretch_without_bindings_has_the_columns_all_the_same(place: Any) -> None:
    told = place()
    assert told.flow.bindings().equals(pa.Table.from_batches([], BINDINGS))
