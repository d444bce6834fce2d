"""`HttpSource`: an address that is asked whether it has changed, and whose answer is rows.

    tg.HttpSource("https://example.org/rates.json", format=tg.Json("day date, rate double"), staging="polls")

It is a polled source (`source`) whose function asks over HTTP: with the condition that the last state gives, page by
page, within bounds of time and size. The rows of an answer are staged before they are bound, so none is asked for
again after a crash.

Invariant: an answer is staged whole, with all its pages, or not at all; and an answer with the body of the one before
brings nothing.

>>> source = HttpSource("https://example.org/rates", format=Json("day date, rate double"), staging="/lake/polls")
>>> source.describe()["url"], source.schema.names
('https://example.org/rates', ['day', 'rate'])
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from tidegauge import secrets
from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.polls import HttpMissing
from tidegauge.errors.secrets import SecretInClear
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import SEQUENCE, FromTime
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.protocol import Format, as_line, as_whole
from tidegauge.sources.polls.asking import shown
from tidegauge.sources.polls.fetching import HttpFetch
from tidegauge.sources.polls.merging import Merges
from tidegauge.sources.polls.poller import Beside, Poller, in_a_thread
from tidegauge.sources.polls.source import PollingSource
from tidegauge.sources.polls.staged import PollSplit
from tidegauge.sources.protocol import OnBadRecord, Split

__all__ = ["HttpSource"]

MAX_BYTES: Final = 256 << 20
_LOGINS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
_OURS: Final = frozenset({"if-none-match", "if-modified-since", "host", "content-length", "range"})


@dataclass(frozen=True)
class HttpSource:
    """What an address answers, whenever that has changed.

    Args:
        url: an address that begins with http:// or https://.
        format: a format of files with declared columns. With `Json` the body may be lines, or an array of records.
        staging: as `PollingSource` has it; so have `every`, `merge` and `key`.
        timeout: seconds for an answer, from the request to its last byte.
        rows: where a JSON object has its array of records, such as "data.items". "" for the body itself.
        cursor: for answers that have the next page's cursor in them: the member, such as "meta.next", and the
            parameter of the address that it is sent as. None to follow the header `Link` alone.
        headers, params: of the request. Give secrets by reference, such as "env:API_TOKEN".
        conditional: whether to ask with ETag and Last-Modified. False where a server cannot be trusted with them.
        max_bytes: the size of an answer, all pages together, at most.

    Raises `InvalidArgument`, `SecretInClear`, and what `PollingSource` raises.
    """

    url: str
    _: KW_ONLY
    format: Format
    staging: str | os.PathLike[str]
    every: float = 60.0
    timeout: float = 30.0
    merge: Merges = "append"
    key: str | Sequence[str] = ()
    rows: str = ""
    cursor: tuple[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    conditional: bool = True
    max_bytes: int = MAX_BYTES
    owner: tuple[str, str] = field(default=("", ""), repr=False)

    def __post_init__(self) -> None:
        _check_address(self.url)
        if as_line(self.format) is None and as_whole(self.format) is None:
            raise InvalidArgument(
                parameter="format", value=self.format, expected="a format of files, such as tg.Json"
            )
        if self.format.schema is None:
            expected = "one with declared columns, such as tg.Json('id long, name string')"
            raise InvalidArgument(parameter="format", value=self.format, expected=expected)
        if not isinstance(self.rows, str) or (self.rows and not isinstance(self.format, Json)):
            raise InvalidArgument(parameter="rows", value=self.rows, expected="a path of members, with tg.Json")
        if self.cursor is not None:
            pair = self.cursor if isinstance(self.cursor, tuple | list) else ()
            if len(pair) != 2 or not all(isinstance(one, str) and one for one in pair) or not self.rows:
                expected = "a member and a parameter, such as ('next', 'after'), with tg.Json and rows="
                raise InvalidArgument(parameter="cursor", value=self.cursor, expected=expected)
            object.__setattr__(self, "cursor", tuple(pair))
        for parameter in ("headers", "params"):
            object.__setattr__(self, parameter, _checked(parameter, getattr(self, parameter)))
        size = self.max_bytes
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InvalidArgument(parameter="max_bytes", value=size, expected="a number of bytes, at least 1")
        for name in ("staging", "key", "every", "timeout"):
            object.__setattr__(self, name, getattr(self._polls, name))

    @cached_property
    def _polls(self) -> PollingSource:
        return PollingSource(
            None,
            columns=self.format.schema,
            staging=self.staging,
            every=self.every,
            timeout=self.timeout,
            merge=self.merge,
            key=self.key,
            owner=self.owner,
        )

    @property
    def unit(self) -> str:
        """Positions count the answers that brought rows."""
        return "polls"

    @property
    def from_time(self) -> FromTime:
        """Polls are counted."""
        return SEQUENCE

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._polls.schema

    def placed(self, flow: str, name: str) -> HttpSource:
        """Return the source as the one of this name in this flow. Raises `HttpMissing`."""
        _client()
        return replace(self, owner=(flow, name))

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON; of the address without its query, which may be a secret."""
        polls = dict(self._polls.describe())
        del polls["columns"]
        return {
            **polls,
            "kind": "http",
            "url": shown(self.url),
            "format": dict(self.format.describe()),
            "rows": self.rows,
            "cursor": None if self.cursor is None else list(self.cursor),
            "headers": dict(self.headers),
            "params": dict(self.params),
            "conditional": self.conditional,
            "max_bytes": self.max_bytes,
        }

    def attended(self, env: Env, *, beside: Beside = in_a_thread) -> Poller:
        """Return what polls during a run, `beside` it. Raises `HttpMissing`."""
        fetch = HttpFetch(
            client=_client(),
            source=self.owner[1],
            url=self.url,
            format=self.format,
            rows=self.rows,
            cursor=self.cursor,
            headers=self.headers,
            params=self.params,
            conditional=self.conditional,
            timeout=self.timeout,
            limit=self.max_bytes,
            env=env,
        )
        return self._polls.polled_by(fetch, env, beside=beside, timeout=10 * self.timeout)

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how far the staged answers go. It asks nobody: only a run polls."""
        return self._polls.probe(bound, now=now)

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Return the files of these slices. Raises what says that one is not there as it was."""
        return self._polls.plan(slices, bound)

    def read(self, split: PollSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an answer: they were decoded before they were staged."""
        return self._polls.read(split, on_bad_record)

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: the log stays, for outputs that are yet to come."""


def _client() -> Any:
    """Return the module of the HTTP client. Raises `HttpMissing`."""
    try:
        import httpx2
    except ImportError as error:
        raise HttpMissing(detail=str(error)) from None
    return httpx2


def _check_address(url: object) -> None:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        shape = "an address like 'https://example.org/data.json'"
        raise InvalidArgument(parameter="url", value=shown(url) if isinstance(url, str) else url, expected=shape)
    if "@" in parts.netloc:
        raise SecretInClear(setting="url")
    for pair in parts.query.split("&"):
        if secrets.is_secret(pair.partition("=")[0]):
            raise SecretInClear(setting=f"url: {pair.partition('=')[0]}")


def _checked(parameter: str, given: Any) -> dict[str, str]:
    """Return headers or parameters whose secrets are references. Raises `InvalidArgument`, `SecretInClear`."""
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and name and isinstance(value, str) for name, value in given.items()
    ):
        raise InvalidArgument(parameter=parameter, value="...", expected="texts by their names")
    for name, value in given.items():
        low = name.lower()
        if parameter == "headers" and low in _OURS:
            raise InvalidArgument(parameter=parameter, value=name, expected="other headers than those that are ours")
        secrets.check(name.replace("-", "_"), value)
        if low in _LOGINS and not secrets.is_reference(value):
            raise SecretInClear(setting=name)
    return dict(given)
