"""HTTP, answered by a real server as the worst do: each row once, and every fault by its name."""

from __future__ import annotations

import gc
import gzip
import io
import json
import logging
import shutil
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.polls.polling import Clock, Driver
from tests.sources.polls.server import Answer, Asked, Served, certificate, served

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.polls import (
    EtagReused,
    HttpMissing,
    HttpRefused,
    HttpTooLarge,
    HttpUnlike,
    HttpUnreachable,
    KeysUnfit,
    NotAsked,
    PagesAstray,
)
from tidegauge.errors.secrets import SecretInClear
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime import SourceState
from tidegauge.sources.polls.trust import trusted, whom


@pytest.fixture
def server() -> Iterator[Served]:
    with served() as one:
        yield one


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def source(server: Served, root: Path, path: str = "/rates", **given: Any) -> tg.HttpSource:
    options = {"format": tg.Json("n long, s string"), "staging": root / "polls", "timeout": 20.0, **given}
    return tg.HttpSource(server.url + path, **options)


def driver(server: Served, root: Path, path: str = "/rates", **given: Any) -> Driver:
    return Driver(source(server, root, path, **given))


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {n}}}\n' for n in numbers)


def numbers(one: Driver) -> list[int]:
    return [row["n"] for row in one.rows()]


def state(one: Driver) -> SourceState:
    assert one.bound.state is not None
    return one.bound.state


def test_o1_an_etag_is_sent_back_and_304_moves_nothing(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1, 2), ETag='"A"')
    assert one.poll()
    assert "if-none-match" not in server.last.headers
    assert (state(one).kind, state(one).source_id, validator(one)) == ("odf/etag", "odf/polling", '"A"')
    server.says(status=304, ETag='"A"')
    before = one.bindings
    assert not one.poll()
    assert server.last.headers["if-none-match"] == '"A"'
    assert one.bindings == before
    server.says(lines(3), ETag='"B"')
    assert one.poll()
    assert numbers(one) == [1, 2, 3]


def test_last_modified_is_sent_back(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), Last_Modified="Fri, 20 Nov 2026 17:00:00 GMT")
    one.poll()
    assert state(one).kind == "odf/last-modified"
    assert validator(one) == "2026-11-20T17:00:00+00:00"
    server.says(status=304)
    assert not one.poll()
    assert server.last.headers["if-modified-since"] == "Fri, 20 Nov 2026 17:00:00 GMT"


@pytest.mark.parametrize(
    ("etag", "kind"), [("{:x}-8", "tidegauge/body"), ("{:x}7-8", "odf/etag"), ("a1b2", "odf/etag")]
)
def test_an_etag_made_of_a_time_is_not_believed_in_the_second_of_that_time(
    server: Served, tmp_path: Path, etag: str, kind: str
) -> None:
    """As nginx makes it: two bodies of one second and one size have the same."""
    one, soon = driver(server, tmp_path), int(time.time()) + 3600
    headers: dict[str, Any] = {"ETag": f'"{etag.format(soon)}"', "Last_Modified": formatdate(soon, usegmt=True)}
    server.says(lines(1), **headers)
    one.poll()
    assert state(one).kind == kind
    if kind == "tidegauge/body":
        server.says(lines(2), **headers)
        one.poll()
        assert numbers(one) == [1, 2]


def test_o16_of_two_validators_the_etag_counts(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), ETag='"A"', Last_Modified="Fri, 20 Nov 2026 17:00:00 GMT")
    one.poll()
    server.says(status=304)
    one.poll()
    assert state(one).kind == "odf/etag"
    assert "if-modified-since" not in server.last.headers


@pytest.mark.parametrize("headers", [{}, {"ETag": '"A"'}, {"Last_Modified": "no time at all"}])
def test_o15_a_200_without_change_brings_nothing_whatever_the_validators(
    server: Served, tmp_path: Path, headers: Any
) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), **headers)
    one.poll()
    before = one.bindings
    assert not one.poll()
    assert not Driver(one.source, bound=one.bound).poll()
    assert (numbers(one), one.bindings) == ([1], before)


def test_o2_a_new_etag_of_the_same_body_is_bound_without_rows(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), ETag='"A"')
    one.poll()
    server.says(lines(1), ETag='"B"')
    assert one.poll()
    assert numbers(one) == [1]
    assert validator(one) == '"B"'


