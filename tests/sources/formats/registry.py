"""A schema registry for tests: a small HTTP server that speaks the part of the REST API that clients use.

`/schemas/ids/{id}`, `/subjects/{subject}/versions` and `/subjects/{subject}/versions/{version}`, as documented for
the Confluent Schema Registry. It keeps what it was asked, and can be told to answer anything else: pages of other
services, redirects, silence.

It stands in for a real registry, because none comes as a package that Python and Java alone can run: Karapace is not
on PyPI (it is built with Go, and names patched sources by their address), Apicurio's is put together by its own
build, and Confluent's is in its own repository only. What is real is the other side: schemas are registered and
messages written by Confluent's own client and serializers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Served", "serving"]

Answer = Callable[[BaseHTTPRequestHandler], None]


class Served:
    """The server's state. `answer`, when it is set, answers instead."""

    def __init__(self) -> None:
        self.url = ""
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.answer: Answer | None = None

    def register(
        self, schema: Any, *, id: int | None = None, subject: str = "orders-value", kind: str = "AVRO", **more: Any
    ) -> int:
        """Keep a schema, and return its id."""
        number = id if id is not None else len(self.schemas) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[number] = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind}), **more}
        self.subjects.setdefault(subject, []).append(number)
        return number

    def found(self, path: str) -> tuple[int, Any]:
        """Return the status and the content of an answer."""
        match path.split("?")[0].strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                found = self.subjects[subject][int(version) - 1]
                return 200, {"subject": subject, "id": found, "version": int(version), **self.schemas[found]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a client that has gone."""


@contextmanager
def serving() -> Iterator[Served]:
    """Serve on a free port of this machine."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            served.logins.append(self.headers.get("Authorization"))
            if served.answer is not None:
                served.answer(self)
            else:
                reply(self, *served.found(self.path))

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            subject = self.path.split("?")[0].split("/")[2]
            kind = given.get("schemaType", "AVRO")
            reply(self, 200, {"id": served.register(given["schema"], subject=subject, kind=kind)})

        def log_message(self, *_: Any) -> None: ...

    with _Server(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


def reply(handler: BaseHTTPRequestHandler, status: int, content: Any, **headers: str) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
