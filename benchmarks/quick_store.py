"""An object store of the benchmarks in a process of its own, which answers as fast as Python can.

The S3-compatible server of the tests goes through all its objects for each page of a listing, so that beside it no
time but its own can be measured. This one keeps the keys in their order, and knows what a listing source asks for:
pages, objects and ranges of them, conditional puts, and deletions. It keeps its objects in memory and looks at no
signature.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from bisect import bisect_right, insort
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["BUCKET", "asked", "quick_store"]

BUCKET: Final = "lake"
_TIME: Final = "2026-01-01T00:00:00.000Z"
_HTTP_TIME: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
_BODY: Final = b'{"n": 1}\n'


class _Store(BaseHTTPRequestHandler):
    """Answers requests."""

    protocol_version = "HTTP/1.1"
    keys: Final = list[str]()
    found: Final = dict[str, tuple[bytes, str]]()
    lock: Final = Lock()
    asked: Final = dict[str, int]()

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        key = unquote(address.path).partition(f"/{BUCKET}")[2].strip("/")
        if self.path == "/asked":
            self._answer(200, json.dumps(self.asked).encode())
            self.asked.clear()
        elif key:
            self._object(key)
        else:
            self._count()
            self._answer(200, self._page({name: said[0] for name, said in parse_qs(address.query).items()}))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self._count()
        body, key = self._body(), unquote(urlsplit(self.path).path).partition(f"/{BUCKET}/")[2]
        with self.lock:
            there = self.found.get(key)
            if there is not None and self.headers["If-None-Match"] == "*":
                return self._answer(412)
            tag = _put(self.keys, self.found, key, body)
        return self._answer(200, ETag=tag)

    def do_POST(self) -> None:
        keys = re.findall(r"<Key>([^<]*)</Key>", self._body().decode())
        with self.lock:
            for key in keys:
                if self.found.pop(key, None) is not None:
                    self.keys.remove(key)
        said = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{said}</DeleteResult>".encode())

    def _object(self, key: str) -> None:
        self._count()
        if key not in self.found:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        body, tag = self.found[key]
        headers = {"ETag": tag, "Last-Modified": _HTTP_TIME}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or ""):
            first, last = int(wanted[1]), min(int(wanted[2]), len(body) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            return self._answer(206, body[first : last + 1], **headers)
        return self._answer(200, body, **headers)

    def _page(self, asked: dict[str, str]) -> bytes:
        prefix, most = asked.get("prefix", ""), int(asked.get("max-keys", "1000"))
        after = asked.get("continuation-token") or asked.get("start-after") or ""
        with self.lock:
            at = max(bisect_right(self.keys, after), bisect_right(self.keys, prefix) - (prefix in self.found))
            page, folders, last = list[str](), list[str](), ""
            while (
                at < len(self.keys) and (key := self.keys[at]).startswith(prefix) and len(page) + len(folders) < most
            ):
                last, at = key, at + 1
                if (cut := key.find("/", len(prefix)) if asked.get("delimiter") else -1) >= 0:
                    folders.append(key[: cut + 1])
                    at = bisect_right(self.keys, last := f"{key[: cut + 1]}\U0010ffff")
                else:
                    page.append(key)
            more = at < len(self.keys) and self.keys[at].startswith(prefix)
            entries = [
                f"<Contents><Key>{key}</Key><LastModified>{_TIME}</LastModified><ETag>{self.found[key][1]}</ETag>"
                f"<Size>{len(self.found[key][0])}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                for key in page
            ]
        entries += [f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders]
        said = f"<NextContinuationToken>{last}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><IsTruncated>{str(more).lower()}</IsTruncated>{said}{''.join(entries)}</ListBucketResult>"
        ).encode()

    def _count(self) -> None:
        self.asked[self.command] = self.asked.get(self.command, 0) + 1

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Be quiet."""


def _put(keys: list[str], found: dict[str, tuple[bytes, str]], key: str, body: bytes) -> str:
    if key not in found:
        insort(keys, key)
    found[key] = body, f'"{md5(body, usedforsecurity=False).hexdigest()}"'
    return found[key][1]


def serve(count: int, folder: int) -> None:
    """Have objects, and answer until the input ends: the server's process."""
    for n in range(count):
        _put(_Store.keys, _Store.found, f"in/{n // folder:04}/{n % folder:04}.jsonl", _BODY)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Store) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()


@contextmanager
def quick_store(count: int, folder: int) -> Iterator[str]:
    """Give the URL of a server whose bucket has that many small objects, so many in each folder of `in`."""
    program = f"from benchmarks.quick_store import serve; serve({count}, {folder})"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.communicate()  # which ends its input


def asked(url: str) -> dict[str, int]:
    """Return how many requests of each kind came since this was asked last."""
    with urllib.request.urlopen(f"{url}/asked", timeout=60) as answer:
        return dict(json.load(answer))
