"""What a flow is made of: names are identity, columns are set once."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import pytest
from tests.remap.store.raw import sql

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument, NameTaken, UnknownName
from tidegauge.errors.store import SchemaChanged, UnstorableType
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Lease, LeaseHolder, OutputSpec, SourceSpec, Store
from tidegauge.remap.store.schema import LONGEST_NAME

ID = pa.schema([("id", pa.int64()), ("user", pa.string())])
HOSTILE = [
    "'; DROP TABLE flows; --",
    'a" OR "1"="1',
    "%s %(x)s :name ? {0}",
    "new\nline",
    "naïve ☃ 潮",
    "back\\slash/../etc",
    63 * "ä" + "1",  # PostgreSQL cuts what it names itself after 63 bytes
    63 * "ä" + "2",
    LONGEST_NAME * "x",
]
REFUSED = ["NUL \0 in it", "half a \ud83c character", (LONGEST_NAME + 1) * "x", LONGEST_NAME // 2 * "潮"]


def test_registering_again_changes_the_configuration_and_nothing_else(store: Store, lease: Lease) -> None:
    store.register(
        lease, sources={"orders": SourceSpec({"path": "a"}, ID)}, outputs={"raw": OutputSpec("orders", {"to": "x"})}
    )
    store.record_output_failure(lease, "raw", 3, NameTaken(flow="shop", kind="output", name="raw"))
    store.register(lease, sources={"orders": SourceSpec({"path": "b"})}, outputs={"raw": OutputSpec("orders", {})})
    loaded = store.load("shop")
    assert set(loaded.sources) == {"orders", "clicks"}
    assert (loaded.sources["orders"].config, loaded.sources["orders"].schema) == ({"path": "b"}, ID)
    raw = loaded.outputs["raw"]
    assert (raw.source, raw.config, raw.failure and raw.failure[0]) == ("orders", {}, 3)


@pytest.mark.parametrize(
    ("later", "same"),
    [
        pytest.param(OutputSpec("orders", {"kind": "a", "path": "/lake"}, "/lake"), True, id="unchanged"),
        pytest.param(OutputSpec("orders", {"kind": "a", "path": "/link"}, "/lake"), True, id="spelled differently"),
        pytest.param(OutputSpec("orders", {"kind": "a", "path": "/lake"}, "/else"), True, id="moved with its link"),
        pytest.param(OutputSpec("orders", {"kind": "a", "path": "/else"}, "/else"), False, id="elsewhere"),
        pytest.param(OutputSpec("orders", {"kind": "b", "path": "/lake"}, "/lake"), False, id="of another kind"),
        pytest.param(OutputSpec("orders", {"kind": "a", "path": "/link"}, ""), False, id="nobody knows"),
    ],
)
def test_of_another_table_nothing_is_known(store: Store, lease: Lease, later: OutputSpec, *, same: bool) -> None:
    first = OutputSpec("orders", {"kind": "a", "path": "/lake"}, "/lake")
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={"raw": first})
    store.record_held(lease, {"raw": 3})
    store.register(lease, sources={}, outputs={"raw": later})
    assert store.load("shop").outputs["raw"].held == (3 if same else 0)


def test_flows_of_one_store_do_not_see_each_other(store: Store, env: Env, lease: Lease) -> None:
    other = store.acquire("farm", holder=LeaseHolder.current(env))
    store.register(other, sources={"orders": SourceSpec({"farm": True}, ID)}, outputs={})
    bound = {"orders": Proposal(frontier=Frontier({"p0": 5}, sealed=True))}
    store.append(other, expected=0, at=env.now(), proposals=bound)
    store.record_failure(other, "orders", 1, NameTaken(flow="farm", kind="source", name="orders"))
    mine = store.load("shop")
    orders = mine.sources["orders"]
    assert (mine.flow.upper, orders.config, orders.schema, orders.failure) == (0, {}, None, None)
    assert (orders.table.sealed_at, len(orders.table)) == (None, 0)
    with pytest.raises(UnknownName):
        store.append(other, expected=1, at=env.now(), proposals={"clicks": Proposal(frontier=Frontier({"p": 1}))})


def test_columns_are_set_once_and_a_change_says_which_differ(store: Store, lease: Lease) -> None:
    store.record_schema(lease, "orders", ID)
    store.record_schema(lease, "orders", ID)
    other = pa.schema([("id", pa.string()), ("amount", pa.float64())])
    changes: list[Callable[[], None]] = [
        lambda: store.record_schema(lease, "orders", other),
        lambda: store.register(lease, sources={"orders": SourceSpec({"new": 1}, other)}, outputs={}),
    ]
    for change in changes:
        with pytest.raises(SchemaChanged) as caught:
            change()
        assert caught.value.evidence["differences"] == ["id: int64 -> string", "user: gone", "amount: new"]
    loaded = store.load("shop").sources["orders"]
    assert (loaded.schema, loaded.config) == (ID, {})


def test_columns_in_another_order_are_other_columns(store: Store, lease: Lease) -> None:
    store.record_schema(lease, "orders", ID)
    with pytest.raises(SchemaChanged, match="the order of the columns: id, user -> user, id"):
        store.record_schema(lease, "orders", pa.schema(list(ID)[::-1]))


def test_a_type_that_no_source_can_have_names_its_column(store: Store, lease: Lease) -> None:
    with pytest.raises(UnstorableType, match="'spent'"):
        store.record_schema(lease, "orders", pa.schema([("spent", pa.list_(pa.duration("s")))]))


def test_what_is_not_there_cannot_be_written_to(store: Store, lease: Lease) -> None:
    writes: list[Callable[[], None]] = [
        lambda: store.record_schema(lease, "oders", ID),
        lambda: store.record_failure(lease, "oders", 0, NameTaken(flow="f", kind="k", name="n")),
        lambda: store.clear_failure(lease, "oders"),
    ]
    for write in writes:
        with pytest.raises(UnknownName, match=r"source named 'oders'.* 'clicks', 'orders'"):
            write()
    writes = [
        lambda: store.record_output_failure(lease, "raw", 0, NameTaken(flow="f", kind="k", name="n")),
        lambda: store.clear_output_failure(lease, "raw"),
    ]
    for write in writes:
        with pytest.raises(UnknownName, match="output named 'raw'"):
            write()


@pytest.mark.parametrize("value", [object(), float("nan"), b"bytes"])
def test_a_configuration_that_is_not_json_is_refused(store: Store, lease: Lease, value: object) -> None:
    with pytest.raises(InvalidArgument):
        store.register(lease, sources={"new": SourceSpec({"value": value})}, outputs={})
    assert "new" not in store.load("shop").sources


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_data(store: Store, env: Env, name: str) -> None:
    lease = store.acquire(name, holder=LeaseHolder.current(env))
    store.register(lease, sources={name: SourceSpec({name: name})}, outputs={name: OutputSpec(name, {})})
    store.append(
        lease,
        expected=0,
        at=env.now(),
        proposals={name: Proposal(frontier=Frontier({name: 5}), details={name: {name: name}})},
    )
    store.publish(lease, expected=0, upper=1, at=env.now())
    store.advance_since(lease, 0)
    loaded = store.load(name)
    source = loaded.sources[name]
    assert (source.config, source.details, source.table.epoch_of(name, 4)) == ({name: name}, {name: {name: name}}, 0)
    assert (loaded.outputs[name].source, loaded.flow.published) == (name, 1)


def test_names_of_one_beginning_are_different_names(store: Store, env: Env) -> None:
    one, other = (store.acquire(63 * "ä" + end, holder=LeaseHolder.current(env)) for end in "12")
    assert one.flow_id != other.flow_id


@pytest.mark.parametrize("name", REFUSED, ids=["NUL", "half", "long", "long in UTF-8"])
def test_names_that_not_every_database_keeps_are_refused_by_all(
    store: Store, env: Env, lease: Lease, name: str
) -> None:
    bound = Proposal(frontier=Frontier({name: 1}))
    writes: list[Callable[[], object]] = [
        lambda: store.acquire(name, holder=LeaseHolder.current(env)),
        lambda: store.flow(name),
        lambda: store.register(lease, sources={name: SourceSpec({})}, outputs={}),
        lambda: store.register(lease, sources={}, outputs={name: OutputSpec("orders", {})}),
        lambda: store.append(lease, expected=0, at=env.now(), proposals={"orders": bound}),
    ]
    for write in writes:
        with pytest.raises(InvalidArgument, match="name"):
            write()
    loaded = store.load("shop")
    assert (set(loaded.sources), loaded.outputs, loaded.flow.upper) == ({"orders", "clicks"}, {}, 0)


def test_what_the_store_keeps_is_readable_text(
    store: Store, lease: Lease, env: Env, clock: Callable[[], datetime], url: str
) -> None:
    store.record_schema(lease, "orders", ID)
    store.append(lease, expected=0, at=clock(), proposals={"orders": Proposal(frontier=Frontier({"p0": 5}))})
    [(schema,)] = sql(url, "SELECT schema FROM sources WHERE name = 'orders'")
    [(minted_at,)] = sql(url, "SELECT minted_at FROM timeline")
    assert json.loads(schema) == [["id", "int64", True], ["user", "string", True]]
    assert minted_at == "2026-11-20T17:00:00.000000Z"
