"""Readers of Iceberg in an environment of their own (`scripts/environments.py`): statements in, rows out, as JSON.

Iceberg's JAR is made for an older Spark than ours, and DuckDB's extension for an older DuckDB. The JAR also has what
catalogs over REST are made of (`rest`).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class Elsewhere:
    """A reader that is told SQL."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sql(self, text: str) -> list[list[Any]]:
        """Return the rows of a statement; raise `RuntimeError` with what is said against it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith("answer "):
            if not line:
                raise RuntimeError("the reader has ended")
        answer = json.loads(line.removeprefix("answer "))
        if isinstance(answer, str):
            raise RuntimeError(answer)  # noqa: TRY004 - it is what was asked that is wrong
        rows: list[list[Any]] = answer
        return rows


@contextmanager
def running(kind: str, *arguments: str) -> Iterator[Elsewhere]:
    """Start a reader, and stop it in the end."""
    from tests.kafka import missing

    from tidegauge.testing.jars import cache

    folder = cache(os.environ, "iceberg")
    if not (folder / ".made").exists():
        missing(FileNotFoundError(f"{folder}: scripts/environments.py makes it"))
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    environ.pop("PYTHONPATH", None)
    command = [str(folder / "bin" / "python"), str(Path(__file__)), kind, *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL, **pipes) as process:
        try:
            yield Elsewhere(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


@contextmanager
def spark(warehouse: str | Path) -> Iterator[Elsewhere]:
    """A Spark with a catalog `lake`, which is the one in the warehouse."""
    from tests.kafka import missing

    from tidegauge.errors.engine import JavaMissing
    from tidegauge.errors.testing import JarsNotFetched
    from tidegauge.testing.jars import ICEBERG, class_path

    try:
        jars = class_path(ICEBERG)
    except (JarsNotFetched, JavaMissing) as error:
        missing(error)
    with running("spark", jars.replace(os.pathsep, ","), str(warehouse)) as found:
        yield found


class RestServer:
    """A catalog over HTTP."""

    def __init__(self, process: Elsewhere) -> None:
        self._process = process
        [[port]] = process.sql("port")
        self.uri = f"http://127.0.0.1:{port}"

    def fault(self, kind: str, times: int = 1) -> None:
        """Answer the next commits otherwise.

        "before": 503, and nothing done. "after": 503, and it is done. "cut": it is done, and the connection is cut.
        "hold": it is done, and no answer comes.
        """
        self._process.sql(f"fault {kind} {times}")

    def wait_until_held(self) -> None:
        """Wait until a commit is done whose answer does not come."""
        assert self._process.sql("held") == [[True]]


@contextmanager
def rest(warehouse: str | Path) -> Iterator[RestServer]:
    """A catalog over REST: the handlers of Iceberg's own, on a catalog of its in a database of SQLite."""
    from tidegauge.testing.jars import ICEBERG, class_path

    with running("rest", class_path(ICEBERG), str(warehouse)) as found:
        yield RestServer(found)


@contextmanager
def duckdb() -> Iterator[Elsewhere]:
    """A DuckDB with its extensions for Iceberg and for Delta."""
    with running("duckdb") as found:
        yield found


def _serve(answer: Any) -> None:
    for line in sys.stdin:
        try:
            told: Any = answer(json.loads(line))
        except Exception as error:
            told = "\n".join(str(error).splitlines()[:5])
        print("answer " + json.dumps(told, default=str), flush=True)