def test_o14_an_etag_that_comes_back_with_another_body_is_told(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), ETag='"A"')
    one.poll()
    server.says(lines(2), ETag='"A"')
    stalls(one, EtagReused, "another body under the same ETag")
    wary = driver(server, tmp_path / "wary", conditional=False)
    wary.poll()
    server.says(lines(3), ETag='"A"')
    wary.poll()
    assert "if-none-match" not in server.last.headers
    assert numbers(wary) == [2, 3]


def test_a_weak_etag_may_have_another_body(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), ETag='W/"A"')
    one.poll()
    server.says(lines(2), ETag='W/"A"')
    one.poll()
    assert numbers(one) == [1, 2]


def test_o7_a_state_of_an_unknown_kind_is_kept_and_ignored(
    server: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.says(lines(1), ETag='"A"')
    unknown = SourceState(kind="x/unknown", source_id="odf/polling", value="?")
    one = Driver(source(server, tmp_path), bound=Bound(state=unknown))
    server.says(status=500)
    stalls(one, HttpRefused, "500")
    assert state(one) == unknown
    server.says(lines(1), ETag='"A"')
    with caplog.at_level(logging.WARNING):
        one.clock.now += 60
        one.poll()
    assert "x/unknown" in caplog.text
    assert "if-none-match" not in server.last.headers
    assert numbers(one) == [1]


def test_a_state_as_the_open_data_formats_have_it_is_understood(server: Served, tmp_path: Path) -> None:
    known = SourceState(kind="odf/etag", source_id="odf/polling", value='"A"')
    one = Driver(source(server, tmp_path), bound=Bound(state=known))
    server.says(status=304, ETag='"A"')
    assert not one.poll()
    assert server.last.headers["if-none-match"] == '"A"'


def test_the_watermark_is_carried(server: Served, tmp_path: Path) -> None:
    mark = datetime(2050, 1, 2, tzinfo=UTC)
    known = SourceState(kind="odf/etag", source_id="odf/polling", value='"A"', watermark=mark)
    one = Driver(source(server, tmp_path), bound=Bound(state=known))
    server.says(lines(1), ETag='"B"')
    one.poll()
    assert state(one).watermark == mark


def test_another_address_is_asked_without_the_conditions_of_this_one(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), ETag='"A"')
    one.poll()
    other = Driver(source(server, tmp_path, "/others"), bound=one.bound)
    other.poll()
    assert "if-none-match" not in server.last.headers


def test_a_304_that_names_another_state_is_asked_again_without_a_condition(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), ETag='"A"')
    one.poll()

    def confused(asked: Asked) -> Answer:
        if "if-none-match" in asked.headers:
            return Answer(status=304, headers={"ETag": '"Z"'})
        return Answer(lines(2).encode(), headers={"ETag": '"Z"'})

    server.answer = confused
    one.poll()
    assert numbers(one) == [1, 2]


def validator(one: Driver) -> Any:
    value: Any = state(one).value
    return value["value"]


def stalls(one: Driver, error: type[TidegaugeError], problem: str) -> TidegaugeError:
    """See that a poll ends with an error that stalls, and leaves nothing."""
    staging = Path(one.source.staging)
    there, bindings = sorted(staging.rglob("*")), one.bindings
    one.clock.now += 60
    with pytest.raises(error, match=problem) as caught:
        one.look()
    assert isinstance(caught.value, Transient)
    assert not isinstance(caught.value, Definite)
    assert (sorted(staging.rglob("*")), one.bindings) == (there, bindings)
    return caught.value


