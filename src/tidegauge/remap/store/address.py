"""The address of a store: a SQLite file, or a PostgreSQL database named as psql takes it.

Invariant: no secret of an address is shown, whatever is wrong with it; what cannot be understood is not shown at all.

A `postgresql://` address is read by PostgreSQL's own client library. So it may be as short as psql's, its parameters
are psql's (TLS, several hosts, a service), and what it leaves out comes from where psql takes it: `PGPASSWORD`,
`PGPASSFILE` or `~/.pgpass`, `PGSERVICEFILE`.

>>> parse("sqlite:////var/shop.db").shown
'sqlite:////var/shop.db'
>>> shown("postgresql://ada:hunter2@db:5433/shop?sslmode=verify-full")
'postgresql://ada:***@db:5433/shop?sslmode=verify-full'
>>> parse("mysql://root:hunter2@db/shop")
Traceback (most recent call last):
tidegauge.errors.store.InvalidStoreUrl: TG-0208: the store URL mysql://... cannot be used: 'mysql' is neither ...
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from tidegauge.errors.store import InvalidStoreUrl, StoreDriverMissing

__all__ = ["File", "Server", "parse", "reveals", "secrets", "shown"]

_SECRETS: Final = ("password", "passwd", "secret", "token", "scram")
_SERVER: Final = ("postgresql", "postgres", "postgresql+psycopg")
_FILE: Final = ("sqlite", "sqlite+pysqlite")
_UNKNOWN: Final = re.compile(r'invalid URI query parameter: "(\w+)"')
_FIELD: Final = re.compile(r"((?:\\.|[^:\\])*)(?::|$)")
_IN_SERVICE: Final = re.compile(r"(?m)^\s*\w*password\s*=\s*(.*?)\s*$")
_PERCENT: Final = "a '/', '@' or ':' in a user or a password is written %2F, %40 or %3A"


@dataclass(frozen=True, slots=True)
class File:
    """A SQLite file. `url` is SQLAlchemy's, with an absolute path."""

    path: Path
    url: URL = field(repr=False)
    shown: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        given = self.url.query.items()
        return tuple(value for key, value in given if _secret(key) and isinstance(value, str))


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL database. `settings` are libpq's, as the address gives them: a password may be among them."""

    settings: Mapping[str, str] = field(repr=False)
    shown: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that must not be shown: of the address, and of the files that complete it."""
        given = [value for key, value in self.settings.items() if _secret(key)]
        passfile = self.settings.get("passfile") or os.environ.get("PGPASSFILE") or "~/.pgpass"
        services = os.environ.get("PGSERVICEFILE") or "~/.pg_service.conf"
        found = [*_in_passfile(_text(passfile)), *_IN_SERVICE.findall(_text(services))]
        return tuple(filter(None, [*given, os.environ.get("PGPASSWORD", ""), *found]))


def parse(text: str) -> File | Server:
    """Return the address. Raises `InvalidStoreUrl` for one that no store can have, or `StoreDriverMissing`."""
    scheme, found, rest = text.partition("://")
    if not found:
        raise InvalidStoreUrl(url="given", detail="it has no '://'")
    if scheme in _SERVER:
        return _server(rest)
    if scheme in _FILE:
        return _file(text)
    named = scheme if re.fullmatch(r"[\w+.-]+", scheme) else "its scheme"
    raise InvalidStoreUrl(url=f"{named}://...", detail=f"{named!r} is neither sqlite nor postgresql")


def secrets(text: str) -> tuple[str, ...]:
    """Return what must not be shown of an address, and of where PostgreSQL's client finds passwords. Raises as
    `parse` does."""
    return parse(text).secrets


def reveals(text: str) -> bool:
    """Whether an address itself holds a secret. Raises as `parse` does.

    >>> reveals("postgresql://ada:hunter2@db/shop"), reveals("postgresql://ada@db/shop"), reveals("sqlite:///shop.db")
    (True, False, False)
    """
    address = parse(text)
    given = address.settings if isinstance(address, Server) else address.url.query
    return any(_secret(key) for key in given)


def shown(text: str) -> str:
    """Return an address for people, without its secrets. Raises as `parse` does."""
    return parse(text).shown


def _file(text: str) -> File:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InvalidStoreUrl(url="sqlite://...", detail="it cannot be parsed") from None
    hidden = url.update_query_dict({key: "***" for key in url.query if _secret(key)})
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InvalidStoreUrl(
            url=hidden.render_as_string(hide_password=True),
            detail="it names no file, and a store must outlive its process",
        )
    path = Path(url.database).absolute()
    place = hidden.set(database=str(path)).render_as_string(hide_password=True)
    return File(path, url.set(database=str(path)), place)


def _server(rest: str) -> Server:
    hidden = "postgresql://..."
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise StoreDriverMissing(url=hidden, package="psycopg", detail=str(error)) from None
    try:
        settings = {key: str(value) for key, value in conninfo_to_dict(f"postgresql://{rest}").items()}
    except ProgrammingError as error:
        unknown = _UNKNOWN.search(str(error))
        detail = f"PostgreSQL knows no setting {unknown[1]!r}" if unknown else f"it cannot be parsed; {_PERCENT}"
        raise InvalidStoreUrl(url=hidden, detail=detail) from None
    # A password with one of these signs in it is cut in two there, and its rest taken for a host, a port or a name.
    hosts, ports = settings.get("host", "").split(","), settings.get("port", "").split(",")
    path = rest.partition("/")[2].partition("?")[0]
    if (
        "@" in path
        or any("@" in host[1:] for host in hosts)
        or not all(re.fullmatch(r"[0-9]*", port) for port in ports)
    ):
        raise InvalidStoreUrl(url=hidden, detail=_PERCENT)
    address = Server(settings, _show(settings))
    if not settings.get("dbname") and "service" not in settings:
        raise InvalidStoreUrl(url=address.shown, detail="it names no database")
    return address


def _text(path: str) -> str:
    """Return the text of a file, "" when it cannot be read."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, RuntimeError):
        return ""


def _in_passfile(text: str) -> list[str]:
    """Return the passwords of a passfile, whosever they are: the last field of each line, with signs escaped."""
    entries = (_FIELD.findall(line) for line in text.splitlines() if not line.startswith("#"))
    return [re.sub(r"\\(.)", r"\1", entry[4]) for entry in entries if len(entry) > 4]


def _secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRETS)


def _show(settings: Mapping[str, str]) -> str:
    """Return the address that gives these settings, its secrets replaced."""
    left = dict(settings)
    user, host, port, name = (left.pop(key, "") for key in ("user", "host", "port", "dbname"))
    who = quote(user, safe="") + (":***" if left.pop("password", "") else "")
    if re.search(r"[/,@]", host):  # the folder of a socket, or several hosts
        left |= {"host": host, **({"port": port} if port else {})}
        host = port = ""
    if ":" in host:
        host = f"[{host}]"
    where = f"{who}@" * bool(who) + host + f":{port}" * bool(port)
    settled = "&".join(f"{key}={'***' if _secret(key) else quote(left[key], safe='/,:')}" for key in sorted(left))
    return f"postgresql://{where}/{quote(name, safe='')}" + f"?{settled}" * bool(settled)