def _spark(jars: str, warehouse: str) -> None:
    from pyspark.sql import SparkSession

    catalog = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        ".uri": f"jdbc:sqlite:{warehouse}/catalog.db",
        ".warehouse": f"file://{warehouse}",
        ".jdbc.schema-version": "V1",
        ".cache-enabled": "false",  # others commit in between
    }
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    builder = builder.config(
        "spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    for name, value in catalog.items():
        builder = builder.config(f"spark.sql.catalog.default{name}", value)
    session = (
        builder.config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    _serve(lambda text: [list(row) for row in session.sql(text).collect()])
    session.stop()


def _duckdb() -> None:
    import duckdb

    connection = duckdb.connect()
    packages = Path(duckdb.__file__).parents[1]
    for name in ("avro", "iceberg", "delta"):
        [extension] = packages.glob(f"duckdb_extension_{name}/extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    connection.execute("set timezone='UTC'")
    _serve(lambda text: [list(row) for row in connection.execute(text).fetchall()])


def _rest(jars: str, warehouse: str) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    handlers = _Handlers(jars, warehouse)
    faults: list[str] = []
    held = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            parts = urlsplit(self.path).path.removeprefix("/v1/").split("/")
            commits = self.command == "POST" and len(parts) == 4 and parts[2] == "tables"
            fault = faults.pop(0) if commits and faults else ""
            status, text = 503, '{"error": {"message": "busy", "type": "ServiceUnavailableException", "code": 503}}'
            if fault != "before":
                done = handlers.answer(self.command, [unquote(part) for part in parts], body)
                status, text = done if fault != "after" else (status, text)
            if fault == "hold":
                held.set()
                threading.Event().wait()
            if fault == "cut":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            payload = b"" if status == 204 or self.command == "HEAD" else text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - the server's names

        def log_message(self, *_said: Any, **_named: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def told(text: str) -> list[list[Any]]:
        match text.split():
            case ["fault", kind, times]:
                faults.extend([kind] * int(times))
                return []
            case ["held"]:
                return [[held.wait(60)]]
            case _:
                return [[server.server_address[1]]]

    _serve(told)


class _Handlers:
    """Iceberg's own answers to what a catalog is asked over REST (`CatalogHandlers`): all but the HTTP itself."""

    def __init__(self, jars: str, warehouse: str) -> None:
        from pyspark.conf import SparkConf
        from pyspark.java_gateway import launch_gateway

        launch: Any = launch_gateway
        self._jvm = launch(SparkConf(loadDefaults=False).set("spark.driver.extraClassPath", jars)).jvm
        java, iceberg = self._jvm.java.lang, self._jvm.org.apache.iceberg
        jackson = "org.apache.iceberg.shaded.com.fasterxml.jackson"

        def constant(kind: str, name: str) -> Any:
            return java.Enum.valueOf(java.Class.forName(kind), name)

        self._mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        field = constant(f"{jackson}.annotation.PropertyAccessor", "FIELD")
        self._mapper.setVisibility(field, constant(f"{jackson}.annotation.JsonAutoDetect$Visibility", "ANY"))
        kebab = f"{jackson}.databind.PropertyNamingStrategies$KebabCaseStrategy"
        self._mapper.setPropertyNamingStrategy(java.Class.forName(kebab).newInstance())
        iceberg.rest.RESTSerializers.registerAll(self._mapper)
        self._all = constant("org.apache.iceberg.rest.RESTCatalogProperties$SnapshotMode", "ALL")
        self._handlers = iceberg.rest.CatalogHandlers
        options = self._jvm.java.util.HashMap()
        options.put("uri", f"jdbc:sqlite:{warehouse}/rest.db")
        options.put("warehouse", f"file://{warehouse}")
        options.put("jdbc.schema-version", "V1")
        configuration = self._jvm.org.apache.hadoop.conf.Configuration()
        kind = "org.apache.iceberg.jdbc.JdbcCatalog"
        self._catalog = iceberg.CatalogUtil.loadCatalog(kind, "rest", options, configuration)

    def answer(self, method: str, parts: Sequence[str], body: str) -> tuple[int, str]:
        """Return the status and the text of an answer."""
        try:
            found = self._done(method, parts, body)
        except Exception as raised:
            error: Any = raised
            if type(raised).__name__ != "Py4JJavaError":
                raise
            kind, message = error.java_exception.getClass().getSimpleName(), error.java_exception.getMessage()
            status = _STATUS.get(kind, 500)
            return status, json.dumps({"error": {"message": str(message), "type": kind, "code": status}})
        return (204, "") if found is None else (200, found if isinstance(found, str) else self._text(found))

    def _done(self, method: str, parts: Sequence[str], body: str) -> Any:
        handlers, catalog, about = self._handlers, self._catalog, self._jvm.org.apache.iceberg.catalog
        if parts == ["config"]:
            return '{"defaults": {}, "overrides": {}}'
        if parts == ["namespaces"]:
            return handlers.createNamespace(catalog, self._read(body, "CreateNamespaceRequest"))
        levels = parts[1].split("\x1f")
        strings = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("java.lang.String"), len(levels)
        )
        for at, level in enumerate(levels):
            strings[at] = level
        namespace = about.Namespace.of(strings)
        match method, parts[2:]:
            case "GET", []:
                return handlers.loadNamespace(catalog, namespace)
            case "HEAD", []:
                return handlers.namespaceExists(catalog, namespace)
            case "POST", ["tables"]:
                return handlers.createTable(catalog, namespace, self._read(body, "CreateTableRequest"))
            case "GET", ["tables", name]:
                return handlers.loadTable(catalog, about.TableIdentifier.of(namespace, name), self._all)
            case "HEAD", ["tables", name]:
                return handlers.tableExists(catalog, about.TableIdentifier.of(namespace, name))
            case "POST", ["tables", name]:
                asked = self._read(body, "UpdateTableRequest")
                return handlers.updateTable(catalog, about.TableIdentifier.of(namespace, name), asked)
            case "DELETE", ["tables", name]:
                return handlers.dropTable(catalog, about.TableIdentifier.of(namespace, name))
            case _:
                return None

    def _read(self, body: str, kind: str) -> Any:
        named = self._jvm.java.lang.Class.forName(f"org.apache.iceberg.rest.requests.{kind}")
        return self._mapper.readValue(body, named)

    def _text(self, found: Any) -> str:
        return str(self._mapper.writeValueAsString(found))


_STATUS = {
    "NoSuchTableException": 404,
    "NoSuchNamespaceException": 404,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
    "ValidationException": 400,
    "IllegalArgumentException": 400,
}


def main(kind: str, arguments: Sequence[str]) -> None:
    """Be a reader."""
    if kind == "spark":
        _spark(*arguments)
    elif kind == "rest":
        _rest(*arguments)
    else:
        _duckdb()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
