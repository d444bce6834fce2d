"""An HTTP server of the tests: it answers as it is told, request by request, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["Answer", "Served", "certificate", "served"]


@dataclass
class Answer:
    """What a request gets. length: of the body as the header says it, None for its own; -1 for chunks that break off.

    drip: seconds between two bytes. headers_drip: those of the headers, too.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    drip: float = 0.0
    headers_drip: bool = False


@dataclass
class Asked:
    """A request."""

    path: str
    headers: dict[str, str]


@dataclass
class Served:
    """A server. answer: makes the answer to each request."""

    url: str = ""
    answer: Callable[[Asked], Answer] = lambda _asked: Answer(status=404)
    asked: list[Asked] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def gets(self) -> int:
        return len(self.asked)

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    def says(self, body: bytes | str = b"", status: int = 200, **more: Any) -> None:
        """Answer every request so; a name such as `last_modified` is a header."""
        given = {name: more.pop(name) for name in ("length", "drip", "headers_drip") if name in more}
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        whole = body.encode() if isinstance(body, str) else body
        self.answer = lambda _asked: Answer(whole, status, headers, **given)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate that nobody vouches for; return its file, and one with it and its key."""
    folder.mkdir(exist_ok=True)
    alone, both = folder / "ca.pem", folder / "both.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", both, "-out", alone], check=True, capture_output=True)
    with both.open("a") as file:
        file.write(alone.read_text())
    return alone, both


@contextlib.contextmanager
def served(certificate: Path | None = None) -> Iterator[Served]:
    """Serve on a free port until the end of the block. certificate: a file with it and its key, for https."""
    this = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        dripping = 0.0
        _headers_buffer: list[bytes]

        def drip(self, data: bytes, seconds: float) -> None:
            for n in range(len(data)):
                self.wfile.write(data[n : n + 1])
                if this.stop.wait(seconds):
                    break

        def flush_headers(self) -> None:
            if self.dripping:
                self.drip(b"".join(self._headers_buffer), self.dripping)
                self._headers_buffer.clear()
            super().flush_headers()

        def do_GET(self) -> None:
            asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()})
            this.asked.append(asked)
            said = this.answer(asked)
            self.dripping = said.drip if said.headers_drip else 0.0
            with contextlib.suppress(OSError):
                self.give(said)

        def give(self, said: Answer) -> None:
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            if said.length == -1:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n" % (len(said.body) + 7) + said.body)
                self.close_connection = True
                return
            if said.status != 304:
                self.send_header("Content-Length", str(len(said.body) if said.length is None else said.length))
            self.end_headers()
            if said.drip:
                self.drip(said.body, said.drip)
            elif said.status != 304:
                self.wfile.write(said.body)
            if said.length is not None:
                self.close_connection = True

        def log_message(self, *_args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET

    with Server(("127.0.0.1", 0), Handler) as server:
        this.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
        if certificate:
            secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            secured.load_cert_chain(certificate)
            server.socket = secured.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
        thread.start()
        try:
            yield this
        finally:
            this.stop.set()
            server.shutdown()
            thread.join()
