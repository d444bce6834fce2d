"""A proxy before an S3-compatible server that breaks requests on purpose, as the network and real stores do.

It forwards what it is asked, signature and all, as the client signs the address of the proxy, and the server does not
look at it. Each request that a fault is for is broken, as often as the fault says, and counted.

Invariant: every request is answered, or its connection is closed. A body comes with its length, or in chunks, as
pyarrow sends what it writes; it is passed on with its length. What comes otherwise is refused at once.
"""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from tests.s3 import Lake

FAULTS: Final = (
    "503 before",
    "cut before",
    "reset before",
    "503 after",
    "dropped after",
    "cut within",
    "slow",
    "expired",
)
ONCE, LONG = 1, 12
"""How often a fault strikes: so that the client sits it out by itself, or until it has given up."""
EXPIRED: Final = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
SLOW_DOWN: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
XML: Final = {"Content-Type": "application/xml"}
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,8})(;[^\r\n]*)?\r\n")
_LINE: Final = 4096
PATIENCE: Final = 20.0
"""Seconds for which a client may say nothing in the middle of a request, and the server of an answer."""


@dataclass
class Fault:
    """What is broken: requests of a method whose path has `part` in it, so many times. met: how often it was."""

    kind: str
    method: str
    part: str
    times: int = 1
    met: int = 0


@dataclass
class Proxy:
    """A running proxy. before: is called with each request before it is passed on. latency: seconds for each.

    page: how many objects a listing has at most, 0 for as many as the server gives. port: 0 for any that is free.
    translated: makes what the server understands of what a client asks, a path and headers.
    """

    upstream: str
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda _method, _path: None
    latency: float = 0.0
    page: int = 0
    port: int = 0
    translated: Callable[[str, Message], str] = lambda path, _headers: path

    def __post_init__(self) -> None:
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def fault(self, method: str, path: str) -> str:
        """Return how this request is to be broken, "" if it is not."""
        with self._lock:
            self.asked.append(f"{method} {path}")
            for one in self.faults:
                if one.method == method and one.part in path and one.met < one.times:
                    one.met += 1
                    return one.kind
        return ""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    disable_nagle_algorithm = True  # a client may wait 40 ms between headers and body

    def handle_any(self) -> None:
        self.path = self.proxy.translated(self.path, self.headers)
        try:
            data = body(self.rfile, self.headers)
        except Unclear as error:
            self.refuse(error.status, str(error))
            return
        except TimeoutError:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, "the rest of the request does not come")
            return
        kind = self.proxy.fault(self.command, self.path)
        if kind == "503 before":
            self.answer(503, XML, SLOW_DOWN)
        elif kind == "expired":
            self.answer(400, XML, EXPIRED)
        elif kind == "cut before":
            self.close_connection = True
        elif kind == "reset before":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
        else:
            if kind == "slow":
                time.sleep(1.0)
            if kind == "ignores conditions":
                del self.headers["If-None-Match"]
                del self.headers["If-Match"]
            time.sleep(self.proxy.latency)
            self.proxy.before(self.command, self.path)
            if self.proxy.page and "list-type" in self.path:
                self.path += f"&max-keys={self.proxy.page}"
            try:
                status, headers, found = self.forward(data)
            except (OSError, http.client.HTTPException) as error:
                self.refuse(HTTPStatus.BAD_GATEWAY, f"{type(error).__name__} from the server")
                return
            if kind == "503 after":
                self.answer(503, XML, SLOW_DOWN)
            elif kind == "dropped after":
                self.close_connection = True
            else:
                self.answer(status, headers, found, cut=kind == "cut within")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - as the library has it

    def forward(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = urlsplit(self.proxy.upstream)
        connection = http.client.HTTPConnection(str(upstream.hostname), upstream.port, timeout=PATIENCE)
        hop = {"connection", "transfer-encoding", "expect", "content-length"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in hop}
        connection.request(self.command, self.path, body=data, headers={**headers, "Connection": "close"})
        answer = connection.getresponse()
        found = dict(answer.getheaders())
        body = answer.read()
        connection.close()
        return answer.status, found, body

    def refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer what cannot be passed on, and be done with its connection: who knows what is left in it."""
        self.close_connection = True
        self.answer(status, {}, f"the proxy: {why}".encode())

    def answer(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
        hop = {"connection", "transfer-encoding", "server", "date", "content-length"}
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in hop:
                self.send_header(name, value)
        length = headers.get("Content-Length", str(len(body))) if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        return


class Unclear(Exception):
    """A request that cannot be read to its end. status: what it is answered with."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def body(file: BufferedIOBase, headers: Message) -> bytes:
    """Return what a request holds: nothing, where it says neither a length nor that it comes in chunks.

    Raises `Unclear`, and TimeoutError of a client that says nothing any more.
    """
    coding, length = headers.get("Transfer-Encoding"), headers.get("Content-Length")
    if coding is not None:
        if coding.strip().lower() != "chunked":
            raise Unclear(HTTPStatus.NOT_IMPLEMENTED, f"Transfer-Encoding: {coding}")
        return b"".join(chunks(file))
    if not re.fullmatch(r"\d{1,12}", length or "0", re.ASCII):
        raise Unclear(HTTPStatus.BAD_REQUEST, f"Content-Length: {length}")
    return whole(file, int(length or 0))


def chunks(file: BufferedIOBase) -> Iterator[bytes]:
    """Yield the chunks of a body, up to the end of what trails it. What is in them is passed on as it is."""
    while True:
        if (said := _CHUNK.fullmatch(line := file.readline(_LINE))) is None:
            raise Unclear(HTTPStatus.BAD_REQUEST, f"{line[:20]!r} where the size of a chunk should be")
        if not (size := int(said[1], 16)):
            break
        yield whole(file, size)
        if file.readline(_LINE) != b"\r\n":
            raise Unclear(HTTPStatus.BAD_REQUEST, "a chunk that is longer than its size")
    while (line := file.readline(_LINE)) != b"\r\n":
        if not line.endswith(b"\r\n"):
            raise Unclear(HTTPStatus.BAD_REQUEST, "a body in chunks without an end")


def whole(file: BufferedIOBase, size: int) -> bytes:
    if len(data := file.read(size)) != size:
        raise Unclear(HTTPStatus.BAD_REQUEST, f"{len(data)} bytes of {size}")
    return data


def fault_cells(steps: Iterable[str], quick: Collection[tuple[str, str, int]] = ()) -> Iterator[Any]:
    """Yield each fault at each step, once and for long, as parameters of a test: all but the quick ones `long`."""
    for fault in FAULTS:
        for step in steps:
            for times in (ONCE, LONG):
                if fault != "slow" or times == ONCE:
                    marks = [] if (fault, step, times) in quick else [pytest.mark.long]
                    yield pytest.param(fault, step, times, marks=marks)


@pytest.fixture
def proxy(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server of a bucket; the environment leads through it."""
    one = Proxy(lake.server.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", one.url)
    yield one
    one.close()
