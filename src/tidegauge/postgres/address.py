"""The address of a database without secrets: what an address may hold, and which database it is of.

Invariant: an address that is kept has no password in it. It gives way to a reference (`tidegauge.secrets`), or to the
places that psql takes it from. Two addresses of one database are one `database_identity`, as any user.

This module is for tasks too, so psycopg is loaded where an address is looked at, in the driver.

>>> database_identity("postgresql://ada@DB/shop?sslmode=require"), database_identity("postgres://bob@db:5432/shop")
('postgres:db:5432/shop', 'postgres:db:5432/shop')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidegauge import secrets
from tidegauge.errors.postgressink import InvalidPostgresUrl
from tidegauge.errors.secrets import SecretInClear
from tidegauge.errors.store import InvalidStoreUrl, StoreDriverMissing

__all__ = ["checked_address", "database_identity", "reached"]

_ADDRESS: Final = re.compile(r"(postgres|postgresql|postgresql\+psycopg)://")
_SECRETS: Final = ("password", "secret", "token", "scram")


def checked_address(dsn: str, password: str | None) -> str:
    """Return an address that has no secret in it. Raises `InvalidPostgresUrl`, `SecretInClear`."""
    given = _settings(dsn)
    for name in given:
        if any(word in name for word in _SECRETS) and name not in ("require_auth", "scram_client_key_file"):
            raise SecretInClear(setting=name)
    if password is not None:
        secrets.check("password", password)
    return dsn


def reached(dsn: str, password: str | None) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the settings that reach a database, and the secrets not to be shown. Raises `SecretUnavailable`."""
    from tidegauge.remap.store.address import Server

    settings = dict(_settings(dsn))
    if password is not None:
        settings["password"] = secrets.resolve("password", password)
    return settings, Server(settings, "").secrets


def database_identity(dsn: str) -> str:
    """Return which database an address is of."""
    settings = _settings(dsn)
    hosts = (settings.get("hostaddr") or settings.get("host") or "localhost").split(",")
    ports = (settings.get("port") or "5432").split(",")
    every = ports * len(hosts) if len(ports) == 1 else ports
    where = ",".join(
        sorted(
            f"{host if host.startswith('/') else host.lower()}:{port or '5432'}"
            for host, port in zip(hosts, every, strict=False)
        )
    )
    named = settings.get("dbname") or f"service={settings.get('service', '')}"
    return f"postgres:{where}/{named}"


def _settings(dsn: str) -> Mapping[str, str]:
    from tidegauge.remap.store.address import Server, parse

    if not isinstance(dsn, str) or _ADDRESS.match(dsn) is None:
        raise InvalidPostgresUrl(url="given", detail="it does not begin with postgresql://")
    try:
        address = parse(dsn)
    except (InvalidStoreUrl, StoreDriverMissing) as error:
        raise InvalidPostgresUrl(url=error.evidence["url"], detail=error.evidence["detail"]) from None
    return address.settings if isinstance(address, Server) else {}
