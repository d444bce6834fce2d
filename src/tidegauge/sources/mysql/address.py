"""The address of a server: `mysql://user@host:port/database`, without a password.

>>> address_of("mariadb://ada@DB/shop")
ServerAddress(user='ada', host='db', port=3306, database='shop')
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.secrets import SecretInClear

__all__ = ["ServerAddress", "address_of"]


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, as whom, and which database is meant where a table names none."""

    user: str
    host: str
    port: int
    database: str

    @property
    def shown(self) -> str:
        """The server, for people."""
        return f"the database {self.host}:{self.port}/{self.database}"


def address_of(url: str) -> ServerAddress:
    """Return the parts of an address. Raises `InvalidArgument`, `SecretInClear`."""
    expected = "mysql://user@host:port/database, without more"
    found: SplitResult | None
    try:
        found = urlsplit(url) if isinstance(url, str) else None
        port = found.port if found is not None else None
    except ValueError:
        found, port = None, None
    if found is not None and found.password is not None:
        raise SecretInClear(setting="password")
    database = unquote(found.path.strip("/")) if found is not None else ""
    if (
        found is None
        or found.scheme not in ("mysql", "mariadb")
        or not (found.hostname and found.username and database)
        or found.query
        or found.fragment
        or "/" in database
    ):
        raise InvalidArgument(parameter="MySqlSource(url)", value="given", expected=expected)
    assert found.hostname is not None and found.username is not None  # noqa: S101, PT018 - looked at above
    return ServerAddress(unquote(found.username), found.hostname.lower(), port or 3306, database)
