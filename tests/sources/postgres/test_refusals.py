"""What cannot be followed is refused by name, with the values, and nothing runs; a loss is never passed over."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import LOGICAL, SETTINGS, Server, binaries, free_port, missing
from tests.sources.postgres.shop import Shop
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.postgressource import (
    LoginRefused,
    PastAcknowledged,
    PublicationUnfit,
    ReplicaIdentityMissing,
    RightMissing,
    ServerAway,
    ServerUnfit,
    SlotActive,
    SlotAdvanced,
    SlotForeign,
    SlotLost,
    SlotsExhausted,
    SnapshotLost,
    TableUnfit,
)
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.secrets import SecretInClear
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.sources.push.protocol import Received

SPREAD = 60.0


def connected(shop: Shop, start: Frontier = ORIGIN, bound: Bound | None = None, **options: Any) -> Any:
    return shop.source(**options).placed("shop", "db").connect(start, bound or Bound())


def declared(shop: Shop, *tables: str) -> Any:
    """The columns of a source with these tables."""
    return shop.source(tables=list(tables)).placed("shop", "db").streams


def first(shop: Shop) -> tuple[str, Frontier]:
    """Read the first rows; return the identity of the server, and the frontier with them."""
    subscription = connected(shop)
    try:
        return subscription.identity, received(subscription, lambda found: bool(found.frontier)).frontier
    finally:
        subscription.close()
        released(shop)


def received(subscription: Any, wanted: Callable[[Received], bool]) -> Received:
    deadline = time.monotonic() + SPREAD
    while time.monotonic() < deadline:
        found: Received | None = subscription.receive(1000, 0.1)
        if found is not None and wanted(found):
            return found
    raise AssertionError("nothing came")


def released(shop: Shop) -> None:
    """Wait until the server knows that nobody reads the slot."""
    query = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{shop.slot}' AND active"
    deadline = time.monotonic() + SPREAD
    while shop.ask(query) != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def shop(logical: Server, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(logical, tmp_path)
    found.table("orders", "id bigint PRIMARY KEY, who text")
    found.publish()
    yield found
    mine = f"FROM pg_replication_slots WHERE database = '{found.name}' AND NOT active"
    found.ask(f"SELECT pg_drop_replication_slot(slot_name) {mine}")


def test_a_wrong_password_is_named_and_not_shown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "swordfish")
    shop.dsn = shop.server.address(shop.name, user="ada")
    with pytest.raises(LoginRefused, match="password authentication failed") as raised:
        shop.flow(password="env:SHOP_PASSWORD")
    assert "swordfish" not in str(raised.value)
    with pytest.raises(SecretInClear):
        shop.flow(password="swordfish")


def test_a_database_or_a_role_that_is_not_there_is_named(shop: Shop) -> None:
    shop.dsn = shop.server.address("nowhere")
    with pytest.raises(LoginRefused, match="does not exist"):
        shop.flow()
    shop.dsn = shop.server.address(shop.name, user="nobody_here")
    with pytest.raises(LoginRefused, match="does not exist"):
        shop.flow()


def test_a_server_that_is_away_is_named(shop: Shop) -> None:
    shop.dsn = f"postgresql://postgres@127.0.0.1:1/{shop.name}"
    with pytest.raises(ServerAway, match="refused"):
        shop.flow()


def test_a_role_without_the_rights_is_told_which(shop: Shop, logical: Server) -> None:
    role = f"reader_{shop.name}"
    logical.query(f"CREATE ROLE {role} LOGIN")
    shop.dsn = logical.address(shop.name, user=role)
    with pytest.raises(RightMissing, match="REPLICATION") as raised:
        shop.flow()
    assert f'ALTER ROLE "{role}" REPLICATION' in str(raised.value)
    logical.query(f"ALTER ROLE {role} REPLICATION")
    with pytest.raises(RightMissing, match="cannot read") as raised:
        shop.flow()
    shop.do(f"GRANT SELECT ON orders TO {role}", "INSERT INTO orders VALUES (1, 'ada')")
    assert len(shop.held(shop.catch_up(), "orders")) == 1  # nothing else is needed


def test_a_policy_that_would_hide_rows_is_an_error(shop: Shop, logical: Server) -> None:
    role = f"careful_{shop.name}"
    logical.query(f"CREATE ROLE {role} LOGIN REPLICATION")
    shop.do(f"GRANT SELECT ON orders TO {role}", "ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    shop.do("INSERT INTO orders VALUES (1, 'hidden')")
    shop.dsn = logical.address(shop.name, user=role)
    with pytest.raises(RightMissing, match="row-level security"):
        first(shop)


def test_a_server_that_does_not_write_enough_is_named(tmp_path: Path) -> None:
    server = Server(binaries() or missing(os.environ), settings={**SETTINGS, "wal_level": "replica"})
    try:
        shop = Shop(server, tmp_path)
        shop.table("orders", "id int PRIMARY KEY")
        shop.publish()
        with pytest.raises(ServerUnfit, match="wal_level is 'replica'"):
            shop.flow()
    finally:
        server.stop()


def test_slots_that_are_used_up_are_named(tmp_path: Path) -> None:
    server = Server(binaries() or missing(os.environ), settings={**LOGICAL, "max_replication_slots": "1"})
    try:
        shop = Shop(server, tmp_path)
        shop.table("orders", "id int PRIMARY KEY")
        shop.publish()
        shop.ask("SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
        with pytest.raises(SlotsExhausted, match="all replication slots are in use"):
            first(shop)
        shop.ask("SELECT pg_drop_replication_slot('other')")
        first(shop)
    finally:
        server.stop()


def test_first_rows_that_the_role_may_not_read_are_said_until_it_may(
    shop: Shop, logical: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.flow.stalls.SHOWN", 0.5)
    role = f"reader_{shop.name}"
    logical.query(f"CREATE ROLE {role} LOGIN REPLICATION")
    shop.do(f"GRANT SELECT ON orders TO {role}", "INSERT INTO orders VALUES (1, 'ada'), (2, 'bob')")
    shop.do("ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "CREATE POLICY mine ON orders USING (id > 1)")
    shop.dsn = logical.address(shop.name, user=role)
    flow = shop.flow()
    with flow.start(engine=tg.LocalEngine(threads=2)) as run:
        eventually(lambda: "row-level security" in str(run.status.sources[0].error))
        assert run.status.sources[0].state == "stalled"
        logical.query(f"ALTER ROLE {role} BYPASSRLS")
        eventually(lambda: next(one.upper for one in run.status.outputs if one.name == "orders") > 0)
    assert shop.held(flow, "orders") == shop.there("orders")


def test_a_publication_that_does_not_do_is_named_with_the_statement(shop: Shop) -> None:
    with pytest.raises(PublicationUnfit, match="is not there") as raised:
        shop.flow(publication="missing")
    assert 'CREATE PUBLICATION "missing" FOR TABLE public.orders' in str(raised.value)
    shop.do("CREATE TABLE other (id int PRIMARY KEY)")
    with pytest.raises(PublicationUnfit, match=r"lacks the table public\.other"):
        declared(shop, "orders", "other")
    shop.do("ALTER PUBLICATION shop SET (publish = 'insert, update, truncate')")
    with pytest.raises(PublicationUnfit, match="does not publish delete"):
        shop.flow()
    shop.do("ALTER PUBLICATION shop SET (publish = 'insert, update, delete, truncate')")
    shop.do("ALTER PUBLICATION shop SET TABLE orders WHERE (id > 7)")
    with pytest.raises(PublicationUnfit, match="condition on the rows"):
        shop.flow()


def test_a_table_whose_rows_cannot_be_told_apart_is_refused(shop: Shop) -> None:
    shop.do("CREATE TABLE plain (id int)", "ALTER PUBLICATION shop ADD TABLE plain")
    with pytest.raises(ReplicaIdentityMissing, match="no primary key"):
        declared(shop, "plain")
    shop.do("ALTER TABLE plain REPLICA IDENTITY FULL")
    declared(shop, "plain")
    shop.do("ALTER TABLE orders REPLICA IDENTITY NOTHING")
    with pytest.raises(ReplicaIdentityMissing, match="NOTHING"):
        shop.flow()


def test_a_table_or_type_that_cannot_be_read_is_refused(shop: Shop) -> None:
    with pytest.raises(TableUnfit, match="no such table"):
        declared(shop, "nothing")
    shop.do("CREATE TYPE pair AS (a int, b int)")
    shop.do("CREATE TABLE odd (id int PRIMARY KEY, p pair)", "ALTER PUBLICATION shop ADD TABLE odd")
    with pytest.raises(TableUnfit, match=r"'p' is public\.pair"):
        declared(shop, "odd")
    shop.do("ALTER PUBLICATION shop SET TABLE orders, odd (id)")
    assert declared(shop, "odd")["odd"].names == ["id", "_op", "_sequence"]
    shop.do(
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)", "ALTER PUBLICATION shop ADD TABLE parted"
    )
    with pytest.raises(PublicationUnfit, match="in the names of its partitions"):
        declared(shop, "parted")
    shop.do("CREATE TABLE mine (id int PRIMARY KEY, _op text)", "ALTER PUBLICATION shop ADD TABLE mine")
    with pytest.raises(TableUnfit, match="'_op'"):
        declared(shop, "mine")


@pytest.mark.parametrize(
    "options",
    [
        {"tables": []},
        {"tables": "orders"},
        {"tables": ["a.b.c"]},
        {"tables": ["orders", "public.orders"]},
        {"slot": "Upper"},
        {"publication": ""},
        {"folder": "s3://bucket/x"},
    ],
)
def test_arguments_that_cannot_be_are_refused(shop: Shop, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        shop.source(**options)


def test_a_slot_that_this_flow_did_not_make_is_left_alone(shop: Shop) -> None:
    shop.ask(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")
    with pytest.raises(SlotForeign, match="nothing says that this flow made it"):
        first(shop)
    assert shop.confirmed()


def test_a_slot_that_the_folder_knows_from_another_server_is_left_alone(shop: Shop, tmp_path: Path) -> None:
    first(shop)
    record = tmp_path / "pg" / "shop" / "db" / "stream.json"
    record.write_text(record.read_text().replace("system ", "system 1"))
    with pytest.raises(SlotForeign, match="nothing says that this flow made it"):
        first(shop)
    assert shop.confirmed()


def test_another_database_can_be_a_new_incarnation_with_first_rows_of_its_own(
    shop: Shop, logical: Server, tmp_path: Path
) -> None:
    shop.do("INSERT INTO orders VALUES (1, 'ada')")
    shop.catch_up()
    other = Shop(logical, tmp_path)
    other.table("orders", "id bigint PRIMARY KEY, who text")
    other.do("INSERT INTO orders VALUES (2, 'bob')")
    other.publish()
    with pytest.raises(UpstreamRecreated):
        other.catch_up()
    tg.resume(other.flow(), "db", new_incarnation=True)
    flow = other.catch_up()
    assert {row["id"]: row["_epoch"] for row in tg.read_arrow(flow, "orders_log").to_pylist()}.keys() == {1, 2}


def test_a_slot_of_another_plugin_or_database_is_refused(shop: Shop, logical: Server, tmp_path: Path) -> None:
    identity, at = first(shop)
    bound = Bound(frontier=at, identity=identity)
    shop.ask(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    shop.ask(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'test_decoding')")
    with pytest.raises(SlotForeign, match="test_decoding"):
        connected(shop, at, bound)
    shop.ask(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    other = Shop(logical, tmp_path)
    other.ask(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")
    with pytest.raises(SlotForeign, match=other.name):
        connected(shop, at, bound)
    other.ask(f"SELECT pg_drop_replication_slot('{shop.slot}')")


def test_a_slot_that_is_gone_is_a_loss(shop: Shop) -> None:
    identity, at = first(shop)
    shop.ask(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    with pytest.raises(SlotLost, match="not there any more"):
        connected(shop, at, Bound(frontier=at, identity=identity))


def test_t51_a_slot_that_was_moved_on_by_one_place_is_found_before_the_stream_begins(shop: Shop) -> None:
    identity, at = first(shop)
    shop.do("INSERT INTO orders VALUES (1, 'would be skipped')")
    [(upto,)] = shop.ask(
        f"SELECT end_lsn::text FROM pg_replication_slot_advance('{shop.slot}', pg_current_wal_flush_lsn())"
    )
    with pytest.raises(SlotAdvanced, match=upto):
        connected(shop, at, Bound(frontier=at, identity=identity))


def test_a_slot_that_another_client_reads_is_waited_for(shop: Shop) -> None:
    identity, at = first(shop)
    holding = connected(shop, at, Bound(frontier=at, identity=identity))
    with pytest.raises(SlotActive, match="process"):
        connected(shop, at, Bound(frontier=at, identity=identity))
    holding.close()
    released(shop)
    connected(shop, at, Bound(frontier=at, identity=identity)).close()


def test_log_that_the_server_removed_is_a_loss(tmp_path: Path) -> None:
    settings = {**LOGICAL, "max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB"}
    server = Server(binaries() or missing(os.environ), settings=settings)
    try:
        shop = Shop(server, tmp_path)
        shop.table("orders", "id int PRIMARY KEY, who text")
        shop.publish()
        identity, at = first(shop)
        for n in range(6):
            shop.do(f"INSERT INTO orders SELECT i, repeat('x', 500) FROM generate_series({n}000, {n}999) i")
            shop.ask("SELECT pg_switch_wal()")
            server.query("CHECKPOINT")
        assert shop.ask("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        with pytest.raises(SlotLost, match="removed log"):
            connected(shop, at, Bound(frontier=at, identity=identity))
    finally:
        server.stop()


def test_another_server_database_or_timeline_is_not_taken_for_the_one_that_was_bound(shop: Shop) -> None:
    identity, at = first(shop)
    other = identity.replace("timeline 1", "timeline 2")
    assert other != identity
    with pytest.raises(UpstreamRecreated, match="timeline 2"):
        connected(shop, at, Bound(frontier=at, identity=other))


def test_a_server_that_ends_before_what_is_bound_says_so(shop: Shop) -> None:
    identity, at = first(shop)
    ahead = Frontier({WAL: at[WAL] + (1 << 40)})
    subscription = connected(shop, ahead, Bound(frontier=ahead, identity=identity))
    found = received(subscription, lambda found: found.end is not None)
    subscription.close()
    assert found.end is not None
    assert found.end[WAL] < ahead[WAL]  # the reader raises `UpstreamRecreated` of that


def test_a_snapshot_whose_files_are_gone_is_not_read_again_once_it_is_bound(shop: Shop, tmp_path: Path) -> None:
    shop.do("INSERT INTO orders VALUES (1, 'ada')")
    identity, at = first(shop)
    for path in (tmp_path / "pg" / "shop" / "db" / "snapshot").iterdir():
        path.unlink()
    with pytest.raises(SnapshotLost, match="files are missing"):
        connected(shop, ORIGIN, Bound(frontier=at, identity=identity))
    (tmp_path / "pg" / "shop" / "db" / "stream.json").unlink()
    with pytest.raises(SnapshotLost, match="does not know it"):
        connected(shop, ORIGIN, Bound(frontier=at, identity=identity))


def test_a_column_that_is_added_later_is_left_out(shop: Shop) -> None:
    shop.catch_up()
    shop.do("ALTER TABLE orders ADD COLUMN further int", "INSERT INTO orders VALUES (1, 'ada', 7)")
    flow = shop.catch_up()
    assert [row.keys() for row in shop.held(flow, "orders")] == [{"id", "who"}]


def test_an_output_that_is_added_later_is_told_what_it_can_have(shop: Shop, tmp_path: Path) -> None:
    shop.do("INSERT INTO orders VALUES (1, 'ada')")
    shop.catch_up()
    shop.do("INSERT INTO orders VALUES (2, 'bob')")
    shop.catch_up()
    released(shop)

    def later(start: Any) -> tg.Dataflow:
        flow = shop.flow()
        stream = tg.RowStream(flow, "db", "orders").changelog("op")
        flow.sink("later", stream, tg.ParquetSink(str(tmp_path / "later")), start=start)
        return flow

    with pytest.raises(PastAcknowledged):
        connected(shop, ORIGIN, Bound(frontier=Frontier({WAL: 1})))
    flow = later("now")
    stop = threading.Thread(target=flow.run, kwargs={"until": "caught-up", "engine": tg.LocalEngine(threads=2)})
    stop.start()
    stop.join(SPREAD)
    assert not stop.is_alive()
    shop.do("INSERT INTO orders VALUES (3, 'eve')")
    flow = later("now")
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    assert [row["id"] for row in tg.read_arrow(flow, "later").to_pylist()] == [3]
    assert len(shop.held(flow, "orders")) == 3


def test_a_publication_that_is_dropped_is_noticed_while_it_runs(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.subscription._LOOKS", 0.2)
    subscription = connected(shop)
    try:
        received(subscription, lambda found: bool(found.frontier))
        shop.do("DROP PUBLICATION shop")
        with pytest.raises(PublicationUnfit, match="is not there"):
            received(subscription, lambda _found: False)
    finally:
        subscription.close()


def test_the_server_tells_of_a_connection_that_it_ends(shop: Shop) -> None:
    identity, at = first(shop)
    subscription = connected(shop, at, Bound(frontier=at, identity=identity))
    try:
        received(subscription, lambda _found: True)
        with psycopg.connect(shop.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", (shop.slot,)
            )
        with pytest.raises(ServerAway):
            received(subscription, lambda _found: False)
    finally:
        subscription.close()


@pytest.mark.long
def test_a_standby_is_refused_and_once_it_is_promoted_it_is_another_server(
    own_logical: Server, tmp_path: Path
) -> None:
    shop = Shop(own_logical, tmp_path)
    shop.table("orders", "id bigint PRIMARY KEY, who text")
    shop.publish()
    shop.do("INSERT INTO orders VALUES (1, 'ada')")
    flow = shop.catch_up()
    with (own_logical.data / "pg_hba.conf").open("a") as access:
        access.write("\nlocal replication all trust\n")
    own_logical.query("SELECT pg_reload_conf()")
    with Standby(own_logical) as standby:
        shop.dsn = standby.address(shop.name)
        with pytest.raises(ServerUnfit, match="it is a standby"):
            first(shop)
        standby.run("pg_ctl", "-w", "-D", str(standby.data), "promote")
        with pytest.raises(UpstreamRecreated, match="timeline 2"):
            shop.catch_up()
    assert len(shop.held(flow, "orders")) == 1


class Standby:
    """A physical copy of a server, which follows it."""

    def __init__(self, primary: Server) -> None:
        self.primary = primary
        self.folder = Path(tempfile.mkdtemp(prefix="tidegauge-standby-"))
        self.data = self.folder / "data"
        self.port = free_port()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")

    def __enter__(self) -> Standby:
        where = ["-h", str(self.primary.folder), "-p", str(self.primary.port), "-U", "postgres"]
        self.run("pg_basebackup", *where, "-D", str(self.data), "-R", "-c", "fast")
        options = f"-p {self.port} -k {self.folder} -c listen_addresses= " + " ".join(
            f"-c {name}={value}" for name, value in LOGICAL.items()
        )
        self.run("pg_ctl", "-w", "-D", str(self.data), "-l", str(self.folder / "log"), "-o", options, "start")
        return self

    def __exit__(self, *_: object) -> None:
        self.run("pg_ctl", "-w", "-m", "immediate", "-D", str(self.data), "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    def run(self, program: str, *arguments: str) -> None:
        who = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        command = [str(self.primary.programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=program != "pg_ctl", cwd=self.folder, **who)  # type: ignore[call-overload]