PACKING = zlib.compressobj(wbits=31)
CUT_OFF = PACKING.compress(lines(1, 2).encode()) + PACKING.flush(zlib.Z_SYNC_FLUSH)
OTHER = io.BytesIO()
pq.write_table(pa.table({"x": [1]}), OTHER)
NO_PARQUET = b"PAR1" + bytes(40) + b"PAR1"
NOWHERE = "http://127.0.0.1:1/"
HTML = "<!DOCTYPE html><html><body>Please log in</body></html>"
WORST: dict[str, tuple[dict[str, Any], dict[str, Any], type[TidegaugeError], str]] = {
    "a page of HTML": ({"body": HTML, "Content_Type": "text/html; charset=utf-8"}, {}, HttpUnlike, "a page of HTML"),
    "HTML that says it is JSON": (
        {"body": HTML, "Content_Type": "application/json"},
        {},
        HttpUnlike,
        "a page of HTML",
    ),
    "a line that is no record": ({"body": '{"n": 1}\n{"n": "x"}\n'}, {}, HttpUnlike, "at byte 9"),
    "an array cut off": ({"body": '[{"n": 1}, {"n"'}, {}, HttpUnlike, "cannot be read as json"),
    "an array of other things": ({"body": "[1, 2]"}, {}, HttpUnlike, "record 0"),
    "no array where one is due": ({"body": '{"data": 7}'}, {"rows": "data"}, HttpUnlike, "there is no array"),
    "more after the array": ({"body": '[{"n": 1}]\n[{"n": 2}]'}, {}, HttpUnlike, "goes on after its end"),
    "more after the object": ({"body": '{"d": [{"n": 1}]}{'}, {"rows": "d"}, HttpUnlike, "goes on after its end"),
    "a member that is there twice": ({"body": '{"d": [], "d": []}'}, {"rows": "d"}, HttpUnlike, "more than once"),
    "an error in the place of rows": ({"body": '{"error": "over quota"}'}, {}, HttpUnlike, "they have .'error'."),
    "errors in the place of rows": ({"body": '[{"error": "over quota"}]'}, {}, HttpUnlike, "they have .'error'."),
    "Parquet of other columns": (
        {"body": OTHER.getvalue()},
        {"format": tg.Parquet("n long")},
        HttpUnlike,
        "they have .'x'.",
    ),
    "text of another character set": (
        {"body": b"n,s\n1,+AGE-\n", "Content_Type": "text/csv; charset=utf-7"},
        {"format": tg.Csv("n long, s string")},
        HttpUnlike,
        "its text is 'utf-7'",
    ),
    "no such member": ({"body": '{"date": []}'}, {"rows": "data"}, HttpUnlike, "no member 'data'"),
    "a body that is no text": ({"body": b"[\xff]"}, {}, HttpUnlike, "utf-8"),
    "JSON without end": ({"body": "[" * 100_000}, {}, HttpUnlike, "cannot be read"),
    "an oversized body": ({"body": lines(*range(100))}, {"max_bytes": 500}, HttpTooLarge, "more than 500 bytes"),
    "an oversized body when unpacked": (
        {"body": gzip.compress(bytes(1 << 20)), "Content_Encoding": "gzip"},
        {"max_bytes": 5000},
        HttpTooLarge,
        "more than 5000",
    ),
    "a truncated body": ({"body": lines(1), "length": 500}, {}, HttpUnreachable, "RemoteProtocolError"),
    "chunks that break off": ({"body": lines(1), "length": -1}, {}, HttpUnreachable, "RemoteProtocolError"),
    "packed bytes that are none": ({"body": b"no gzip", "Content_Encoding": "gzip"}, {}, HttpUnreachable, "are none"),
    "packed bytes that are cut off between two rows": (
        {"body": CUT_OFF, "Content_Encoding": "gzip"},
        {},
        HttpUnreachable,
        "are cut off",
    ),
    "packed as nobody asked for": (
        {"body": lines(1), "Content_Encoding": "br"},
        {},
        HttpUnreachable,
        "packed as 'br'",
    ),
    "packed again and again": (
        {"body": lines(1), "Content_Encoding": "gzip, gzip, gzip"},
        {},
        HttpUnreachable,
        "packed 3 times",
    ),
    "redirects in circles": ({"status": 302, "Location": "/rates"}, {}, HttpUnreachable, "TooManyRedirects"),
    "a redirect to no address": (
        {"status": 302, "Location": "http://[::1/"},
        {},
        HttpUnreachable,
        "an address that is none",
    ),
    "a redirect to nowhere": (
        {"status": 302, "Location": NOWHERE},
        {},
        HttpUnreachable,
        "ConnectError",
    ),
    "a 304 to no condition": ({"status": 304}, {}, NotAsked, "without a condition"),
    "a 404": ({"status": 404}, {}, HttpRefused, "404 Not Found"),
    "a 401": ({"status": 401}, {}, HttpRefused, "401"),
    "a 204": ({"status": 204}, {}, HttpRefused, "204"),
    "a 206": ({"status": 206, "body": lines(1)}, {}, HttpRefused, "206"),
    "a 500": ({"status": 500, "body": lines(1)}, {}, HttpRefused, "500"),
    "a link in a circle": ({"body": lines(1), "Link": '</rates>; rel="next"'}, {}, PagesAstray, "in a circle"),
    "a link elsewhere": (
        {"body": lines(1), "Link": '<http://127.0.0.1:1/>; rel="next"'},
        {},
        PagesAstray,
        "to another server, http://127.0.0.1:1/",
    ),
    "a cursor in a circle": (
        {"body": '{"data": [], "next": "a"}'},
        {"rows": "data", "cursor": ("next", "after")},
        PagesAstray,
        "in a circle",
    ),
    "a cursor that is there twice": (
        {"body": '{"data": [], "meta": {"next": 1, "next": 2}}'},
        {"rows": "data", "cursor": ("meta.next", "after")},
        HttpUnlike,
        "'next' of the path 'meta.next' more than once",
    ),
    "a cursor of another type": (
        {"body": '{"data": [], "next": [1]}'},
        {"rows": "data", "cursor": ("next", "after")},
        PagesAstray,
        "cursor of type list",
    ),
    "Parquet cut off": ({"body": b"PAR1 and no end"}, {"format": tg.Parquet("n long")}, HttpUnlike, "does not end"),
    "Parquet that is none": (
        {"body": NO_PARQUET},
        {"format": tg.Parquet("n long")},
        HttpUnlike,
        "as parquet",
    ),
    "two rows of a key": (
        {"body": lines(1, 1)},
        {"merge": "snapshot", "key": "n"},
        KeysUnfit,
        "came before",
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_answers_stall_the_source_and_it_goes_on(server: Served, tmp_path: Path, name: str) -> None:
    said, given, error, problem = WORST[name]
    one = driver(server, tmp_path, **given)
    server.says(**said)
    stalls(one, error, problem)
    gets = server.gets
    with pytest.raises(error):
        one.look()
    assert server.gets == gets, "it is asked again at once"
    if "format" not in given and "rows" not in given:
        server.says(lines(7))
        one.clock.now += 60
        one.poll()
        assert numbers(one) == [7]


@pytest.mark.parametrize(
    ("packing", "body"),
    [
        ("gzip", gzip.compress(lines(1).encode()) + gzip.compress(lines(2).encode()) + bytes(9)),
        ("deflate", zlib.compress(lines(1, 2).encode())),
        ("deflate", zlib.compress(lines(1, 2).encode(), wbits=-15)),
        ("X-GZIP, identity", gzip.compress(lines(1, 2).encode())),
        ("gzip, gzip", gzip.compress(gzip.compress(lines(1, 2).encode()))),
    ],
)
def test_a_packed_body_is_read_to_its_end(server: Served, tmp_path: Path, packing: str, body: bytes) -> None:
    one = driver(server, tmp_path)
    server.says(body, Content_Encoding=packing)
    one.poll()
    assert numbers(one) == [1, 2]
    assert server.last.headers["accept-encoding"] == "gzip, deflate"


def test_the_body_of_a_redirect_is_not_taken_in(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    there = Answer(lines(1).encode())
    away = Answer(status=302, headers={"Location": "/new"}, length=1 << 40)
    server.answer = lambda asked: there if asked.path == "/new" else away
    one.poll()
    assert numbers(one) == [1]


def test_redirects_one_after_the_other_share_the_time_of_one_answer(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)

    def on(asked: Asked) -> Answer:
        one.clock.now += 15.0
        return Answer(status=302, headers={"Location": f"{asked.path}x"})

    server.answer = on
    stalls(one, HttpUnreachable, "too slow")
    assert server.gets == 2


@pytest.mark.parametrize("etag", ["*", '"\xfc"', '"a", "b"', f'"{"a" * 5000}"'])
def test_what_is_no_etag_that_can_be_sent_back_is_none(server: Served, tmp_path: Path, etag: str) -> None:
    one = driver(server, tmp_path)
    for n in (1, 2, 2):
        server.says(lines(n), ETag=etag)
        one.poll()
        assert "if-none-match" not in server.last.headers
    assert (numbers(one), state(one).kind) == ([1, 2], "tidegauge/body")


def test_a_stored_etag_that_cannot_be_sent_does_not_stall_the_source(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), ETag='"a"')
    one.poll()
    value: Any = state(one).value
    kept = SourceState(kind="odf/etag", source_id="odf/polling", value={**value, "value": '"\xfc"'})
    one.bound = replace(one.bound, state=kept)
    again = Driver(one.source, bound=one.bound)
    again.poll()
    assert (numbers(again), validator(again)) == ([1], '"a"')


def test_an_answer_slow_to_unpack_is_given_up_in_time(server: Served, tmp_path: Path) -> None:
    """The packed bytes of nothing, on and on, give no byte to look at."""
    one = driver(server, tmp_path)
    packing = zlib.compressobj(wbits=31)
    nothing = packing.compress(b"") + b"".join(packing.flush(zlib.Z_SYNC_FLUSH) for _ in range(20_000))
    server.says(nothing, Content_Encoding="gzip")
    said = server.answer

    def late(asked: Asked) -> Answer:
        one.clock.now += 21.0
        return said(asked)

    server.answer = late
    stalls(one, HttpUnreachable, "too slow: 0 bytes came")


@pytest.mark.parametrize("body", ['\ufeff[{"n": 1}]', '\ufeff{"n": 1}\n', '\ufeff {"rows": [{"n": 1}]}'])
def test_a_mark_of_the_byte_order_is_no_part_of_json(server: Served, tmp_path: Path, body: str) -> None:
    one = driver(server, tmp_path, rows="rows" if "rows" in body else "")
    server.says(body)
    one.poll()
    assert numbers(one) == [1]


def test_text_that_says_it_is_latin_and_is_ascii_or_utf_8_is_read(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path, format=tg.Csv("n long, s string"))
    for said in ("Rome", "Z\u00fcrich"):
        server.says(f"n,s\n1,{said}\n", Content_Type="text/csv; charset=iso-8859-1")
        one.poll()
    assert [row["s"] for row in one.rows()] == ["Rome", "Z\u00fcrich"]


def test_records_of_nulls_are_rows_where_they_have_a_column(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says('{"n": null}\n{}\n')
    one.poll()
    assert numbers(one) == [None, None]


def test_an_answer_that_is_slow_to_the_last_byte_is_given_up_in_time(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path)
    server.says(lines(1), drip=0.01)
    said = server.answer

    def late(asked: Asked) -> Answer:
        one.clock.now += 21.0  # more than an answer may take, by the flow's clock
        return said(asked)

    server.answer = late
    stalls(one, HttpUnreachable, "too slow")


@pytest.mark.parametrize("secured", [False, True])
def test_headers_that_drip_end_with_the_time_of_one_answer(tmp_path: Path, secured: bool, monkeypatch: Any) -> None:
    """Also where the connection was made for an answer that was quick."""
    alone, both = certificate(tmp_path / "tls") if secured else (None, None)
    if alone:
        monkeypatch.setenv("SSL_CERT_FILE", str(alone))
    with served(both) as server:
        clock = Clock()
        env = Env(monotonic=lambda: time.monotonic() + clock.now)
        one = Driver(source(server, tmp_path, timeout=30.0), env=env)
        one.clock = clock
        server.says(lines(1))
        one.poll()
        object.__setattr__(one.poller._setup.fetch, "timeout", 1.0)  # type: ignore[attr-defined]
        server.says(lines(2), drip=0.01, headers_drip=True, x_long="x" * 1500)
        stalls(one, HttpUnreachable, r"it is too slow: 0 bytes came|ReadTimeout")
        object.__setattr__(one.poller._setup.fetch, "timeout", 30.0)  # type: ignore[attr-defined]
        server.says(lines(3))
        one.poll()
        assert numbers(one) == [1, 3]


def test_the_next_page_of_a_cursor_is_asked_for_where_the_first_one_was(server: Served, tmp_path: Path) -> None:
    with served() as other:
        one = driver(server, tmp_path, rows="data", cursor=("next", "after"))

        def redirect(asked: Asked) -> Answer:
            return Answer(status=307, headers={"Location": f"{other.url}{asked.path}"})

        server.answer = redirect
        last = '{"data": [{"n": 2}], "next": null}'
        first = '{"data": [{"n": 1}], "next": "b"}'
        other.answer = lambda asked: Answer((last if "after=b" in asked.path else first).encode())
        one.poll()
    assert numbers(one) == [1, 2]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("said", "seconds"), [(None, 1.0), ("120", 120.0), ("soon", 1.0), ("-5", 1.0)])
def test_retry_after_is_heeded(server: Served, tmp_path: Path, status: int, said: str | None, seconds: float) -> None:
    one = driver(server, tmp_path)
    server.says(status=status, **({} if said is None else {"Retry_After": said}))
    stalls(one, HttpRefused, str(status))
    server.says(lines(1))
    one.clock.now += seconds - 0.01
    with pytest.raises(HttpRefused):
        one.look()
    assert server.gets == 1
    one.clock.now += 0.02
    one.bind(one.look())
    assert numbers(one) == [1]


def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with served() as server:
        one = driver(server, tmp_path)
        server.says(lines(1))
        one.poll()
    error = stalls(Driver(one.source, bound=one.bound), HttpUnreachable, "ConnectError")
    assert getattr(error, "patient", False)


def test_pages_are_followed_by_link_and_staged_together(server: Served, tmp_path: Path) -> None:
    def paged(asked: Asked) -> Answer:
        page = int(asked.path.partition("page=")[2] or 1)
        link = f'</rates?page={page + 1}>; rel="next", </rates?page=3>; rel="last"' if page < 3 else '<x>; rel="prev"'
        return Answer(lines(page, page * 10).encode(), headers={"Link": link, "ETag": f'"{page}"'})

    server.answer = paged
    one = driver(server, tmp_path)
    one.poll()
    assert numbers(one) == [1, 10, 2, 20, 3, 30]
    assert one.bound.frontier["polls"] == 1
    assert validator(one) == '"1"'
    assert not one.poll()


def test_pages_are_followed_by_cursor(server: Served, tmp_path: Path) -> None:
    def paged(asked: Asked) -> Answer:
        at = int(asked.path.partition("after=")[2] or 0)
        following = at + 2 if at < 4 else None
        return Answer(json.dumps({"data": {"items": [{"n": at}, {"n": at + 1}]}, "next": following}).encode())

    server.answer = paged
    one = driver(server, tmp_path, rows="data.items", cursor=("next", "after"))
    one.poll()
    assert numbers(one) == [0, 1, 2, 3, 4, 5]
    assert not one.poll()


def test_a_cursor_takes_the_place_of_one_in_the_address(server: Served, tmp_path: Path) -> None:
    """An address as documentation shows it, with its first page."""
    one = driver(server, tmp_path, "/rates?page=1&size=1", rows="data", cursor=("next", "page"))
    pages = {
        f"/rates?page={n}&size=1": f'{{"data": [{{"n": {n}}}], "next": {n + 1 if n < 3 else "null"}}}'
        for n in (1, 2, 3)
    }
    server.answer = lambda asked: Answer(pages[asked.path].encode())
    one.poll()
    assert numbers(one) == [1, 2, 3]


def test_a_page_that_fails_leaves_nothing_of_the_others(server: Served, tmp_path: Path) -> None:
    def paged(asked: Asked) -> Answer:
        if "page" in asked.path:
            return Answer(status=503, headers={"Retry-After": "3"})
        return Answer(lines(1).encode(), headers={"Link": '</rates?page=2>; rel="next"'})

    server.answer = paged
    one = driver(server, tmp_path)
    stalls(one, HttpRefused, "503")


def table(rows: list[int]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("format", "body", "given"),
    [
        (tg.Json("n long"), b'{"n": 1}\n{"n": 2}', {}),
        (tg.Json("n long"), b' [ {"n": 1} ,\n {"n":\n 2} ] ', {}),
        (tg.Json("n long"), b'{"next": null, "data": [{"n": 1, "more": {"data": [9]}}, {"n": 2}]}', {"rows": "data"}),
        (tg.Csv("n long"), b"n\n1\n2\n", {}),
        (tg.Parquet("n long"), table([1, 2]), {}),
    ],
)
def test_bodies_are_read_by_the_formats_of_files(
    server: Served, tmp_path: Path, format: Any, body: bytes, given: Any
) -> None:
    one = driver(server, tmp_path, format=format, **given)
    server.says(body, ETag='"A"')
    one.poll()
    assert numbers(one) == [1, 2]


def test_numbers_of_an_array_keep_all_their_digits(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path, format=tg.Json("n decimal(38,20), k long"))
    server.says('[{"n": 12345678901234567.12345678901234567890, "k": 9007199254740993}]')
    one.poll()
    [row] = one.rows()
    assert (str(row["n"]), row["k"]) == ("12345678901234567.12345678901234567890", 9007199254740993)


def test_a_snapshot_over_http_tells_what_became_of_each_key(server: Served, tmp_path: Path) -> None:
    one = driver(server, tmp_path, merge="snapshot", key="n")
    server.says('[{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]', ETag='"A"')
    one.poll()
    server.says('[{"n": 2, "s": "B"}, {"n": 3, "s": "c"}]', ETag='"B"')
    one.poll()
    server.says('[{"n": 3, "s": "c"}, {"n": 2, "s": "B"}]', ETag='"C"')  # another order
    one.poll()
    assert one.bound.frontier["polls"] == 2
    assert validator(one) == '"C"'
    found = [(row["n"], row["s"], row["_op"]) for row in one.rows(1)]
    assert found == [(1, "a", "delete"), (2, "b", "before"), (2, "B", "update"), (3, "c", "insert")]


def test_o5_no_second_get_of_what_is_staged(server: Served, tmp_path: Path) -> None:
    server.says(lines(1, 2), ETag='"A"')
    driver(server, tmp_path).look()  # staged, then the driver died
    assert server.gets == 1
    server.answer = lambda asked: Answer(status=304) if "if-none-match" in asked.headers else Answer(status=500)
    one = driver(server, tmp_path)
    one.bind(one.look())
    assert numbers(one) == [1, 2]
    assert [asked.headers.get("if-none-match") for asked in server.asked] == [None, '"A"']


def test_secrets_are_looked_up_when_they_are_sent_and_shown_to_nobody(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("THE_TOKEN", "Bearer hunter2")
    monkeypatch.setenv("THE_KEY", "k-hunter2")
    given = {"headers": {"Authorization": "env:THE_TOKEN"}, "params": {"api_key": "env:THE_KEY", "page": "1"}}
    one = driver(server, tmp_path, "/rates?of=eur", **given)
    server.says(status=403)
    error = stalls(one, HttpRefused, "403")
    assert server.last.headers["authorization"] == "Bearer hunter2"
    assert server.last.path == "/rates?of=eur&api_key=k-hunter2&page=1"
    assert "hunter2" not in f"{error} {one.source!r} {json.dumps(dict(one.source.describe()))}"
    server.says(lines(1), ETag='"A"')
    one.clock.now += 60
    one.poll()
    assert "hunter2" not in state(one).encode()
    with served() as other:
        server.says(status=302, Location=f"{other.url}/stolen")
        stalls(one, PagesAstray, "the request has secrets")
        assert not other.gets
        keyed = driver(server, tmp_path / "keyed", params={"api_key": "env:THE_KEY"})
        stalls(keyed, PagesAstray, "the request has secrets")
        assert not other.gets
        server.says(status=302, Location="/moved")  # on the same server it is followed
        stalls(keyed, HttpUnreachable, "TooManyRedirects")
    assert f"GET {server.url}/rates " in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"format": tg.Json()}, InvalidArgument),
        ({"format": "json"}, InvalidArgument),
        ({"format": tg.Csv("n long"), "rows": "data"}, InvalidArgument),
        ({"cursor": ("next", "after")}, InvalidArgument),
        ({"rows": "data", "cursor": "next"}, InvalidArgument),
        ({"max_bytes": 0}, InvalidArgument),
        ({"timeout": 0}, InvalidArgument),
        ({"headers": {"If-None-Match": "x"}}, InvalidArgument),
        ({"headers": {"X": 1}}, InvalidArgument),
        ({"headers": {"Authorization": "Bearer x"}}, SecretInClear),
        ({"headers": {"X-Api-Key": "x"}}, SecretInClear),
        ({"params": {"token": "x"}}, SecretInClear),
        ({"url": "http://me:pw@example.org/"}, SecretInClear),
        ({"url": "http://example.org/?api_key=7"}, SecretInClear),
        ({"url": "ftp://example.org/"}, InvalidArgument),
        ({"url": "example.org"}, InvalidArgument),
        ({"url": None}, InvalidArgument),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_said(tmp_path: Path, given: Any, error: type[TidegaugeError]) -> None:
    options: Any = {"url": "http://example.org/", "format": tg.Json("n long"), "staging": tmp_path, **given}
    with pytest.raises(error):
        tg.HttpSource(options.pop("url"), **options)


def test_a_flow_without_the_client_says_which_extra_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "httpx2", None)
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/flow.db")
    made = tg.HttpSource("http://example.org/", format=tg.Json("n long"), staging=tmp_path)
    with pytest.raises(HttpMissing, match=r"tidegauge\[http\]"):
        flow.source("rates", made)


