"""A stand-in for Google Cloud Storage: its requests in XML, translated for the S3-compatible server of the tests.

Google's XML requests are those of S3 but for what is translated here: how names are quoted, how a request proves who
sends it, and what the header is called that a new object is not to overwrite one. No emulator that we found answers
these requests. The translator is a process of its own: clients written in Rust may hold Python's lock while they wait
for an answer.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pytest
from tests.postgres import free_port
from tests.s3 import CREDENTIALS, S3Server
from tests.s3_proxy import Proxy
from tests.served import lead_to, serving, stop
from tests.waiting import eventually

_SIGNED: Final = (
    f"AWS4-HMAC-SHA256 Credential={CREDENTIALS['AWS_ACCESS_KEY_ID']}/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)
"""The server looks at the name of the key alone."""


def translated(path: str, headers: Message) -> str:
    """Return the path as S3 has it, and make the headers those of S3."""
    place, mark, query = path.partition("?")
    del headers["Authorization"]
    headers["Authorization"] = _SIGNED
    if headers.get("x-goog-if-generation-match") == "0":
        headers["If-None-Match"] = "*"
    if (source := headers.get("x-goog-copy-source")) is not None:
        headers["x-amz-copy-source"] = source
    return f"{quote(unquote(place), safe='/=')}{mark}{query}"


@dataclass(frozen=True)
class GoogleLake:
    """A bucket of its own."""

    server: S3Server
    bucket: str

    def at(self, path: str = "orders") -> str:
        return f"gs://{self.bucket}/{path}"

    def drop(self) -> None:
        """Remove the bucket with all in it."""
        self.server.request("DELETE", f"/{self.bucket}")


class Translator:
    """A running translator for a server."""

    def __init__(self, server: S3Server) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        program = "from tests.gcs import translate; translate()"
        self._shell = serving(
            [sys.executable, "-c", program, server.url, str(port)], folder=Path(__file__).parents[1]
        )
        eventually(self._answers, within=60)

    def environment(self) -> dict[str, str]:
        """What a client must be told."""
        account = {"gcs_base_url": self.url, "disable_oauth": True}
        key = json.dumps({**account, "client_email": "", "private_key": "", "private_key_id": ""})
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": key, "GOOGLE_ALLOW_HTTP": "true"}

    def stop(self) -> None:
        stop(self._shell)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/", timeout=30):
                return True
        except OSError:
            return False


def translate() -> None:
    """Translate for a server, at a port, until the process is killed."""
    upstream, port = sys.argv[1:]
    Proxy(upstream, port=int(port), translated=translated).thread.join()


@pytest.fixture(scope="session")
def translator(s3_server: S3Server) -> Iterator[Translator]:
    one = Translator(s3_server)
    yield one
    one.stop()


@pytest.fixture
def google(s3_server: S3Server, translator: Translator, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bucket of its own; the environment leads to its server."""
    lead_to(translator.environment(), monkeypatch, begin="GOOGLE_")
    return GoogleLake(s3_server, s3_server.bucket())
