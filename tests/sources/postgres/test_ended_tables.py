"""A table that was truncated, dropped, renamed or changed ends its own outputs by name; those of others go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import Server, version
from tests.sources.database import followed
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_refusals import connected, first, released
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.dsl.stream import RowStream
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import StreamRecordUnparsable
from tidegauge.errors.postgressource import SourceTableTruncated, TableChanged, ValueUnfit
from tidegauge.remap.binding import Bound
from tidegauge.sources.database.records import INLINE
from tidegauge.sources.postgres.chunks import ENDED
from tidegauge.sources.postgres.progress import RowsProgress


@pytest.fixture
def shop(logical: Server, tmp_path: Path) -> Shop:
    found = Shop(logical, tmp_path)
    found.table("orders", "id bigint PRIMARY KEY, who text, day date, more text")
    found.table("users", "id int PRIMARY KEY, name text")
    found.do("INSERT INTO orders SELECT i, 'user ' || i, NULL FROM generate_series(1, 10) i")
    found.publish()
    return found


def ended(shop: Shop, table: str = "orders", **options: bool) -> dict[str, TidegaugeError]:
    """Run the flow, whose outputs of one table end; return why each has failed."""
    return followed.ended(shop.flow(**options), table)


def test_a_truncate_ends_the_outputs_of_its_table_alone(shop: Shop) -> None:
    shop.catch_up()
    shop.do("INSERT INTO orders VALUES (11, 'last', NULL)", "INSERT INTO users VALUES (1, 'ada')")
    shop.do("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'anew', NULL)", "INSERT INTO users VALUES (2, 'bob')")
    shop.do("INSERT INTO users VALUES (3, 'eve')")
    assert {error.code for error in ended(shop).values()} == {SourceTableTruncated.code}
    shop.do("INSERT INTO users VALUES (4, 'joe')")
    ended(shop)  # each run tries it again, from the server's log, and the others go on
    flow = shop.flow()
    assert shop.held(flow, "users") == shop.there("users")
    assert "anew" not in {row["who"] for row in shop.held(flow, "orders")}
    shop.do("TRUNCATE users", "INSERT INTO orders VALUES (2, 'more', NULL)")
    with pytest.raises(TidegaugeError):
        shop.catch_up()
    assert {one.state for one in tg.status(shop.flow()).outputs} == {"failed"}


@pytest.mark.parametrize("value", ["infinity", "-infinity", "0044-03-15 BC", "12345-01-01"])
def test_a_value_that_its_column_cannot_hold_ends_the_outputs_of_its_table_until_it_is_collected(
    shop: Shop, value: str
) -> None:
    shop.catch_up()
    shop.do("INSERT INTO orders VALUES (11, 'last', NULL)")
    shop.do(f"INSERT INTO orders VALUES (12, 'bad', '{value}')", "INSERT INTO users VALUES (1, 'ada')")
    shop.do("INSERT INTO orders VALUES (13, 'behind', NULL)", "INSERT INTO users VALUES (2, 'bob')")
    assert {error.code for error in ended(shop).values()} == {StreamRecordUnparsable.code}
    shop.do("INSERT INTO users VALUES (3, 'eve')")
    ended(shop)
    flow = shop.flow()
    assert shop.held(flow, "users") == shop.there("users")
    assert {row["id"] for row in shop.held(flow, "orders")} <= set(range(1, 12))
    [first] = {one.upper for one in tg.status(flow).outputs if one.state == "failed"}
    flow = shop.flow(errors=True, start=first)
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    assert {row["id"] for row in shop.held(flow, "orders")} == {*range(1, 12), 13}
    assert [row["code"] for row in tg.read_arrow(flow, "bad").to_pylist()] == [ValueUnfit.code]


@pytest.mark.parametrize("end", ["TRUNCATE orders", "DROP TABLE orders"])
def test_the_server_keeps_its_log_until_the_ended_outputs_are_dropped(shop: Shop, end: str) -> None:
    shop.catch_up()
    before = shop.confirmed()
    shop.do(end)
    shop.do("INSERT INTO users VALUES (1, 'ada')")
    ended(shop)
    assert shop.ask(f"SELECT '{shop.confirmed()}'::pg_lsn - '{before}'::pg_lsn < 1000") == [(True,)]
    shop.tables.pop("orders")
    flow = shop.flow(tables=["orders", "users"])
    for name in ("orders", "orders_log"):
        tg.drop(flow, name)
    shop.do("INSERT INTO users VALUES (2, 'bob')")
    at = shop.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    shop.do("INSERT INTO users VALUES (3, 'eve')")
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    assert shop.ask(f"SELECT '{shop.confirmed()}'::pg_lsn >= '{at}'::pg_lsn") == [(True,)]
    assert shop.held(flow, "users") == shop.there("users")


@pytest.mark.parametrize("again", [False, True], ids=["truncated", "made again"])
def test_an_output_that_begins_now_beside_those_that_ended_has_all_that_comes_or_ends_as_well(
    shop: Shop, tmp_path: Path, again: bool
) -> None:
    shop.catch_up()
    for statement in PUBLISHED if again else ["TRUNCATE orders"]:
        shop.do(statement)
    ended(shop)

    def caught_up(written: int) -> set[str]:
        flow = shop.flow()
        changes = RowStream(flow, "db").table("orders").changelog("op")
        flow.sink("now", changes, tg.ParquetSink(str(tmp_path / "now")), start="now")
        with pytest.raises(TidegaugeError):
            flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
        if not again and written:
            assert tg.read_arrow(flow, "now")["id"].to_pylist() == list(range(written))
        return {one.name for one in tg.status(flow).outputs if one.state == "failed"}

    caught_up(0)
    for n in range(2):
        shop.do(f"INSERT INTO orders VALUES ({n}, 'joe', NULL)")
        assert caught_up(n + 1) == {"orders", "orders_log"} | ({"now"} if again else set())


RENAMED = ["ALTER TABLE orders RENAME TO other", "INSERT INTO other VALUES (12, 'bob', NULL)"]
AGAIN = ["DROP TABLE orders", "CREATE TABLE orders (id bigint PRIMARY KEY, who text, day date, more text)"]
PUBLISHED = [*AGAIN, "ALTER PUBLICATION shop ADD TABLE orders", "INSERT INTO orders VALUES (12, 'bob', NULL)"]
OUT, BACK = "ALTER PUBLICATION shop DROP TABLE orders", "ALTER PUBLICATION shop ADD TABLE orders"
UNSEEN = "INSERT INTO orders VALUES (11, 'unseen', NULL)"
SOME = ["ALTER PUBLICATION shop SET TABLE orders WHERE (id > 99), users", UNSEEN]
ALL = "ALTER PUBLICATION shop SET TABLE orders, users"
SWAPPED = ["ALTER TABLE orders RENAME who TO x", "ALTER TABLE orders RENAME more TO who"]
COLUMN = ["ALTER TABLE orders RENAME who TO whom", "INSERT INTO orders VALUES (12, 'bob', NULL)"]


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["DROP TABLE orders"], "it was dropped, or has another name"),
        (["ALTER TABLE orders RENAME TO other"], "it was dropped, or has another name"),
        (RENAMED, "it has the name public.other at"),
        ([*RENAMED, "ALTER TABLE other RENAME TO orders"], "it has the name public.other at"),
        (AGAIN, "it was dropped and made again"),
        (PUBLISHED, "it was dropped and made again before"),
        (["ALTER TABLE orders DROP COLUMN who"], "no column 'who' that is published"),
        (COLUMN, "no column 'who' at"),
        ([*COLUMN, "ALTER TABLE orders RENAME whom TO who"], "no column 'who' at"),
        (["; ".join([*SWAPPED, "ALTER TABLE orders RENAME x TO more"])], "its column 'who' is another one"),
        (["ALTER TABLE orders DROP who, ADD who text"], "its column 'who' is another one"),
        ([OUT, UNSEEN], "it was taken out of the publication"),
        (["; ".join([OUT, UNSEEN, BACK])], "it was taken out of the publication, and put back"),
        (["; ".join(SOME)], "the publication had a condition on its rows"),
        (["; ".join([*SOME, ALL])], "it was taken out of the publication, and put back"),
    ],
    ids=[
        *("dropped", "renamed", "renamed, row", "back", "again", "again, row"),
        *("column", "column, row", "column back", "swapped", "anew"),
        *("out", "out and back", "condition", "condition and back"),
    ],
)
@pytest.mark.parametrize("running", [False, True], ids=["away", "running"])
def test_a_table_that_is_another_one_ends_its_outputs_alone(
    shop: Shop, statements: Sequence[str], why: str, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "WHERE" in "".join(statements) and version(shop.server.programs) < 15:
        pytest.skip("the server has no conditions on rows")
    monkeypatch.setattr("tidegauge.sources.postgres.subscription._LOOKS", 0.2)
    flow = shop.catch_up()
    if running:
        run = flow.start(engine=tg.LocalEngine(threads=2))
        change(shop, statements)
        eventually(lambda: "failed" in {one.state for one in run.status.outputs if one.name == "orders_log"})
        eventually(lambda: len(shop.held(flow, "users")) == 1)
        run.stop()
        with pytest.raises(TableChanged):
            run.wait()
    else:
        change(shop, statements)
    found = ended(shop)["orders"]
    assert (found.code, why in str(found)) == (TableChanged.code, True), found
    assert shop.held(flow, "users") == shop.there("users")
    assert {row["who"] for row in shop.held(flow, "orders")} == {f"user {i}" for i in range(1, 11)}


def change(shop: Shop, statements: Sequence[str]) -> None:
    for statement in statements:
        shop.do(statement)
    shop.do("INSERT INTO users VALUES (1, 'ada')")


@pytest.mark.parametrize("joined", [False, True], ids=["from the beginning", "joined"])
def test_a_table_that_is_out_of_the_publication_ends_though_nothing_was_noted_of_it(shop: Shop, joined: bool) -> None:
    shop.tables = {"users": "id"} if joined else shop.tables
    shop.catch_up()
    shop.tables = {"orders": "id", "users": "id"}
    shop.catch_up()
    notes = shop.root / "pg" / "shop" / "db" / "tables.json"
    notes.unlink()  # as in the folder of an earlier version
    shop.do("; ".join([OUT, UNSEEN]))
    assert ended(shop)["orders"].code == TableChanged.code
    shop.do(BACK)
    assert ended(shop)["orders"].code == TableChanged.code
    flow = shop.flow()
    assert "unseen" not in {row["who"] for row in shop.held(flow, "orders")}


@pytest.mark.parametrize("statements", [AGAIN, PUBLISHED], ids=["made again", "made again, row"])
def test_what_the_log_has_of_a_table_that_was_made_again_comes_before_it_ends(
    shop: Shop, statements: Sequence[str]
) -> None:
    identity, at = first(shop)
    for n in range(11, 15):
        shop.do(f"INSERT INTO orders VALUES ({n}, 'last', NULL)")
    for statement in statements:
        shop.do(statement)
    subscription = connected(shop, at, Bound(frontier=at, identity=identity))
    kinds: list[int] = []
    while ENDED not in kinds:
        found = subscription.receive(1, 0.1)  # at most one transaction
        batches = [] if found is None else [batch for stream, batch in found.batches if stream == "orders"]
        kinds += [kind for batch in batches for kind in batch["_kind"].to_pylist()]
    subscription.close()
    assert kinds == [INLINE] * 4 + [ENDED]


def test_a_table_that_is_gone_before_the_first_rows_are_read_is_named(shop: Shop) -> None:
    shop.flow()
    shop.do("DROP TABLE orders")
    with pytest.raises(TableChanged, match="it was dropped"):
        shop.catch_up()
    assert [one.state for one in tg.status(shop.flow()).sources] == ["failed"]


@pytest.mark.parametrize("statements", [["DROP TABLE users"], ["DROP TABLE users", "CREATE TABLE users (id int)"]])
def test_a_table_that_is_another_one_while_first_rows_are_read_is_named(
    shop: Shop, statements: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 8 * 8192)
    shop.do("INSERT INTO orders SELECT i, repeat('x', 100), NULL FROM generate_series(100, 60000) i")
    plans = RowsProgress(shop.root / "pg" / "shop" / "db" / "snapshot")
    subscription = connected(shop)
    while "orders" not in (found := plans.found().plans) or not found["orders"].read:
        subscription.receive(1000, 0.001)
    subscription.close()
    released(shop)
    for statement in statements:
        shop.do(statement)
    with pytest.raises(TableChanged, match="it was dropped"):
        shop.catch_up()


def test_a_table_that_is_back_before_anything_was_changed_goes_on(shop: Shop) -> None:
    shop.catch_up()
    shop.do("ALTER TABLE orders RENAME TO other")
    ended(shop)
    shop.do("ALTER TABLE other RENAME TO orders", ALL, "INSERT INTO orders VALUES (11, 'back', NULL)")
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")
    assert {one.state for one in tg.status(flow).outputs} == {"live"}


@pytest.mark.parametrize(
    "end", [["TRUNCATE orders"], [*COLUMN, "ALTER TABLE orders RENAME whom TO who"]], ids=["truncated", "column"]
)
def test_bad_records_behind_the_end_of_a_table_are_collected(shop: Shop, end: Sequence[str]) -> None:
    shop.catch_up(errors=True)
    shop.do(*end, "INSERT INTO orders VALUES (1001, 'never', 'infinity')")
    shop.do("INSERT INTO orders VALUES (1002, 'never', 'infinity')", "INSERT INTO users VALUES (1, 'ada')")
    ended(shop, errors=True)
    shop.do("INSERT INTO orders VALUES (1003, 'never', 'infinity')")
    ended(shop, errors=True)
    found = tg.read_arrow(shop.flow(errors=True), "bad").to_pylist()
    assert [row["code"] for row in found] == [ValueUnfit.code] * 3


def upper(frame: Any) -> Any:
    return frame.selectExpr("upper(op) AS op", "_epoch")


@pytest.mark.spark
def test_rows_that_go_on_to_spark_end_too(shop: Shop, tmp_path: Path) -> None:
    def flow() -> tg.Dataflow:
        made = shop.flow()
        for table in ("orders", "users"):
            stream = tg.RowStream(made, "db", table).changelog("op").transform(upper)
            made.sink(f"{table}_sql", stream, tg.ParquetSink(str(tmp_path / f"{table}_sql")))
        return made

    flow().run(until="caught-up")
    shop.do("TRUNCATE orders", "INSERT INTO users VALUES (1, 'ada')")
    with pytest.raises(SourceTableTruncated):
        flow().run(until="caught-up")
    found = {one.name for one in tg.status(flow()).outputs if one.state == "failed"}
    assert found == {"orders", "orders_log", "orders_sql"}
    assert tg.read_arrow(flow(), "users_sql")["op"].to_pylist() == ["INSERT"]
