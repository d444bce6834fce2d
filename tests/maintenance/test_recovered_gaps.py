"""What was said to be lost is known again after the store was recovered from the tables (law 9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.maintenance.rolledback import Shop

import tidegauge as tg
from tidegauge.errors.dataflow import OperatorFailed
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.flow.telling import TellingCommits
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.history import History, origin
from tidegauge.remap.rebuilding import gaps_on, pooled, way_to
from tidegauge.remap.store import Gap, Lease, LeaseHolder, OutputSpec, Rebuilt, SourceSpec, Store


@pytest.fixture(params=["delta", "parquet"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(tmp_path, {"orders": request.param})


def lose_last(shop: Shop) -> None:
    """Say that the last range that is bound is lost."""
    last = tg.bindings(shop.flow()).to_pylist()[-1]
    tg.skip(shop.flow(), "orders", last["partition"], last["lower"], last["position"])


def gaps(shop: Shop) -> list[Gap]:
    store = Store.open(shop.store, env=tg.Env())
    try:
        return store.gaps("shop")
    finally:
        store.close()


def told(shop: Shop) -> list[int]:
    """How many gaps each commit of a Parquet folder carries."""
    links = [json.loads(path.read_text())["links"] for path in sorted(shop.root.glob("lake/orders/*/_manifest.json"))]
    return [sum(len(moves.get("gaps", [])) for link in each for moves in link["sources"].values()) for each in links]


def test_a_gap_comes_back_with_a_store_that_is_lost(shop: Shop) -> None:
    shop.run(0, 1)
    lose_last(shop)
    shop.run(2, 3)
    known = gaps(shop)
    assert [gap.epoch for gap in known] == [1]
    shop.lose()
    assert tg.recover(shop.flow()).gaps == 1
    assert gaps(shop) == known
    assert tg.verify(shop.flow()).problems == ()
    shop.run(4)
    shop.lose()
    tg.recover(shop.flow())
    assert gaps(shop) == known, "it is told of old, and was not forgotten by going on"


def test_a_gap_that_no_commit_has_told_is_said_not_to_be_had(shop: Shop) -> None:
    shop.run(0, 1)
    lose_last(shop)
    shop.lose()
    done = tg.recover(shop.flow())
    assert (done.gaps, gaps(shop)) == (0, [])
    assert "the gaps that were noted after the last commit of every table" in done.lacking


def test_a_gap_comes_back_to_a_backup_also_where_nothing_else_has_to(shop: Shop) -> None:
    shop.run(0, 1)
    older = shop.copy("older")
    lose_last(shop)
    shop.run(2)
    known, newer = gaps(shop), shop.copy("newer")
    shop.put_back(older)
    assert (tg.recover(shop.flow()).gaps, gaps(shop)) == (1, known)
    shop.put_back(newer)
    store = Store.open(shop.store, env=tg.Env())
    with store._database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM losses")
    store.close()
    [problem] = tg.verify(shop.flow()).problems
    assert "is lost, which the tables know, and the store does not" in problem
    done = tg.recover(shop.flow())
    assert (done.changed, done.gaps, done.kept, gaps(shop)) == (True, 1, 3, known)
    assert not tg.recover(shop.flow()).changed


@pytest.mark.parametrize("recovered", [True, False])
def test_a_failure_that_somebody_went_past_does_not_come_back_with_a_backup(shop: Shop, recovered: bool) -> None:
    shop.run(0)
    with (shop.root / "in" / "a.jsonl").open("a") as out:
        out.write("no JSON\n")
    with pytest.raises(RecordUnparsable):
        shop.again()
    older = shop.copy("older")
    lose_last(shop)
    shop.again()
    shop.put_back(older)
    assert tg.status(shop.flow()).sources[0].state == "failed"
    if recovered:
        tg.recover(shop.flow())
        assert tg.status(shop.flow()).sources[0].state == "idle"
    shop.run(2)
    assert shop.rows() == {0: 1, 2: 1}


def test_each_commit_carries_what_was_noted_since_the_last_one(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"orders": "parquet"})
    shop.run(0)
    lose_last(shop)
    shop.run(1, 2)
    assert told(shop) == [0, 1, 0]


def test_a_driver_that_dies_before_it_notes_what_a_commit_told_tells_one_gap_twice(tmp_path: Path) -> None:
    def strike(point: str) -> None:
        if point == "before record told":
            raise RuntimeError("struck")

    shop = Shop(tmp_path, {"orders": "parquet"})
    shop.run(0)
    lose_last(shop)
    shop.write(1)
    with pytest.raises(OperatorFailed, match="struck"):
        shop.again(env=tg.Env(point=strike))
    shop.run(2)
    known = gaps(shop)
    assert told(shop) == [0, 1, 1]
    shop.lose()
    tg.recover(shop.flow())
    assert gaps(shop) == known


def test_a_repair_that_replaces_the_commit_that_told_is_followed_by_one_that_tells_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"orders": "parquet"})
    shop.run(0)
    lose_last(shop)
    shop.run(1)
    known = gaps(shop)
    tg.repair(shop.flow(), "orders", from_epoch=1, engine=tg.LocalEngine(threads=0))
    shop.run(2)
    shop.lose()
    tg.recover(shop.flow())
    assert gaps(shop) == known


# Random histories

AT = datetime(2026, 11, 20, 17, tzinfo=UTC)
OUTPUTS = ("a", "b")


@contextmanager
def opened(folder: str) -> Iterator[tuple[Store, Lease]]:
    store = Store.open(f"sqlite:///{folder}/flow.db", env=tg.Env())
    lease = store.acquire("flow", holder=LeaseHolder.current(tg.Env()))
    store.register(lease, sources={"s": SourceSpec({})}, outputs={name: OutputSpec("s", {}) for name in OUTPUTS})
    try:
        yield store, lease
    finally:
        store.close()


STEPS = st.lists(
    st.one_of(
        st.just(("bind", 0, 0)),
        st.tuples(st.just("lose"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.sampled_from(["commit", "die after"]), st.integers(0, 1), st.integers(0, 2)),
        st.just(("restart", 0, 0)),
    ),
    max_size=25,
)


TWICE = [("bind", 0, 0), ("lose", 0, 0), ("commit", 0, 1), ("lose", 0, 1), ("bind", 0, 0), ("commit", 0, 1)]


@given(STEPS)
@example(TWICE)
def test_the_gaps_that_come_back_are_those_noted_before_the_commits_that_reached_them(
    steps: list[tuple[str, int, int]],
) -> None:
    with TemporaryDirectory() as folder, TemporaryDirectory() as anew:
        with opened(folder) as (store, lease):
            bound, uppers, tables = 0, dict.fromkeys(OUTPUTS, 0), list[History]()
            noted, expected = set[tuple[int, int]](), set[tuple[int, int]]()

            def tellers() -> dict[str, TellingCommits]:
                def ask(lower: int, upper: int, *, whole: bool) -> History:
                    return store.history("flow", lower, upper, whole=whole)

                return {name: TellingCommits(name, ask, store, lease) for name in OUTPUTS}

            telling = tellers()
            for what, one, other in steps:
                if what == "bind":
                    store.append(
                        lease, expected=bound, at=AT, proposals={"s": Proposal(frontier=Frontier({"p": bound + 1}))}
                    )
                    bound += 1
                elif what == "restart":
                    telling = tellers()
                elif what == "lose" and one <= bound:  # the next epoch, too: as of it something is missing
                    store.record_gap(lease, Gap("s", one, "p", other, other + 1, AT, "TG-0340", "gone"))
                    noted.add((one, other))
                elif what in ("commit", "die after"):
                    name = OUTPUTS[one]
                    lower, upper = uppers[name], min(bound, uppers[name] + other)
                    if lower < upper:
                        tables.append(telling[name].history(lower, upper, whole=False))
                        uppers[name] = upper
                        expected |= {gap for gap in noted if gap[0] < upper}
                        if what == "commit":
                            telling[name].carried()
                            telling[name].note()
                        else:
                            telling = tellers()
            life, upper = lease.incarnation, max(uppers.values())
            digests = store.known_digests("flow")
        if not upper:
            return
        pool = pooled(link for history in tables for link in History.decode(history.encode()))
        way = way_to(pool, upper, digests[upper], stored={}, origin=origin(life))
        assert way is not None
        with opened(anew) as (store, lease):
            found = gaps_on(way, pool, upper, stored={})
            store.restore(
                lease, Rebuilt(way=way, incarnation=life, upper=upper, published=0, held=uppers, gaps=found)
            )
            assert {(gap.epoch, gap.lower) for gap in store.gaps("flow")} == expected
