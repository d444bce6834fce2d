"""The address of a server: `mysql://user@host:port/database`, without a password.

    ?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE     as the server's own client has them; PREFERRED without

Invariant: a part that is not known is refused, never passed over.

>>> address_of("mariadb://ada@DB/shop").shown
'the database db:3306/shop'
>>> address_of("mysql://ada@db/shop?ssl-mode=REQUIRED").mode
'REQUIRED'
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.secrets import SecretInClear

__all__ = ["ServerAddress", "address_of"]

_PREFERRED: Final = "PREFERRED"
_CHECKED: Final = ("VERIFY_CA", "VERIFY_IDENTITY")
_MODES: Final = ("DISABLED", _PREFERRED, "REQUIRED", *_CHECKED)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, as whom, and which database is meant where a table names none. mode, authorities: whether
    it is spoken to over TLS, and the file with the certificates that sign the server's, None for the system's."""

    user: str
    host: str
    port: int
    database: str
    mode: str = _PREFERRED
    authorities: str | None = None

    @property
    def shown(self) -> str:
        """The server, for people."""
        return f"the database {self.host}:{self.port}/{self.database}"

    @property
    def tls(self) -> dict[str, Any]:
        """What PyMySQL is told of TLS. Raises `OSError` where the file cannot be read."""
        if self.mode == "DISABLED":
            return {"ssl_disabled": True}
        if self.mode == _PREFERRED:
            return {}
        if self.authorities is not None:
            Path(self.authorities).read_bytes()  # or the error does not name it
        context = ssl.create_default_context(cafile=self.authorities)
        context.check_hostname = self.mode == "VERIFY_IDENTITY"
        context.verify_mode = ssl.CERT_REQUIRED if self.mode in _CHECKED else ssl.CERT_NONE
        # Certificates that MySQL makes for itself say less than this wants.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return {"ssl": context}


def address_of(url: str) -> ServerAddress:
    """Return the parts of an address. Raises `InvalidArgument`, `SecretInClear`."""
    found: SplitResult | None
    try:
        found = urlsplit(url) if isinstance(url, str) else None
        port = found.port if found is not None else None
        options = dict(parse_qsl(found.query, strict_parsing=bool(found.query))) if found is not None else {}
    except ValueError:
        found, port, options = None, None, {}
    if (found is not None and found.password is not None) or "password" in options:
        raise SecretInClear(setting="password")
    database = unquote(found.path.strip("/")) if found is not None else ""
    mode, authorities = options.pop("ssl-mode", _PREFERRED), options.pop("ssl-ca", None)
    if (
        found is None
        or found.scheme not in ("mysql", "mariadb")
        or not (found.hostname and found.username and database)
        or options
        or found.fragment
        or "/" in database
        or mode not in _MODES
        or (authorities is not None and mode not in _CHECKED)
    ):
        expected = (
            f"mysql://user@host:port/database; with ?ssl-mode={' or '.join(_MODES)}, and of the last two &ssl-ca=FILE"
        )
        raise InvalidArgument(parameter="MySqlSource(url)", value="given", expected=expected)
    assert found.hostname is not None and found.username is not None  # noqa: S101, PT018 - looked at above
    user, host = unquote(found.username), found.hostname.lower()
    return ServerAddress(user, host, port or 3306, database, mode, authorities)
