"""The proxy that breaks requests: it takes what clients of object stores send, and answers what it does not take."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from pyarrow.fs import S3FileSystem
from tests.s3 import CREDENTIALS, Lake
from tests.s3_proxy import Fault, Proxy


@pytest.fixture
def arrow(proxy: Proxy) -> S3FileSystem:
    """The client that pyiceberg writes metadata with: every file is an upload in parts, each in chunks."""
    secret = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    return S3FileSystem(access_key="tide", secret_key=secret, region="us-east-1", endpoint_override=proxy.url)


@pytest.mark.parametrize("size", [0, 10, 11 << 20])
def test_what_arrow_writes_through_it_is_what_is_read(
    lake: Lake, proxy: Proxy, arrow: S3FileSystem, size: int
) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    path = f"{lake.bucket}/orders/a.avro"
    with arrow.open_output_stream(path) as out:
        out.write(data)
    assert proxy.asked[0] == f"POST /{path}?uploads"
    assert len([one for one in proxy.asked if one.startswith(f"PUT /{path}?partNumber=")]) == 1 + size // (10 << 20)
    with arrow.open_input_stream(path) as found:
        assert found.read() == data


def test_parts_of_an_upload_are_broken_as_any_request(lake: Lake, proxy: Proxy, arrow: S3FileSystem) -> None:
    broken = Fault("dropped after", "PUT", "a.avro?partNumber=")
    proxy.faults.append(broken)
    path = f"{lake.bucket}/orders/a.avro"
    with arrow.open_output_stream(path) as out:
        out.write(b"rows")
    assert broken.met == 1
    with arrow.open_input_stream(path) as found:
        assert found.read() == b"rows"


REFUSED = [
    (b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\n", 400),
    (b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    (b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nten\r\n", 400),
    (b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
    (b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n0\r\n\r\n", 400),
    (b"PATCH /b/k HTTP/1.1\r\nHost: h\r\n\r\n", 501),
]


@pytest.mark.parametrize(("asked", "status"), REFUSED)
def test_what_it_does_not_take_is_refused_at_once(proxy: Proxy, asked: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(asked)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))  # and then it closes
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert proxy.asked == []


def test_a_request_whose_rest_does_not_come_is_given_up(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    handler: Any = proxy._server.RequestHandlerClass

    def put(request: Any) -> None:
        request.connection.settimeout(0.1)  # for the rest alone: its beginning has come
        request.handle_any()

    monkeypatch.setattr(handler, "do_PUT", put)
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
