"""A poll over HTTP, with a real client: requests and answers, within bounds, and what goes wrong by name.

Invariant: whatever a server does, the poll ends with rows, with nothing new, or with an error that stalls its source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from tidegauge import secrets
from tidegauge.env import Env
from tidegauge.errors.base import Definite, TidegaugeError, brief
from tidegauge.errors.polls import (
    EtagReused,
    HttpRefused,
    HttpTooLarge,
    HttpUnlike,
    HttpUnreachable,
    NotAsked,
    PagesAstray,
)
from tidegauge.remap.fromtime import SourceState
from tidegauge.sources.formats.plain import Raw, Text
from tidegauge.sources.formats.protocol import Format
from tidegauge.sources.polls.answering import PACKINGS, AnswerDeadline, AnswerOverdue, answered, unpacked
from tidegauge.sources.polls.asking import (
    ETAG,
    HttpState,
    after_seconds,
    is_page,
    next_link,
    opaque,
    same_origin,
    shown,
    state_of,
    told,
    unqueried,
)
from tidegauge.sources.polls.bodies import member, misread, rows_in
from tidegauge.sources.polls.poller import Brought
from tidegauge.sources.polls.trust import Whom, trusted, whom

__all__ = ["HttpFetch"]

_log: Final = logging.getLogger(__name__)

PAGES: Final = 10_000
"""Pages of an answer, at most."""
_OK, _UNCHANGED = 200, 304
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class _Page:
    """An answer that came whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


