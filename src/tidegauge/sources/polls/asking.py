"""One poll over HTTP: the question with its conditions, the pages of the answer, and the state after it.

The states are those of the open data formats: `odf/etag` where the answer has an ETag, else `odf/last-modified`, and
with neither a digest of the body. Each has that digest, too. So an answer without change is known as such whatever
the server says, and an ETag that comes back with another body is told.

Invariant: an answer counts as a whole, with all its pages, or not at all. No error shows more of an address than its
host and path: the rest may be a secret.

>>> HttpState("odf/etag", '"a"', "d0").conditions()
{'If-None-Match': '"a"'}
>>> HttpState("odf/last-modified", "2026-11-20T17:00:00+00:00", "d0").conditions()
{'If-Modified-Since': 'Fri, 20 Nov 2026 17:00:00 GMT'}
>>> shown("https://user:pw@example.org/a/b?key=7#x"), next_link('<b?page=2>; rel="next", <z>; rel=last', "http://h/a")
('https://example.org/a/b', 'http://h/b?page=2')
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

from tidegauge.remap.fromtime import SourceState

__all__ = [
    "BODY",
    "ETAG",
    "MODIFIED",
    "HttpState",
    "after_seconds",
    "is_one_etag",
    "is_page",
    "next_link",
    "same_origin",
    "shown",
    "state_of",
    "unqueried",
]

ETAG: Final = "odf/etag"
MODIFIED: Final = "odf/last-modified"
BODY: Final = "tidegauge/body"
SOURCE: Final = "odf/polling"
"""What the states are of, as the open data formats name it."""

_LINK: Final = re.compile(r"<([^>]*)>((?:\s*;\s*[^,;<]+(?:=\"[^\"]*\")?)*)")
_NEXT: Final = re.compile(r";\s*rel\s*=\s*(\"[^\"]*\bnext\b[^\"]*\"|next\b)", re.IGNORECASE)
_LONGEST_WAIT: Final = 86_400.0
_SETTLED: Final = 2
"""Seconds after which no other body has this time of its last change."""
_ETAG: Final = re.compile(r'(?:W/)?"[!#-~]*"|[!#-)+\-.0-~]+')
_LONGEST_ETAG: Final = 4096


@dataclass(frozen=True, slots=True)
class HttpState:
    """A state: the validator of its kind, "" for `BODY`, and the digest of the body, "" where it is not known."""

    kind: str
    value: str
    body: str

    def conditions(self) -> dict[str, str]:
        """Return the headers that ask for an answer only if it is another one."""
        if self.kind == ETAG and is_one_etag(self.value):
            return {"If-None-Match": self.value}
        if self.kind == MODIFIED:
            at = datetime.fromisoformat(self.value).astimezone(UTC)
            return {"If-Modified-Since": format_datetime(at, usegmt=True)}
        return {}

    def encode(self, of: str, before: SourceState | None) -> SourceState:
        """Return it as a binding keeps it. of: the digest of the address. The watermark is carried."""
        watermark = None if before is None else before.watermark
        value = {"value": self.value, "body": self.body, "of": of}
        return SourceState(kind=self.kind, source_id=SOURCE, value=value, watermark=watermark)


def state_of(bound: SourceState | None, of: str) -> HttpState | None:
    """Return the state of a binding; None for one of a kind, or of an address, that is not known here.

    A plain text is a validator alone, as the open data formats have it.
    """
    if bound is None or bound.kind not in (ETAG, MODIFIED, BODY):
        return None
    match bound.value:
        case str(value) if value and bound.kind != BODY:
            found = HttpState(bound.kind, value, "")
        case {"value": str(value), "body": str(body), "of": str(there)} if there == of:
            found = HttpState(bound.kind, value, body)
        case _:
            return None
    try:
        found.conditions()
    except (ValueError, OverflowError):
        return None
    return found


def told(headers: Mapping[str, str], body: str) -> HttpState:
    """Return the state that an answer leads to. An ETag is better than a time.

    What changes twice in one second has one time for both. So a time of just now is not believed, by the server's
    own clock, nor an ETag that is made of it: the body alone tells then, until the time is past.
    """
    at, now = _instant(headers.get("last-modified", "")), _instant(headers.get("date", ""))
    recent = at is not None and now is not None and (now - at).total_seconds() < _SETTLED
    etag = headers.get("etag", "").strip()
    if is_one_etag(etag) and not (recent and at is not None and _is_of(etag, at)):
        return HttpState(ETAG, etag, body)
    return HttpState(BODY, "", body) if at is None or recent else HttpState(MODIFIED, at.isoformat(), body)


def _instant(said: str) -> datetime | None:
    """Return the time of a header, None for none, or one that is no such thing."""
    try:
        at = parsedate_to_datetime(said.strip())
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)  # not the zone of this machine
    except (ValueError, TypeError, OverflowError):
        return None


def _is_of(etag: str, at: datetime) -> bool:
    """Whether an ETag has a time in it, as nginx makes it: `"<seconds>-<size>"`, in hexadecimal digits."""
    return f"{int(at.timestamp()):x}" in re.findall(r"[0-9a-z]+", etag.lower())


def is_one_etag(text: str) -> bool:
    """Whether a text can be sent back as the ETag of one answer.

    A server that does wrong sends `*`, which stands for any answer when it is sent back, so that none would ever be
    another one; several; characters that no header may have; or one so long that it refuses it.

    >>> [is_one_etag(text) for text in ('"a"', 'W/"a"', "unquoted", "*", '"a", "b"', '"\xfc"', "")]
    [True, True, True, False, False, False, False]
    """
    return len(text) <= _LONGEST_ETAG and _ETAG.fullmatch(text) is not None


def opaque(etag: str) -> str:
    """Return an ETag without the mark of a weak one: what a server compares for `If-None-Match`."""
    return etag.removeprefix("W/")


def after_seconds(said: str, *, now: datetime) -> float:
    """Return the seconds that a `Retry-After` asks for, at most a day; 0 for none, or one that is no such thing.

    >>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    >>> [after_seconds(said, now=noon) for said in ("7", "Fri, 20 Nov 2026 12:01:00 GMT", "\xb2")]
    [7.0, 60.0, 0.0]
    """
    said = said.strip()
    if said.isascii() and said.isdigit():
        return min(float(said[:12]), _LONGEST_WAIT)
    if (at := _instant(said)) is None:
        return 0.0
    return min(max((at - now).total_seconds(), 0.0), _LONGEST_WAIT)


def next_link(header: str, base: str) -> str:
    """Return the address of the next page that a `Link` header names, "" for none."""
    for address, parameters in _LINK.findall(header):
        if _NEXT.search(parameters):
            return str(urljoin(base, address))
    return ""


def same_origin(one: str, other: str) -> bool:
    """Whether two addresses have one scheme, host and port: a login for the one is not shown to another."""
    return bool(_origin(one) == _origin(other))


def _origin(address: str) -> Any:
    parts = urlsplit(address)
    return parts.scheme.lower(), parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower())


def is_page(kind: str, begin: bytes) -> bool:
    """Whether a body is a page for people, by its Content-Type and the bytes that it begins with.

    >>> is_page("text/html; charset=utf-8", b""), is_page("", b"\\n <!DOCTYPE html>"), is_page("text/csv", b"id,name")
    (True, True, False)
    """
    head = begin[:512].lstrip().lower()
    html = kind.partition(";")[0].strip().lower() in ("text/html", "application/xhtml+xml")
    return html or head.startswith((b"<!doctype html", b"<html"))


def unqueried(record: logging.LogRecord) -> bool:
    """Let a client log its requests without their queries, which may have secrets: a filter of its logger."""
    if isinstance(record.args, tuple):
        record.args = tuple(shown(str(one)) if type(one).__name__ == "URL" else one for one in record.args)
    return True


def shown(address: str) -> str:
    """Return an address for people, without a login, a query or a fragment."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
