"""A real S3-compatible server for the tests: moto, one for each process that runs tests, made when one asks for it.

It runs in an environment of its own (`make s3`), as a child of a small shell that waits for the end of its input; so
it goes when the tests are over, and also when they are killed. Each test gets a bucket of its own.
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.postgres import free_port
from tests.served import lead_to, serving, stop
from tests.waiting import eventually

from tidegauge.objects.path import ObjectPath
from tidegauge.testing.jars import cache

CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "tide",
    "AWS_SECRET_ACCESS_KEY": "hunter2hunter2",
    "AWS_REGION": "us-east-1",
}


class S3Server:
    """A running server."""

    def __init__(self, program: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [str(program), str(Path(__file__).with_name("s3_one_at_a_time.py")), str(self.port)]
        self._shell = serving(command)
        eventually(self._answers, within=60)

    def request(self, method: str, path: str, data: bytes | None = None) -> int:
        """Ask without a signature, as the server allows it; return the status."""
        asked = urllib.request.Request(f"{self.url}{path}", method=method, data=data)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def bucket(self) -> str:
        """Make a bucket, and return its name."""
        name = f"lake-{uuid.uuid4().hex[:12]}"
        assert self.request("PUT", f"/{name}") == 200
        return name

    def drop(self, bucket: str) -> None:
        """Remove a bucket with all in it."""
        ObjectPath(f"s3://{bucket}", "").clear()
        assert self.request("DELETE", f"/{bucket}") == 204

    def environment(self) -> dict[str, str]:
        """What a client must be told."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true"}

    def stop(self) -> None:
        stop(self._shell)

    def _answers(self) -> bool:
        try:
            return self.request("GET", "/") > 0
        except OSError:
            return False


@dataclass(frozen=True)
class Lake:
    """A bucket of its own."""

    server: S3Server
    bucket: str

    def at(self, path: str = "orders") -> str:
        return f"s3://{self.bucket}/{path}"

    def objects(self, path: str = "orders") -> list[str]:
        return list(ObjectPath.of(self.at(path)).below())

    def all_keys(self) -> list[str]:
        """All keys of the bucket, as the server has them: no client makes anything of them."""
        with urllib.request.urlopen(f"{self.server.url}/{self.bucket}?list-type=2", timeout=30) as answer:
            return re.findall(r"<Key>([^<]*)</Key>", answer.read().decode())


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    program = cache(os.environ, "s3") / "bin" / "python"
    if not program.exists():
        pytest.skip("the tests of object stores need moto: make s3")
    server = S3Server(program)
    yield server
    server.stop()


@pytest.fixture
def lake(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bucket of its own; the environment leads to its server."""
    lead_to(s3_server.environment(), monkeypatch, begin="AWS_")
    return Lake(s3_server, s3_server.bucket())