@dataclass(frozen=True, kw_only=True)
class HttpFetch:
    """Asks one address; a `Fetch`. client: the module of the HTTP client. limit: bytes of all pages together."""

    client: Any
    source: str
    url: str
    format: Format
    rows: str
    cursor: tuple[str, str] | None
    headers: Mapping[str, str]
    params: Mapping[str, str]
    conditional: bool
    timeout: float
    limit: int
    env: Env
    _kept: list[tuple[Whom, Any]] = field(default_factory=list)
    """The client, which keeps its connections, and whom it trusts."""
    _asked: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """The last request of the address itself, with what it was made of: most polls ask what the one before has."""
    _read: list[tuple[SourceState | None, HttpState | None]] = field(default_factory=list)
    """The state that was given last, and what it says to this source."""
    _deadline: AnswerDeadline = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_deadline", AnswerDeadline(self.env.monotonic))

    def __call__(self, bound: SourceState | None) -> Brought | None:
        """Return the rows of an answer that is another one than before. Raises the errors TG-0391 to TG-0397."""
        self._trust()
        of = blake2b(self.url.encode(), digest_size=8).hexdigest()
        if not self._read or self._read[0][0] is not bound:
            self._read[:] = [(bound, state_of(bound, of))]
        state = self._read[0][1]
        if bound is not None and state is None:
            _log.warning("source %s: its state of kind %s is not known here: all is fetched", self.source, bound.kind)
        conditions = state.conditions() if state is not None and self.conditional else {}
        first = self._page(self.url, conditions, self.limit)
        if first.status == _UNCHANGED:
            if conditions and not _of_another(first, state):
                return None
            first = self._page(self.url, {}, self.limit)  # what it says of another state says nothing of ours
            if first.status == _UNCHANGED:
                raise NotAsked(source=self.source, url=shown(self.url))
        pages = list(self._pages(first))
        digest = blake2b(b"".join(blake2b(page.body).digest() for page in pages), digest_size=16).hexdigest()
        found = told(first.headers, digest) if self.conditional else HttpState("tidegauge/body", "", digest)
        if state is not None and state.body == digest:
            new = found.encode(of, bound)
            return None if new == bound else Brought(self._none(), new)
        if state is not None and state.body and _strong_again(state, found):
            raise EtagReused(source=self.source, url=shown(self.url))
        tables = [self._rows(page) for page in pages]
        return Brought(pa.concat_tables(tables), found.encode(of, bound))

    def _none(self) -> pa.Table:
        return self.format.schema.empty_table()  # type: ignore[union-attr]

    def _pages(self, first: _Page) -> Iterator[_Page]:
        """Yield an answer's pages. Raises `PagesAstray` where they lead in a circle, elsewhere, or to no end."""
        page, left, seen = first, self.limit, {self.url}
        for _ in range(PAGES):
            yield page
            left -= len(page.body)
            if not (following := self._following(page)):
                return
            if self.cursor is None and not same_origin(following, first.url):
                raise self._astray(f"lead to another server, {shown(following)}")
            if following in seen:
                raise self._astray("lead in a circle")
            seen.add(following)
            page = self._page(following, {}, left)
            if page.status != _OK:
                raise self._astray(f"have one that is answered with {page.status}")
        raise self._astray(f"are more than {PAGES}")

    def _following(self, page: _Page) -> str:
        """Return the address of the next page, "" after the last one."""
        if self.cursor is not None:
            where, parameter = self.cursor
            try:
                cursor = member(page.body.decode(), where)
            except (ValueError, RecursionError) as error:
                raise self._unlike(error) from None
            if cursor is None or cursor == "" or cursor is False:
                return ""
            if not isinstance(cursor, str | int):
                raise self._astray(f"have a cursor of type {type(cursor).__name__}")
            return str(self.client.URL(self.url).copy_set_param(parameter, str(cursor)))
        return next_link(page.headers.get("link", ""), page.url)

    def _rows(self, page: _Page) -> pa.Table:
        if is_page(page.headers.get("content-type", ""), page.body) and not isinstance(self.format, Raw | Text):
            raise self._unlike("it is a page of HTML")
        schema = self.format.schema
        assert schema is not None  # noqa: S101 - checked when the source was made
        if problem := misread(page.headers.get("content-type", ""), page.body, self.format):
            raise self._unlike(problem)
        try:
            return rows_in(page.body, self.format, schema, rows=self.rows)
        except (ValueError, RecursionError, EOFError, pa.ArrowException) as error:
            raise self._unlike(error) from None
        except Definite as error:
            raise self._unlike(error.summary) from None

    def _page(self, url: str, conditions: Mapping[str, str], limit: int) -> _Page:
        """Return an answer, 200 or 304. Raises `HttpRefused`, `HttpTooLarge`, `HttpUnreachable`."""
        end = self._deadline.end = self.env.monotonic() + self.timeout
        headers = {name: secrets.resolve(name, value) for name, value in self.headers.items()}
        asked = {name: secrets.resolve(name, value) for name, value in self.params.items()}
        body = bytearray()
        try:
            request = self._request(url, asked, {**headers, **conditions})
            with closing(answered(self._client(), request, stays=partial(self._stays, end=end))) as answer:
                if answer.status_code not in (_OK, _UNCHANGED):
                    raise HttpRefused(
                        source=self.source,
                        url=shown(self.url),
                        status=answer.status_code,
                        reason=answer.reason_phrase,
                        retry_after=after_seconds(answer.headers.get("retry-after", ""), now=self.env.now()),
                    )
                for piece in unpacked(answer.iter_raw(), answer.headers.get("content-encoding", "")):
                    body += piece
                    if len(body) > limit:
                        raise HttpTooLarge(source=self.source, url=shown(self.url), limit=self.limit)
                    self._check_time(end, f"{len(body)} bytes came")
                return _Page(answer.status_code, answer.headers, bytes(body), str(answer.url))
        except TidegaugeError:
            raise
        except AnswerOverdue:
            raise self._slow(f"{len(body)} bytes came") from None
        except (self.client.HTTPError, self.client.InvalidURL, OSError, ValueError) as error:
            kind = "no whole answer" if type(error) is ValueError else type(error).__name__
            raise self._unreachable(kind, " ".join(str(error).split())[:_SHOWN]) from None

    def _request(self, url: str, params: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        """Return a request: the last one again where it is the same, and no cookie came since."""
        client, of = self._client(), (params, headers)
        kept, made = self._asked.get(url, (None, None))
        if kept == of and not client.cookies:
            return made
        address = self.client.URL(url)
        address = address.copy_merge_params({name: v for name, v in params.items() if name not in address.params})
        made = client.build_request("GET", address, headers=headers, extensions={"trace": self._deadline})
        if url == self.url and not client.cookies:
            self._asked[url] = of, made
        return made

    def _trust(self) -> None:
        """Have a client that trusts whom this poll is to trust. Raises `HttpUnreachable`."""
        these = whom(self.env.monotonic())
        if self._kept and self._kept[0][0] == these:
            return
        try:
            certificates = trusted(self.client, these)
        except OSError as error:
            detail = f"the certificates to trust, of SSL_CERT_FILE or SSL_CERT_DIR, cannot be read: {brief(error)}"
            raise self._unreachable(type(error).__name__, detail) from None
        logging.getLogger(self.client.__name__).addFilter(unqueried)
        made = self.client.Client(
            verify=certificates,
            headers={"Accept-Encoding": PACKINGS},
            timeout=self.timeout,
        )
        if self._kept:
            before = self._kept.pop()[1]
            made.cookies = before.cookies
            before.close()  # with its connections: they go by the certificates of before
        self._kept.append((these, made))

    def _client(self) -> Any:
        return self._kept[0][1]

    def _stays(self, here: str, there: str, *, end: float) -> None:
        """Raise `PagesAstray` for a redirect out of encryption, or one that would show a secret to another server."""
        self._check_time(end, "there were redirects alone")
        given = (*self.headers.values(), *self.params.values())
        if any(map(secrets.is_reference, given)) and not same_origin(there, self.url):
            raise self._astray(f"lead to another server, {shown(there)}, and the request has secrets")
        if here.startswith("https:") and not there.startswith("https:"):
            raise self._astray(f"lead to an address without encryption, {shown(there)}")

    def _check_time(self, end: float, came: str) -> None:
        if self.env.monotonic() > end:
            raise self._slow(came)

    def _slow(self, came: str) -> HttpUnreachable:
        return self._unreachable("it is too slow", f"{came} in {self.timeout} seconds")

    def _unreachable(self, error: str, detail: str) -> HttpUnreachable:
        return HttpUnreachable(source=self.source, url=shown(self.url), error=error, detail=detail)

    def _astray(self, problem: str) -> PagesAstray:
        return PagesAstray(source=self.source, url=shown(self.url), problem=problem)

    def _unlike(self, problem: object) -> HttpUnlike:
        kind = str(self.format.describe().get("format", type(self.format).__name__))
        said = " ".join(str(problem).split())[:_SHOWN]
        return HttpUnlike(source=self.source, url=shown(self.url), format=kind, problem=said)


def _of_another(page: _Page, state: HttpState | None) -> bool:
    """Whether a 304 names another ETag than it was asked with."""
    etag = page.headers.get("etag", "").strip()
    return bool(etag) and state is not None and state.kind == ETAG and opaque(etag) != opaque(state.value)


def _strong_again(state: HttpState, found: HttpState) -> bool:
    return state.kind == found.kind == ETAG and state.value == found.value and not found.value.startswith("W/")