class Trust:
    """Certificates that were read."""


def test_a_poll_takes_along_what_has_changed_since_the_last_one(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_TESTS", "one")
    one = driver(server, tmp_path, headers={"X-Api-Key": "env:KEY_OF_TESTS"}, params={"of": "env:KEY_OF_TESTS"})
    server.says(lines(1), ETag='"A"')
    one.poll()
    server.says(status=304, ETag='"A"')
    asked = list[tuple[str | None, ...]]()
    for key, cookie in (("one", ""), ("one", ""), ("two", ""), ("two", "seen=1"), ("two", "seen=2"), ("two", "")):
        monkeypatch.setenv("KEY_OF_TESTS", key)
        server.says(status=304, ETag='"A"', **({"Set-Cookie": cookie} if cookie else {}))
        one.clock.now += 60
        one.look()
        asked.append((server.last.path, server.last.headers["x-api-key"], server.last.headers.get("cookie")))
        assert server.last.headers["if-none-match"] == '"A"'
    assert asked == [
        ("/rates?of=one", "one", None),
        ("/rates?of=one", "one", None),
        ("/rates?of=two", "two", None),
        ("/rates?of=two", "two", None),
        ("/rates?of=two", "two", "seen=1"),
        ("/rates?of=two", "two", "seen=2"),
    ]


def test_sources_of_one_time_read_the_certificates_to_trust_once() -> None:
    read: list[int] = []
    two = threading.Barrier(2)

    def reading() -> Trust:
        with suppress(threading.BrokenBarrierError):
            two.wait(timeout=0.2)  # where there is a second one, it comes in as well
        read.append(1)
        return Trust()

    client = SimpleNamespace(__name__="client", create_ssl_context=reading)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(trusted, [client] * 8, [whom(0.0)] * 8))
    assert (len(read), len(set(found))) == (1, 1)
    del found
    gc.collect()
    assert isinstance(trusted(client, whom(0.0)), Trust)
    assert len(read) == 2, "who comes after the last of them reads anew"


