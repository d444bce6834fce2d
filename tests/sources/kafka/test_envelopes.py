"""Messages with an envelope become changes: what each means follows from it alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.enveloped import HAPPENINGS, KEY, VALUE, Happening, Pair, bulk_of, decoder

import tidegauge as tg
from tidegauge.errors.changes import TableTruncated, ValueUnavailable
from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.errors.store import SchemaChanged
from tidegauge.sources import BadRecord
from tidegauge.sources.kafka.decoding import MessageDecoder, joined, key_and_value
from tidegauge.sources.kafka.enveloping import Envelope
from tidegauge.sources.kafka.framing import Piece
from tidegauge.sources.kafka.framing import bulk_of as framed

ENVELOPES: Sequence[Envelope] = ("upsert", "debezium", "cdc")
HERE = "localhost:9092"


def tried(found: MessageDecoder, messages: Sequence[Pair], *, first: int = 0) -> tuple[list[Any], list[Any]]:
    """Return the rows of messages, and their bad records."""
    bad: list[BadRecord] = []
    rows = found.decode(bulk_of(messages, first=first), bad.append).to_pylist()
    return rows, [(one.position, one.code, one.key, one.withdraws) for one in bad]


def short(rows: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def change(op: str, after: Any = None, before: Any = None) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "source": {}, "ts_ms": 1}).encode()


ONE, TWO = b'{"id": 1}', b'{"id": 2}'
ADA, BOB = {"id": 1, "name": "ada", "n": 1}, {"id": 2, "name": "bob", "n": 2}


def test_an_upsert_is_a_row_and_a_tombstone_takes_it_away() -> None:
    rows, bad = tried(decoder("upsert"), [(ONE, b'{"name": "ada", "n": 1}'), (TWO, b"{}"), (ONE, None)])
    assert short(rows, "id", "name", "n", "_op", "_offset") == [
        (1, "ada", 1, "update", 0),
        (2, None, None, "update", 1),
        (1, None, None, "delete", 2),
    ]
    assert bad == []


@pytest.mark.parametrize(
    ("format", "column"), [(tg.Text(), "ada"), (tg.Raw(), b"ada"), (tg.Csv("value string"), "ada")]
)
@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_a_key_may_be_in_any_format_that_has_columns(envelope: Envelope, format: Any, column: Any) -> None:
    value = b'{"name": "ada"}' if envelope == "upsert" else change("c", {"name": "ada"})
    rows, bad = tried(decoder(envelope, key=format), [(b"ada", value), (b"", value), (b"ada", None)])
    wanted = [
        (column, "update"),
        *([] if isinstance(format, tg.Csv) else [(column[:0], "update")]),
        (column, "delete"),
    ]
    assert short(rows, "value", "_op") == wanted
    assert [one[1] for one in bad] == (["TG-0455"] if isinstance(format, tg.Csv) else [])


def test_t60_a_bad_value_takes_the_row_of_its_key_away_and_says_why() -> None:
    rows, bad = tried(decoder("upsert"), [(ONE, b"{}"), (ONE, b"?"), (TWO, b'{"n": "x"}')])
    assert short(rows, "id", "_op") == [(1, "update"), (1, "delete"), (2, "delete")]
    assert [row["_error"] for row in rows] == [
        None,
        "TG-0323: not one JSON object",
        "TG-0323: column n: expected a number, found a string",
    ]
    assert bad == [(1, "TG-0323", ONE, False), (2, "TG-0323", TWO, False)]


def test_t60_a_message_without_a_good_key_is_no_row_and_a_tombstone_takes_it_back() -> None:
    keys = [None, b"?", b"{}", b'{"id": "x"}']
    rows, bad = tried(decoder("upsert"), [(key, value) for value in (b"{}", None) for key in keys])
    assert rows == []
    codes = ["TG-0454", "TG-0455", "TG-0454", "TG-0455"]
    assert bad == [
        *((at, code, key, False) for at, (code, key) in enumerate(zip(codes, keys, strict=True))),
        *((at, "TG-0456", key, True) for at, key in enumerate(keys, 4)),
    ]


@pytest.mark.parametrize("needed", [False, True], ids=["null", "not null"])
def test_t61_without_an_envelope_a_message_is_its_value_and_of_two_errors_that_of_the_value_is_told(
    needed: bool,
) -> None:
    value = tg.Json(f"name string{' NOT NULL' if needed else ''}, n int")
    messages = [
        (None, None),
        (ONE, None),
        (b"?", b"?"),
        (b"?", b'{"name": "ada"}'),
        (ONE, b"?"),
        (ONE, b'{"name": "bob"}'),
    ]
    bad: list[BadRecord] = []
    rows = decoder("append", value=value).decode(bulk_of(messages), bad.append).to_pylist()
    without_a_value = [] if needed else [(None, None, 0), (1, None, 1)]
    assert short(rows, "id", "name", "_offset") == [*without_a_value, (1, "bob", 5)]
    told = {one.position: one.message for one in bad}
    assert {at: told[at] for at in (2, 3, 4)} == {
        2: "not one JSON object",
        3: "key: not one JSON object",
        4: "not one JSON object",
    }
    assert sorted(told) == ([0, 1, 2, 3, 4] if needed else [2, 3, 4])


def test_what_is_wrong_beside_the_value_takes_the_row_away_too() -> None:
    bulk = bulk_of([(ONE, b"{}"), (TWO, None)])
    bulk.times, bulk.headers = [1 << 60, 0], [None, "a name that is no text"]
    bad: list[BadRecord] = []
    rows = decoder("upsert").decode(bulk, bad.append).to_pylist()
    assert short(rows, "id", "_op", "_timestamp", "_headers") == [
        (1, "delete", None, None),
        (2, "delete", rows[1]["_timestamp"], None),
    ]
    assert [one.code for one in bad] == ["TG-0820", "TG-0821"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_debezium_puts_what_is_after_and_deletes_by_the_key(wrapped: bool) -> None:
    def sent(key: bytes, value: bytes | None) -> Pair:
        parts = [None if one is None else b'{"schema": {}, "payload": %s}' % one for one in (key, value)]
        return (parts[0], parts[1]) if wrapped else (key, value)

    messages = [
        sent(ONE, change("r", ADA)),
        sent(TWO, change("c", BOB)),
        sent(ONE, change("u", {**ADA, "name": "eve"}, ADA)),
        sent(TWO, change("d", None, BOB)),
        sent(TWO, None),
        sent(ONE, change("d")),
    ]
    rows, bad = tried(decoder("debezium"), messages)
    assert short(rows, "id", "name", "_op") == [
        (1, "ada", "update"),
        (2, "bob", "update"),
        (1, "eve", "update"),
        (2, "bob", "delete"),
        (2, None, "delete"),
        (1, None, "delete"),
    ]
    assert bad == []


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (change("m"), "its op is 'm', none of c, r, u and d"),
        (b'{"id": 1, "name": "flat"}', "its op is None, none of c, r, u and d"),
        (b'{"schema": null, "payload": null}', "its op is None, none of c, r, u and d"),
        (change("u", None, ADA), "its op is 'u', and it has no row after it"),
        (change("c", {"id": 1}), "column after/name: null, and NOT NULL"),
    ],
)
def test_t60_a_record_that_is_no_change_takes_the_row_away_and_says_why(value: bytes, why: str) -> None:
    whole = tg.Json("name string NOT NULL, n int")
    rows, bad = tried(decoder("debezium", value=whole), [(ONE, value)])
    assert short(rows, "id", "name", "_op", "_error") == [(1, None, "delete", f"TG-0457: {why}")]
    assert bad == [(0, "TG-0457", ONE, False)]
    rows, bad = tried(decoder("cdc", value=whole), [(ONE, value)])
    assert (rows, bad) == ([], [(0, "TG-0457", ONE, False)])


GONE = "__debezium_unavailable_value"
NOTES = tg.Json("name string, tags array<string>, photo binary, codes array<int>")


@pytest.mark.parametrize(
    ("said", "column"),
    [
        ({"name": GONE}, "name"),
        ({"tags": [GONE]}, "tags"),
        ({"name": "ada", "photo": base64.b64encode(GONE.encode()).decode()}, "photo"),
    ],
)
@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_a_value_that_the_database_did_not_send_is_refused_and_no_value(
    envelope: Envelope, said: dict[str, Any], column: str
) -> None:
    found = decoder(envelope, value=NOTES)
    value = json.dumps(said).encode() if envelope == "upsert" else change("u", said)
    good = json.dumps({"name": "eve"}).encode() if envelope == "upsert" else change("d", None, said)
    bad: list[BadRecord] = []
    with pytest.raises(ValueUnavailable, match=rf"position 12 of 't-0' lacks the value of column \S*{column}:"):
        found.decode(bulk_of([(b"?", value), (TWO, good), (ONE, value), (b"?", None)], first=10), bad.append)
    assert [one.position for one in bad] == [10], "what is before it was told; a bad key is a bad key"


def test_what_only_looks_like_a_missing_value_is_one() -> None:
    values: list[dict[str, Any]] = [
        {"name": f"{GONE}."},
        {"tags": ["a", None], "codes": [1]},
        {"tags": []},
        {"photo": "", "codes": None},
    ]
    rows, bad = tried(decoder("debezium", value=NOTES), [(ONE, change("u", one)) for one in values])
    assert [{name: row[name] for name in one} for row, one in zip(rows, values, strict=True)] == [
        *values[:3],
        {"photo": b"", "codes": None},
    ]
    assert bad == []


@pytest.mark.parametrize("key", [None, ONE])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_truncation_is_refused(key: bytes | None, wrapped: bool) -> None:
    value = b'{"payload": %s}' % change("t") if wrapped else change("t")
    with pytest.raises(TableTruncated, match="position 1 of 't-0'"):
        tried(decoder("debezium"), [(TWO, change("c", BOB)), (key, value), (None, None)])
    rows, bad = tried(decoder("cdc"), [(key, value)])
    assert (rows, bad) == ([], [(0, "TG-0457" if key else "TG-0454", key, False)])


def test_what_could_not_be_sent_stays_as_it_is_among_all_changes() -> None:
    rows, bad = tried(decoder("cdc", value=NOTES), [(ONE, change("u", {"name": GONE}))])
    assert short(rows, "name", "op") == [(GONE, "update")]
    assert bad == []


@pytest.mark.parametrize("key", [KEY, None])
def test_cdc_keeps_all_as_rows(key: Any) -> None:
    columns = VALUE if key else tg.Json("id long, name string, n int")
    messages = [
        (ONE, change("r", ADA)),
        (TWO, change("c", BOB)),
        (ONE, change("u", {**ADA, "n": 7}, ADA)),
        (TWO, change("u", {**BOB, "n": 8})),
        (TWO, change("d", None, {**BOB, "n": 8})),
        (TWO, None),
        (ONE, change("u", {**ADA, "n": 9}, {**ADA, "n": 7})),
    ]
    rows, bad = tried(decoder("cdc", key=key, value=columns), messages)
    assert short(rows, "id", "n", "op", "_offset") == [
        (1, 1, "read", 0),
        (2, 2, "insert", 1),
        (1, 1, "before", 2),
        (1, 7, "update", 2),
        (2, 8, "update", 3),
        (2, 8, "delete", 4),
        (1, 7, "before", 6),
        (1, 9, "update", 6),
    ]
    assert bad == []
    assert "_error" not in rows[0]


def said(one: Happening, envelope: Envelope, at: int) -> tuple[list[Any], list[Any]]:
    """The rows and bad records of what happens, by the definition."""
    keyed = one.messages(envelope)
    place = {"id": one.id}
    rows: list[Any] = []
    bad: list[Any] = []
    raw = keyed[0][0]
    if one.what == "put" and envelope != "cdc":
        rows = [{**one.row, "_op": "update"}]
    elif one.what == "put":
        word = {"c": "insert", "r": "read", "u": "update"}[one.op]
        older = [{**one.row, "name": "before", "op": "before"}] if one.told and one.op == "u" else []
        rows = [*older, {**one.row, "op": word}]
    elif one.what == "gone":
        old = (
            {**one.row, "name": "before"} if one.told and envelope != "upsert" else {**place, "name": None, "n": None}
        )
        gone = {**place, "name": None, "n": None, "_op": "delete"}
        rows = [{**old, "op": "delete"}] if envelope == "cdc" else [{**old, "_op": "delete"}, gone][: len(keyed)]
    elif one.what == "bad value":
        rows = [] if envelope == "cdc" else [{**place, "name": None, "n": None, "_op": "delete"}]
        bad = [(at, raw)]
    else:
        bad = [(at, raw)]
    return rows, bad


@pytest.mark.parametrize("envelope", ENVELOPES)
@deep(100)
@given(happenings=st.lists(HAPPENINGS, max_size=12), cuts=st.lists(st.integers(0, 24), max_size=4))
def test_each_message_means_what_it_says_however_messages_are_batched(
    envelope: Envelope, happenings: list[Happening], cuts: list[int]
) -> None:
    found = decoder(envelope)
    messages: list[Pair] = []
    wanted: tuple[list[Any], list[Any]] = [], []
    for one in happenings:
        rows, bad = said(one, envelope, len(messages))
        messages += one.messages(envelope)
        wanted[0].extend(rows)
        wanted[1].extend(bad)
    ends = sorted({0, len(messages), *(cut for cut in cuts if cut < len(messages))})
    whole = tried(found, messages) if messages else ([], [])
    parts = [tried(found, messages[a:b], first=a) for a, b in pairwise(ends)]
    assert ([row for rows, _ in parts for row in rows], [one for _, bad in parts for one in bad]) == whole
    kept = ("id", "name", "n", "op" if envelope == "cdc" else "_op")
    assert short(whole[0], *kept) == short(wanted[0], *kept)
    assert [(at, raw) for at, _, raw, _ in whole[1]] == wanted[1]
    bare = tried(decoder(envelope, metadata=False), messages) if messages else ([], [])
    assert bare == ([{name: row[name] for name in kept} for row in whole[0]], whole[1])


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_what_comes_of_messages_through_spark_s_connector_is_the_same(envelope: Envelope) -> None:
    value = b'{"name": "ada", "n": 1}' if envelope == "upsert" else change("u", ADA, BOB)
    messages: list[Pair] = [(ONE, value), (ONE, None), (None, value), (b"", b""), (TWO, b"?")]
    keys, values = [key for key, _ in messages], [value for _, value in messages]
    told = {
        "timestamp": pa.array([0] * 5, pa.timestamp("us", tz="UTC")),
        "offset": pa.array(range(5), pa.int64()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(5, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
    found, bad = decoder(envelope), list[BadRecord]()
    piece = Piece(0, "t-0", 0, 5, found.schema, pa.record_batch(told))
    rows = found.decode(framed(piece), bad.append).to_pylist()
    assert (rows, [(one.position, one.code, one.key, one.withdraws) for one in bad]) == tried(found, messages)
    assert len(bad) == 3


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"envelope": "merge", "key": KEY}, "envelope"),
        ({"envelope": "upsert"}, "key"),
        ({"envelope": "debezium"}, "key"),
        ({"envelope": "debezium", "key": KEY, "format": tg.Json()}, "format"),
        ({"envelope": "debezium", "key": tg.Json("payload long")}, "key"),
        ({"envelope": "debezium", "key": tg.Json()}, "key"),
    ],
)
def test_an_envelope_that_cannot_be_is_refused(how: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        tg.KafkaSource(HERE, topic="t", **{"format": VALUE, **how})


@pytest.mark.parametrize(
    ("envelope", "columns"), [("upsert", "_op string"), ("cdc", "OP string"), ("cdc", "_op string")]
)
def test_a_column_of_the_operations_name_is_refused(envelope: Any, columns: str) -> None:
    with pytest.raises(ReservedColumn):
        tg.KafkaSource(HERE, topic="t", format=tg.Json(columns), key=KEY, envelope=envelope)


def test_a_source_says_its_envelope_and_knows_its_columns_again() -> None:
    value = tg.Json("name string NOT NULL")
    for envelope in ENVELOPES:
        source = tg.KafkaSource(HERE, topic="t", format=value, key=KEY, envelope=envelope)
        assert source.describe()["envelope"] == envelope
        assert source.schema is not None
        assert source.schema.names == ["id", "name", "op" if envelope == "cdc" else "_op"]
        assert source.schema.field("name").nullable
        found = key_and_value(source.schema, KEY.schema, value.schema, metadata=False, source="t", envelope=envelope)
        assert [part.names for part in found] == [["id"], ["name"]]
    assert "envelope" not in tg.KafkaSource(HERE, topic="t", format=value).describe()


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize(("was", "now"), [("append", "upsert"), ("upsert", "append"), ("cdc", "debezium")])
def test_an_envelope_that_is_put_on_or_taken_off_later_is_refused(was: Any, now: Any, metadata: bool) -> None:
    how: dict[str, Any] = {"metadata": metadata}
    bound = joined(KEY.schema or pa.schema([]), VALUE.schema or pa.schema([]), topics="t", envelope=was, **how)
    with pytest.raises(SchemaChanged):
        key_and_value(bound, KEY.schema, VALUE.schema, source="t", envelope=now, **how)
