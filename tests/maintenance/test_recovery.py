"""A store that is lost, or older than its tables, comes back from them; the flow goes on with no gap or double."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.flow.upstream import Topic
from tests.maintenance.rolledback import Shop

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.errors.history import NothingToRecoverFrom, StoreBehindTable, TablesDisagree, TimelineLost
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Store


@pytest.fixture(params=["delta", "parquet"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(tmp_path, {"orders": request.param})


def timeline(shop: Shop) -> list[tuple[int, dict[str, int], str]]:
    """The epochs, with how much they bind and when they were minted."""
    return [(r.epoch, dict(sizes), r.minted_at.isoformat()) for r, sizes in tg.epochs(shop.flow())]


def test_a_lost_store_comes_back_as_it_was_and_the_flow_goes_on(shop: Shop) -> None:
    shop.run(0, 1, 2)
    before, life = timeline(shop), incarnation(shop)
    shop.lose()
    done = tg.recover(shop.flow())
    assert (done.upper, done.kept, done.since, done.outputs) == (3, 0, 0, {"orders": 3})
    assert (timeline(shop), incarnation(shop)) == (before, life)
    shop.run(3, 4)
    assert shop.rows() == Counter(range(5))
    assert [epoch for epoch, _, _ in timeline(shop)] == list(range(5))


def test_an_older_store_comes_back_and_keeps_what_it_has(shop: Shop) -> None:
    shop.run(0, 1)
    backup = shop.copy()
    shop.run(2, 3)
    before = timeline(shop)
    shop.put_back(backup)
    shop.write(4)
    with pytest.raises(StoreBehindTable):
        shop.again()
    done = tg.recover(shop.flow())
    assert (done.upper, done.kept) == (4, 2)
    assert timeline(shop) == before
    shop.again()
    assert shop.rows() == Counter(range(5))
    assert not tg.recover(shop.flow()).changed, "there is one history again"


def test_what_one_table_lacks_another_has(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"orders": "delta", "copy": "parquet"})
    shop.run(0, 1)
    shop.run(2, 3, only=("orders",))
    before = timeline(shop)
    for entry in (shop.root / "lake" / "orders" / "_delta_log").glob("*.json"):
        if entry.name < f"{2:020d}.json":
            forget_links(entry)
    shop.lose()
    assert tg.recover(shop.flow()).outputs == {"orders": 4, "copy": 2}
    assert timeline(shop) == before
    shop.run(4)
    assert (shop.rows("orders"), shop.rows("copy")) == (Counter(range(5)), Counter(range(5)))


def test_a_store_that_went_another_way_than_its_tables_comes_back_to_theirs(shop: Shop) -> None:
    kind = shop.outputs["orders"]
    shop.run(0, 1)
    backup = shop.copy()
    shop.run(2, 3)
    before = timeline(shop)
    shop.put_back(backup)
    shop.outputs = {"other": "parquet"}
    shop.write(4, 5)
    shop.run(6, 7, 8)
    shop.outputs = {"orders": kind}
    assert tg.recover(shop.flow()).upper == 4
    assert timeline(shop) == before
    shop.again()
    assert shop.rows() == Counter(range(9))
    shop.outputs = {"orders": kind, "other": "parquet"}  # whose epochs are not those of the others
    with pytest.raises(tg.TidegaugeError, match="different histories"):
        shop.again()
    shop.lose()
    with pytest.raises(TablesDisagree):
        tg.recover(shop.flow())


def test_compacted_history_comes_back_compacted(shop: Shop) -> None:
    shop.run(0, 1, 2, 3)
    tg.compact(shop.flow(), before=2)
    shop.outputs["late"] = "parquet"
    shop.run(4)
    before = timeline(shop)
    shutil.rmtree(shop.root / "lake" / "orders")
    shop.lose()
    shop.outputs.pop("orders")
    done = tg.recover(shop.flow())
    assert (done.since, done.upper, done.kept) == (2, 5, 0)
    assert any("before 2" in said for said in done.lacking)
    assert timeline(shop) == before
    shop.run(5)
    assert shop.rows("late") == Counter(range(6))


def test_where_the_history_is_lost_it_is_said_and_nothing_is_changed(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"orders": "delta"})
    with pytest.raises(NothingToRecoverFrom):
        tg.recover(shop.flow())
    shop.run(0, 1, 2)
    for entry in (shop.root / "lake" / "orders" / "_delta_log").glob("*1.json"):
        forget_links(entry)
    shop.lose()
    with pytest.raises(TimelineLost) as caught:
        tg.recover(shop.flow())
    assert (caught.value.evidence["output"], caught.value.evidence["epoch"]) == ("orders", 1)
    assert "from scratch" in caught.value.next_step


def forget_links(entry: Path) -> None:
    """Make an entry of a Delta log one without links, as if it were gone."""
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        line.get("commitInfo", {}).pop("links", None)
    entry.write_text("".join(json.dumps(line) + "\n" for line in lines))


def incarnation(shop: Shop) -> str:
    store = Store.open(shop.store, env=Env())
    try:
        return str(store.load("shop").flow.incarnation)
    finally:
        store.close()


def test_a_store_and_tables_of_a_version_without_digests_go_on_and_can_be_recovered_from_then_on(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path, {"orders": "parquet"})
    shop.run(0, 1, 2)
    with closing(sqlite3.connect(shop.file)) as store, store:
        store.execute("ALTER TABLE timeline DROP COLUMN digest")
        for table in (
            "stalls",
            "backfills",
            "units",
            "pauses",
            "starts",
            "codes",
            "replacements",
            "earlier_positions",
            "earlier_columns",
        ):
            store.execute(f"DROP TABLE {table}")
        store.execute("ALTER TABLE flows DROP COLUMN decisions")
        store.execute("ALTER TABLE flows DROP COLUMN rate")
        store.execute("ALTER TABLE outputs DROP COLUMN held")
        store.execute("ALTER TABLE outputs DROP COLUMN told")
        store.execute("UPDATE store_layout SET version = 3")
    for manifest in (tmp_path / "lake" / "orders").glob("*/_manifest.json"):
        said = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({key: value for key, value in said.items() if key not in ("digest", "links")}))
    shop.run(3)
    assert shop.rows() == Counter(range(4))
    found = tg.verify(shop.flow())
    assert (found.problems, found.recoverable) == ((), (2, 4))
    shop.lose()
    done = tg.recover(shop.flow())
    assert (done.since, done.upper) == (2, 4)
    shop.run(4)
    assert shop.rows() == Counter(range(5))


def test_a_source_with_a_later_incarnation_and_a_quiet_output_come_back(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "topic")
    topic.create("first")
    topic.write("p0", 1, 2, 3)
    flow = two_sources(tmp_path, topic)
    (tmp_path / "quiet.jsonl").write_text('{"id": 7}\n')
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    topic.write("p1", 4)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    topic.create("second")
    topic.write("p0", 5)
    with pytest.raises(UpstreamRecreated):
        two_sources(tmp_path, topic).run("caught-up", engine=tg.LocalEngine(threads=0))
    tg.resume(two_sources(tmp_path, topic), "numbers", new_incarnation=True)
    two_sources(tmp_path, topic).run("caught-up", engine=tg.LocalEngine(threads=0))
    before = tg.bindings(flow).drop_columns(["published_at"])
    assert tg.verify(flow).problems == ()
    for path in tmp_path.glob("flow.db*"):
        path.unlink()
    tg.recover(flow)
    assert tg.bindings(flow).drop_columns(["published_at"]).equals(before)
    topic.write("p0", 6)
    flow = two_sources(tmp_path, topic)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    assert sorted(tg.read_arrow(flow, "numbers").column("n").to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert tg.read_arrow(flow, "quiet").column("id").to_pylist() == [7]
    assert tg.verify(flow).problems == ()


def detailed(folder: Path, probe: Observation) -> Observation:
    """A probe with a fact of each partition, which is that of its upstream; sealed where somebody has said so."""
    ends = Frontier(dict(probe.end.items()), sealed=(folder / "sealed").exists())
    details = {partition: {"of": probe.identity} for partition, _ in probe.end.items()}
    return replace(probe, upper=ends, end=ends, details=details)


@pytest.mark.parametrize("ended", [False, True])
def test_of_a_source_that_began_anew_after_the_backup_nothing_older_is_kept(ended: bool, tmp_path: Path) -> None:
    bounds: list[Bound] = []

    def says(probe: Observation, bound: Bound) -> Observation:
        bounds.append(bound)
        return detailed(topic.folder, probe)

    topic = Topic(tmp_path / "topic", says)
    topic.create("first")
    topic.write("p0", 1, 2, 3)
    (tmp_path / "quiet.jsonl").write_text('{"id": 7}\n')
    if ended:
        (topic.folder / "sealed").touch()

    def flow() -> tg.Dataflow:
        return two_sources(tmp_path, topic)

    flow().run("caught-up", engine=tg.LocalEngine(threads=0))
    store = tmp_path / "flow.db"
    if ended:
        with closing(sqlite3.connect(store)) as there, there:
            # A source that has ended is asked no more; it fails when its records are read anew.
            there.execute("UPDATE sources SET failed_at = 1, failure = ? WHERE name = 'numbers'", [RECREATED])
    backup = Shop(tmp_path, store=f"sqlite:///{store}").copy()
    topic.create("second")
    if not ended:
        with pytest.raises(UpstreamRecreated):
            flow().run("caught-up", engine=tg.LocalEngine(threads=0))
    tg.resume(flow(), "numbers", new_incarnation=True)
    with (tmp_path / "quiet.jsonl").open("a") as quiet:
        quiet.write('{"id": 8}\n')
    flow().run("caught-up", engine=tg.LocalEngine(threads=0))  # an epoch in which the new upstream has nothing

    Shop(tmp_path, store=f"sqlite:///{store}").put_back(backup)
    tg.recover(flow())
    bounds.clear()
    topic.write("p0", 5)
    flow().run("caught-up", engine=tg.LocalEngine(threads=0))
    assert (bounds[0].incarnation, bounds[0].identity, bounds[0].details) == (1, "", {})
    assert sorted(tg.read_arrow(flow(), "numbers").column("n").to_pylist()) == [1, 2, 3, 5]
    assert tg.verify(flow()).problems == ()


RECREATED = json.dumps(
    {"code": UpstreamRecreated.code, "evidence": {"source": "numbers", "known": "first", "found": "second"}}
)


def two_sources(root: Path, topic: Topic) -> tg.Dataflow:
    flow = tg.Dataflow("again", store=f"sqlite:///{root}/flow.db", tick=0.01)
    flow.sink("numbers", flow.source("numbers", topic), tg.ParquetSink(f"{root}/numbers"))
    quiet = flow.source("quiet", tg.FileSource(f"{root}/quiet.jsonl", format=tg.Json("id long")))
    flow.sink("quiet", quiet, tg.DeltaSink(f"{root}/quiet"))
    return flow