def test_certificates_that_change_while_a_flow_runs_count_from_the_next_poll_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, both = certificate(tmp_path / "ours")
    another, _ = certificate(tmp_path / "another")
    given = tmp_path / "given.pem"
    given.write_bytes(another.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(given))
    with served(both) as secure:
        secure.answer = lambda _asked: Answer(lines(secure.gets).encode(), headers={"Set-Cookie": "seen=1"})
        one = driver(secure, tmp_path)

        def poll() -> str:
            one.clock.now += 300
            try:
                one.poll()
            except HttpUnreachable as error:
                return str(error.evidence["detail"])
            return ""

        assert "CERTIFICATE_VERIFY_FAILED" in poll()
        given.write_bytes(another.read_bytes() + alone.read_bytes())
        assert (poll(), numbers(one)) == ("", [1])
        given.write_bytes(another.read_bytes())
        assert "CERTIFICATE_VERIFY_FAILED" in poll(), "also where a connection is open"
        monkeypatch.setenv("SSL_CERT_FILE", str(alone))
        assert (poll(), numbers(one)) == ("", [1, 2])
        assert secure.last.headers["cookie"] == "seen=1"
        given.unlink()
        monkeypatch.setenv("SSL_CERT_FILE", str(given))
        assert "the certificates to trust, of SSL_CERT_FILE or SSL_CERT_DIR, cannot be read" in poll()
        shutil.copyfile(alone, given)
        assert (poll(), numbers(one)) == ("", [1, 2, 3])
