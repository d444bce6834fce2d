"""A proxy before an S3-compatible server that breaks requests on purpose, as the network and real stores do.

It forwards what it is asked, signature and all, as the client signs the address of the proxy, and the server does not
look at it. Each request that a fault is for is broken, as often as the fault says, and counted.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from tests.s3 import Lake

FAULTS: Final = ("503 before", "cut before", "503 after", "dropped after", "cut within", "slow", "expired")
EXPIRED: Final = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
SLOW_DOWN: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


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

    page: how many objects a listing has at most, 0 for as many as the server gives.
    """

    upstream: str
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda _method, _path: None
    latency: float = 0.0
    page: int = 0

    def __post_init__(self) -> None:
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def fault(self, method: str, path: str) -> str:
        """Return how this request is to be broken, "" if it is not."""
        with self._lock:
            self.asked.append(f"{method} {path}")
            for one in self.faults:
                if one.method == method and one.part in path and one.met < one.times:
                    one.met += 1
                    return one.kind
        return ""

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.proxy.fault(self.command, self.path)
        if kind == "503 before":
            self.answer(503, {}, SLOW_DOWN)
        elif kind == "expired":
            self.answer(400, {}, EXPIRED)
        elif kind == "cut before":
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
            status, headers, body = self.forward(data)
            if kind == "503 after":
                self.answer(503, {}, SLOW_DOWN)
            elif kind == "dropped after":
                self.close_connection = True
            else:
                self.answer(status, headers, body, cut=kind == "cut within")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - as the library has it

    def forward(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = urlsplit(self.proxy.upstream)
        connection = http.client.HTTPConnection(str(upstream.hostname), upstream.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, self.path, body=data, headers={**headers, "Connection": "close"})
        answer = connection.getresponse()
        found = dict(answer.getheaders())
        body = answer.read()
        connection.close()
        return answer.status, found, body

    def answer(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
        hop = {"connection", "transfer-encoding", "server", "date", "content-length"}
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in hop:
                self.send_header(name, value)
        length = headers.get("Content-Length", str(len(body))) if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def proxy(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server of a bucket; the environment leads through it."""
    one = Proxy(lake.server.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", one.url)
    yield one
    one.stop()
