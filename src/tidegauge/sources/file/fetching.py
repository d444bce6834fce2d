"""Files behind URLs, fetched into a folder before anything of them is read.

Each is asked for once. So the rows are those of one answer, also if the server has other data a moment later.

Invariant: the file has the whole body that the server announced, and no page for people: an answer that was cut
off, a login, an error page and a circle of redirects raise `UrlGivesNoData`, one that the disk has no room for
`LoadNotStaged`. No text that leaves here has the query of a URL, which may hold a signature.

>>> is_url("https://data.example.org/a.csv"), is_url("s3://lake/a.csv"), is_url("/lake/a.csv")
(True, False, False)
>>> shown_url("https://data.example.org/a.csv?token=hunter2")
'https://data.example.org/a.csv'
>>> without_queries("no answer from https://h/a?token=hunter2, nor from http://h/b")
'no answer from https://h/a, nor from http://h/b'
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from tidegauge.errors.base import brief
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.loads import LoadNotStaged, UrlGivesNoData
from tidegauge.errors.objects import CredentialsInAddress
from tidegauge.errors.polls import HttpMissing
from tidegauge.sources.polls.answering import AnswerDeadline, answered, unpacked
from tidegauge.sources.polls.asking import after_seconds, is_page, shown, unqueried

__all__ = ["fetched", "is_url", "room_at", "shown_url", "without_queries"]

_URL: Final = re.compile(r"(?i)https?://")
_URLS: Final = re.compile(r"(?i)https?://[^\s'\"<>]*[^\s'\"<>,.;:)]")
_SECONDS: Final = 30
"""How long the server may take to begin, or to go on."""
_BEGUN: Final = 120
"""Seconds for all that comes before the body, redirects included."""
_CHUNK: Final = 1 << 20
_OK: Final = 200
_KEPT: Final = 4 << 30
"""Bytes of a large disk that are left free, for the flows that stage there; of a small one a twentieth."""


def is_url(text: str) -> bool:
    """Whether a text is of the form of a URL."""
    return _URL.match(text) is not None


def shown_url(url: str) -> str:
    """Return a URL without its query. Raises `CredentialsInAddress`, `InvalidArgument`."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise CredentialsInAddress(scheme=parts.scheme)
    if not parts.hostname:
        raise InvalidArgument(parameter="address", value=shown(url), expected="a URL with a host")
    return shown(url)


def without_queries(text: str) -> str:
    """Return a text with the URLs in it shown alone."""
    return _URLS.sub(lambda found: shown(found[0]), text)


def room_at(folder: Path) -> int:
    """Return how many bytes may be fetched into a folder."""
    disk = shutil.disk_usage(folder)
    return disk.free - min(_KEPT, disk.total // 20)


def fetched(
    urls: Sequence[str], folder: Path, *, room: Callable[[Path], int] = room_at
) -> Iterator[tuple[str, Path, str]]:
    """Fetch what URLs give into files of a folder; yield each URL, its file and a digest of the content.

    A file keeps the endings of the URL's name: they tell the format and the compression. Raises `UrlGivesNoData`,
    `LoadNotStaged`, `HttpMissing`, `OSError`.
    """
    try:
        import httpx2
    except ImportError as error:
        raise HttpMissing(detail=str(error)) from None
    logging.getLogger(httpx2.__name__).addFilter(unqueried)
    try:
        trusted = httpx2.create_ssl_context()  # once for all: to read the certificates takes 20 ms
    except OSError as error:
        detail = f"the certificates to trust, of SSL_CERT_FILE or SSL_CERT_DIR, cannot be read: {brief(error)}"
        raise _no_data(urls[0], detail) from error
    for number, url in enumerate(urls):
        path = folder / f"{number:06}{''.join(PurePosixPath(urlsplit(url).path).suffixes[-2:])}"
        # A client of its own for each: no cookie of one server, or of one file, goes along to the next.
        with httpx2.Client(verify=trusted, timeout=_SECONDS) as client:
            yield url, path, _fetched(httpx2, client, url, path, room)


def _fetched(httpx2: Any, client: Any, url: str, path: Path, room: Callable[[Path], int]) -> str:
    """Fetch what one URL gives into a file, and return the digest of its content."""
    try:
        deadline = AnswerDeadline(time.monotonic)
        asking = {"headers": {"Accept-Encoding": "identity"}, "extensions": {"trace": deadline}}
        request = client.build_request("GET", url, **asking)
        deadline.end = time.monotonic() + _BEGUN
        with closing(answered(client, request, stays=partial(_stays, url))) as answer:
            deadline.end = inf
            _check(url, answer)
            return _kept(url, answer, path, room)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        detail = " ".join(without_queries(str(error)).split())
        raise _no_data(url, f"{type(error).__name__}: {detail[:200]}") from None
    except ValueError as error:
        raise _no_data(url, str(error)) from None


def _kept(url: str, answer: Any, path: Path, room: Callable[[Path], int]) -> str:
    """Write the body of an answer, and return its digest."""
    digest, size, free = blake2b(digest_size=16), 0, room(path.parent)
    announced = answer.headers.get("Content-Length", "")
    _check_room(url, path, int(announced) if announced.isdigit() else 0, free)
    # A server may say of a file with the ending `.gz` that this is its encoding.
    packing = "" if path.suffix == ".gz" else answer.headers.get("Content-Encoding", "")
    with path.open("wb") as out:
        for data in unpacked(answer.iter_raw(_CHUNK), packing):
            if data and not size and is_page(answer.headers.get("Content-Type", ""), data):
                raise _no_data(url, "it answers with a page for people, in HTML")
            size += len(data)
            _check_room(url, path, size, free)
            digest.update(data)
            out.write(data)
    return digest.hexdigest()


def _check_room(url: str, path: Path, size: int, free: int) -> None:
    if size > free:
        detail = f"{shown_url(url)} gives {size} bytes or more, and there is room for {max(0, free)}"
        raise LoadNotStaged(folder=str(path.parent), detail=detail)


def _stays(url: str, here: str, there: str) -> None:
    """Raise `UrlGivesNoData` for a redirect out of encryption."""
    if here.startswith("https:") and not there.startswith("https:"):
        raise _no_data(url, "it leads to an address without encryption")


def _check(url: str, answer: Any) -> None:
    """Raise `UrlGivesNoData` for an answer without a file."""
    if answer.status_code != _OK:
        detail = f"it answers {answer.status_code} {answer.reason_phrase}".rstrip()
        after = after_seconds(answer.headers.get("Retry-After", ""), now=datetime.now(UTC))
        raise _no_data(url, f"{detail}, to be asked again after {after:.0f} seconds" if after else detail)


def _no_data(url: str, detail: str) -> UrlGivesNoData:
    return UrlGivesNoData(address=shown_url(url), detail=detail)
