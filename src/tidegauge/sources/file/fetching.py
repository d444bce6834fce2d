"""A file behind a URL, fetched into a folder before anything of it is read.

It is asked for once. So the rows are those of one answer, also if the server has other data a moment later.

Invariant: the file has the whole body that the server announced, and no page for people: an answer that was cut
off, a login, an error page and a circle of redirects raise `UrlGivesNoData`. No text that leaves here has the query
of a URL, which may hold a signature.

>>> is_url("https://data.example.org/a.csv"), is_url("s3://lake/a.csv"), is_url("/lake/a.csv")
(True, False, False)
>>> shown_url("https://data.example.org/a.csv?token=hunter2")
'https://data.example.org/a.csv'
>>> is_page("text/html; charset=utf-8", b""), is_page("", b"\\n <!DOCTYPE html>"), is_page("text/csv", b"id,name")
(True, True, False)
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.loads import HttpPackageMissing, UrlGivesNoData
from tidegauge.errors.objects import CredentialsInAddress

__all__ = ["fetch", "is_page", "is_url", "shown_url"]

_URL: Final = re.compile(r"(?i)https?://")
_PAGE: Final = re.compile(rb"(?i)\s*<(!doctype\s+html|html)\b")
_PAGES: Final = ("text/html", "application/xhtml+xml")
_SECONDS: Final = 30
"""How long the server may take to begin, or to go on."""
_CHUNK: Final = 1 << 20
_OK: Final = 200
_REDIRECTS: Final = 10


def is_url(text: str) -> bool:
    """Whether a text is of the form of a URL."""
    return _URL.match(text) is not None


def shown_url(url: str) -> str:
    """Return a URL without its query. Raises `CredentialsInAddress`, `InvalidArgument`."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise CredentialsInAddress(scheme=parts.scheme)
    if not parts.hostname:
        raise InvalidArgument(parameter="address", value=url, expected="a URL with a host")
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def is_page(kind: str, begin: bytes) -> bool:
    """Whether a body is a page for people, by its Content-Type and the bytes that it begins with."""
    return kind.partition(";")[0].strip().lower() in _PAGES or _PAGE.match(begin) is not None


def fetch(url: str, folder: Path, number: int) -> tuple[Path, str]:
    """Fetch what a URL gives into a file of a folder; return the file and a digest of its content.

    The file keeps the endings of the URL's name: they tell the format and the compression. Raises `UrlGivesNoData`,
    `HttpPackageMissing`, `OSError`.
    """
    try:
        import httpx2
    except ImportError as error:
        raise HttpPackageMissing(address=shown_url(url), detail=str(error)) from None
    packed = urlsplit(url).path.endswith(".gz")
    path = folder / f"{number:06}{''.join(PurePosixPath(urlsplit(url).path).suffixes[-2:])}"
    digest = blake2b(digest_size=16)
    headers = {"Accept-Encoding": "identity"}
    try:
        with (
            httpx2.Client(follow_redirects=True, max_redirects=_REDIRECTS, timeout=_SECONDS) as client,
            client.stream("GET", url, headers=headers) as answer,
            path.open("wb") as out,
        ):
            _check(url, answer)
            first = True
            # A server may say of a file with the ending `.gz` that this is its encoding.
            for data in answer.iter_raw(_CHUNK) if packed else answer.iter_bytes(_CHUNK):
                if first and is_page(answer.headers.get("Content-Type", ""), data):
                    raise UrlGivesNoData(address=shown_url(url), detail="it answers with a page for people, in HTML")
                first = False
                digest.update(data)
                out.write(data)
    except httpx2.TooManyRedirects:
        detail = f"it leads on from one address to another, more than {_REDIRECTS} times"
        raise UrlGivesNoData(address=shown_url(url), detail=detail) from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        detail = f"{type(error).__name__}: {str(error).replace(url, shown_url(url))}"
        raise UrlGivesNoData(address=shown_url(url), detail=detail) from None
    return path, digest.hexdigest()


def _check(url: str, answer: Any) -> None:
    """Raise `UrlGivesNoData` for an answer without a file."""
    detail = ""
    if urlsplit(url).scheme.lower() == "https" and answer.url.scheme != "https":
        detail = "it leads to an address without encryption"
    elif answer.status_code != _OK:
        detail = f"it answers {answer.status_code} {answer.reason_phrase}".rstrip()
        if after := answer.headers.get("Retry-After"):
            detail += f", to be tried again after {after[:40]}"
    if detail:
        raise UrlGivesNoData(address=shown_url(url), detail=detail)
