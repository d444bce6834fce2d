"""URLs that are loaded once: whatever a server does, all of its file is loaded, or nothing, and no secret is told."""

from __future__ import annotations

import gzip
import io
import logging
import os
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.maintenance.history import rows, shop
from tests.maintenance.test_loading_once import staged
from tests.sources.polls.server import Answer, Asked, Served, certificate, served

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.loads import FileNotLoadable, LoadedAlready, LoadNotStaged, UrlGivesNoData
from tidegauge.errors.objects import CredentialsInAddress
from tidegauge.sources.file import fetching
from tidegauge.sources.file.fetching import fetched

SECRET = "hunter2hunter2"
LINES = b'{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n'
PACKING = zlib.compressobj(wbits=31)
CUT_OFF = PACKING.compress(LINES) + PACKING.flush(zlib.Z_SYNC_FLUSH)


@pytest.fixture
def server() -> Iterator[Served]:
    with served() as server:
        yield server


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server with a certificate that the process trusts."""
    alone, both = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(alone))
    with served(both) as server:
        yield server


def parquet(*numbers: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": numbers, "name": ["a"] * len(numbers)}), out)
    return out.getvalue()


def test_files_of_urls_are_loaded_together_and_once_and_asked_for_once(tmp_path: Path, secure: Served) -> None:
    bodies = {"/a.parquet": parquet(1, 2), "/b.parquet": parquet(3)}
    secure.answer = lambda asked: Answer(bodies[asked.path.partition("?")[0]])
    flow = shop(tmp_path)
    done = tg.load(flow, "orders", [f"{secure.url}{path}?X-Signature={SECRET}" for path in bodies])
    assert (done.files, done.rows, secure.gets) == (2, 3, 2)
    assert rows(flow) == [(1, 0), (2, 0), (3, 0)]
    [piece] = [one for one in tg.explain(flow, 0).slices if one.source == "history"]
    assert piece.detail["path"] == f"{secure.url}/a.parquet, {secure.url}/b.parquet"
    with pytest.raises(LoadedAlready, match=f"{secure.url}/a.parquet first"):
        tg.load(flow, "orders", f"{secure.url}/a.parquet?X-Signature=another")
    assert all(SECRET.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_what_a_server_packs_is_unpacked_once(tmp_path: Path, server: Served) -> None:
    packed = gzip.compress(LINES)
    flow = shop(tmp_path)
    server.says(b"".join(map(gzip.compress, LINES.splitlines(keepends=True))), content_encoding="gzip")
    tg.load(flow, "orders", f"{server.url}/day.jsonl")
    assert rows(flow) == [(1, 0), (2, 0)]
    server.says(packed, content_encoding="gzip")
    tg.load(flow, "orders", f"{server.url}/day.jsonl.gz")
    server.says(packed)
    with pytest.raises(LoadedAlready):
        tg.load(flow, "orders", f"{server.url}/day.jsonl.gz")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(LINES, length=999), "RemoteProtocolError: peer closed connection without"),
        (Answer(LINES, length=-1), "RemoteProtocolError: peer closed connection without"),
        (Answer(b"<html>log in</html>", headers={"Content-Type": "application/json"}), "a page for people, in HTML"),
        (Answer(LINES, headers={"Content-Type": "text/html"}), "a page for people, in HTML"),
        (Answer(b"no", status=404), "it answers 404 Not Found"),
        (Answer(LINES, status=206), "it answers 206 Partial Content"),
        (Answer(b"", status=503, headers={"Retry-After": "120"}), "503 .*, to be asked again after 120 seconds"),
        (Answer(b"", status=302, headers={"Location": f"/x?token={SECRET}"}), "leads on .* more than 10 times"),
        (Answer(b"", status=302, headers={"Location": f"http://127.0.0.1:9/x?t={SECRET}"}), "ConnectError"),
        (Answer(b"", status=302, headers={"Location": f"ftp://h/x?t={SECRET}"}), "UnsupportedProtocol"),
        (Answer(b"not gzip", headers={"Content-Encoding": "gzip"}), "its packed bytes are none"),
        (Answer(CUT_OFF, headers={"Content-Encoding": "gzip"}), "its packed bytes are cut off"),
        (Answer(LINES, headers={"Content-Encoding": "br"}), "packed as 'br'"),
        (Answer(b"", status=503, headers={"Retry-After": "\xb2"}), "it answers 503 Service Unavailable\n"),
        (Answer(b"", status=302, headers={"Location": "http://[::1/"}), "leads to an address that is none"),
    ],
)
def test_an_answer_that_is_no_file_is_named_and_leaves_nothing(
    tmp_path: Path, server: Served, caplog: pytest.LogCaptureFixture, answer: Answer, said: str
) -> None:
    server.answer = lambda asked: Answer(LINES) if asked.path == "/good.jsonl" else answer
    flow = shop(tmp_path)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(UrlGivesNoData, match=said) as told:
        tg.load(flow, "orders", [f"{server.url}/good.jsonl", f"{server.url}/bad.jsonl?token={SECRET}"])
    assert f"{server.url}/bad.jsonl gives no data" in str(told.value)
    assert SECRET not in str(told.value)
    assert SECRET not in "".join(record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG)
    assert staged(tmp_path) == ["lock"]
    assert rows(flow) == []


def test_the_body_of_a_redirect_is_not_taken_in(tmp_path: Path, server: Served) -> None:
    away = Answer(status=302, headers={"Location": "/there"}, length=1 << 40)
    server.answer = lambda asked: Answer(LINES) if asked.path == "/there" else away
    flow = shop(tmp_path)
    tg.load(flow, "orders", f"{server.url}/latest.jsonl")
    assert rows(flow) == [(1, 0), (2, 0)]


def test_headers_that_drip_are_given_up(tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_BEGUN", 1.0)
    server.says(LINES, drip=0.01, headers_drip=True, x_long="x" * 1500)
    with pytest.raises(UrlGivesNoData, match=r"did not come in time|ReadTimeout"):
        tg.load(shop(tmp_path), "orders", f"{server.url}/day.jsonl")


def test_a_redirect_is_followed_but_not_out_of_encryption(tmp_path: Path, secure: Served, server: Served) -> None:
    server.says(LINES)
    flow = shop(tmp_path)

    def leads(asked: Asked) -> Answer:
        there = f"{server.url}/a.jsonl" if asked.path == "/open.jsonl" else "/there"
        return Answer(LINES) if asked.path == "/there" else Answer(status=302, headers={"Location": there})

    secure.answer = leads
    with pytest.raises(UrlGivesNoData, match="leads to an address without encryption"):
        tg.load(flow, "orders", f"{secure.url}/open.jsonl")
    tg.load(flow, "orders", f"{secure.url}/latest.jsonl")
    assert rows(flow) == [(1, 0), (2, 0)]


def test_a_load_reads_the_certificates_to_trust_once_and_the_next_one_reads_them_anew(
    tmp_path: Path, secure: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure.answer = lambda asked: Answer(b'{"id": %d}\n' % int(asked.path[1]))
    read: list[str] = []
    real = ssl.create_default_context

    def reading(*given: Any, **named: Any) -> ssl.SSLContext:
        read.append(os.environ["SSL_CERT_FILE"])
        return real(*given, **named)

    monkeypatch.setattr(ssl, "create_default_context", reading)
    flow = shop(tmp_path)
    for load, numbers in enumerate(((1, 2, 3), (4, 5)), start=1):
        tg.load(flow, "orders", [f"{secure.url}/{n}.jsonl" for n in numbers])
        assert len(read) == load
    assert [n for n, _ in rows(flow)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_told_as_that(
    tmp_path: Path, secure: Served, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    if content:
        (tmp_path / "mine.pem").write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mine.pem"))
    with pytest.raises(UrlGivesNoData, match="the certificates to trust, of SSL_CERT_FILE or SSL_CERT_DIR"):
        tg.load(shop(tmp_path), "orders", f"{secure.url}/a.jsonl")
    assert staged(tmp_path) == ["lock"]


def test_what_one_server_has_left_in_the_client_does_not_go_to_the_next(tmp_path: Path, server: Served) -> None:
    cookies: list[str | None] = []

    def answer(asked: Asked) -> Answer:
        cookies.append(asked.headers.get("cookie"))
        return Answer(LINES, headers={"Set-Cookie": f"session={SECRET}; Path=/"})

    server.answer = answer
    tg.load(shop(tmp_path), "orders", [f"{server.url}/a.jsonl", f"{server.url}/b.jsonl"])
    assert cookies == [None, None]


def test_a_server_that_nobody_vouches_for_is_refused(
    tmp_path: Path, secure: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure.says(LINES)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(UrlGivesNoData, match="CERTIFICATE_VERIFY_FAILED"):
        tg.load(shop(tmp_path), "orders", f"{secure.url}/a.jsonl")


def test_a_body_without_room_is_refused_before_it_is_there_or_once_it_is_too_much(
    tmp_path: Path, server: Served
) -> None:
    server.says(LINES, length=1 << 60)
    flow = shop(tmp_path)
    with pytest.raises(LoadNotStaged, match=f"a.jsonl gives {1 << 60} bytes or more, and there is room for"):
        tg.load(flow, "orders", f"{server.url}/a.jsonl?token={SECRET}")
    assert staged(tmp_path) == ["lock"]
    server.says(bytes(3 << 20), content_encoding="identity", length=-1)
    with pytest.raises(LoadNotStaged, match="and there is room for 1048577"):
        list(fetched([f"{server.url}/b.jsonl"], tmp_path, room=lambda _folder: (1 << 20) + 1))
    assert (tmp_path / "000000.jsonl").stat().st_size == 1 << 20


def test_a_corrupt_body_is_named_by_its_url(tmp_path: Path, server: Served) -> None:
    server.says(parquet(1)[:-9])
    with pytest.raises(FileNotLoadable, match=f"{server.url}/a.parquet cannot be read") as told:
        tg.load(shop(tmp_path), "orders", f"{server.url}/a.parquet?token={SECRET}")
    assert SECRET not in str(told.value)
    assert str(tmp_path) not in str(told.value)
    assert staged(tmp_path) == ["lock"]


def test_logins_in_urls_and_urls_of_one_content_are_refused(tmp_path: Path, server: Served) -> None:
    server.says(LINES)
    flow = shop(tmp_path)
    with pytest.raises(CredentialsInAddress) as told:
        tg.load(flow, "orders", f"https://tide:{SECRET}@127.0.0.1/a.jsonl")
    assert SECRET not in str(told.value)
    with pytest.raises(InvalidArgument, match="differ after the"):
        tg.load(flow, "orders", [f"{server.url}/a.jsonl?day=1", f"{server.url}/a.jsonl?day=2"])
    with pytest.raises(InvalidArgument, match="s3, gs, abfss, https, or a path"):
        tg.load(flow, "orders", f"ftp://tide:{SECRET}@h/a.jsonl")
    assert server.gets == 2
