r"""The schema registry: which schema a message was written with, by the id in front of it.

A message is a zero byte, the id in four bytes, the highest first, and then the value. A schema never changes under
its id, so each process asks for it once. That an id is not known may change: it is asked for again, but not before
`AGAIN` seconds, so that messages with a wrong id do not cost a request for each batch.

Invariant: a value of this class holds references to secrets (`tidegauge.secrets`), never a secret. That the registry
cannot be asked is `Transient`, and no message is bad for it; that it does not know an id is `UnknownSchemaId`.

>>> Registry("http://localhost:8081", {"basic.auth.user.info": "env:REGISTRY_LOGIN"}).describe()
{'url': 'http://localhost:8081', 'basic.auth.user.info': 'env:REGISTRY_LOGIN'}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import numpy as np

from tidegauge import secrets
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.formats import FormatPackageMissing, RegistryFailed, RegistryUnreachable, UnknownSchemaId
from tidegauge.errors.secrets import SecretInClear
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.records import Mask

__all__ = ["HEAD_BYTES", "Recent", "Registered", "Registry", "heads"]

HEAD_BYTES: Final = 5
SECONDS: Final = 5
"""How long one answer may take to begin, or to go on."""
WAIT: Final = 200
"""Milliseconds before the first of the attempts that follow a failed one."""
AGAIN: Final = 5.0
"""How many seconds an id stays unknown before it is asked for again."""
_RETRIES: Final = 2
_KEPT: Final = 1000
_REGISTRIES: Final = 8
_SHOWN: Final = 200
_UNKNOWN: Final = (40403, 404)
_NOT_FOUND: Final = 404
_OURS: Final = frozenset({"url", "timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms"})


@dataclass(frozen=True, slots=True)
class Recent:
    """Keys that were noted of late: each is held from then until `seconds` later, at most the latest `room` of them.

    The caller says what time it is. Several threads may use one: at worst a key is forgotten early.

    >>> missing = Recent(seconds=5.0, room=2)
    >>> missing.note(7, at=100.0)
    >>> missing.holds(7, at=104.9), missing.holds(7, at=105.0), missing.holds(8, at=100.0)
    (True, False, False)
    >>> for key in (1, 2, 3):
    ...     missing.note(key, at=100.0)
    >>> [key for key in (1, 2, 3) if missing.holds(key, at=101.0)]
    [2, 3]
    """

    seconds: float
    room: int
    _until: dict[int, float] = field(default_factory=dict)

    def note(self, key: int, *, at: float) -> None:
        """Hold a key from now on, and let go of the oldest ones beyond the room."""
        self._until.pop(key, None)
        self._until[key] = at + self.seconds
        for oldest in list(self._until)[: -self.room]:
            self._until.pop(oldest, None)

    def holds(self, key: int, *, at: float) -> bool:
        """Whether the key is held."""
        return at < self._until.get(key, at)


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema: its kind ("AVRO", "PROTOBUF", "JSON"), its text, and the texts that it refers to, those first."""

    kind: str
    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registry:
    """Where schemas are kept, with settings of confluent-kafka's client, such as "basic.auth.user.info".

    Raises `InvalidArgument`, and `SecretInClear` for a secret that is no reference.
    """

    url: str
    settings: tuple[tuple[str, str], ...]

    def __init__(self, url: str, settings: Mapping[str, str] | None = None) -> None:
        if "@" in url:
            raise SecretInClear(setting="basic.auth.user.info")
        if not _is_address(url):
            raise InvalidArgument(parameter="registry", value=url, expected="an address like 'http://localhost:8081'")
        for name, value in (settings or {}).items():
            if name in _OURS or not isinstance(value, str):
                raise InvalidArgument(
                    parameter=f"the registry's {name!r}", value="...", expected="a text, and not ours"
                )
            secrets.check(name, value)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "settings", tuple(sorted((settings or {}).items())))

    @staticmethod
    def of(registry: str | Registry | None) -> Registry | None:
        """Return a registry given by its address or itself."""
        return Registry(registry) if isinstance(registry, str) else registry

    def describe(self) -> dict[str, Any]:
        """Return the configuration as JSON."""
        return {"url": self.url, **dict(self.settings)}

    def schema(self, id: int) -> Registered:
        """Return the schema of an id.

        Raises `UnknownSchemaId`, `RegistryUnreachable`, `RegistryFailed` and `FormatPackageMissing`.
        """
        unknown = _unknown(self)
        if unknown.holds(id, at=monotonic()):
            raise UnknownSchemaId(url=self.url, id=id)
        try:
            return _schema(self, id)
        except UnknownSchemaId:
            unknown.note(id, at=monotonic())
            raise


def heads(data: bytes, begins: Ints, ends: Ints) -> tuple[Ints, Mask]:
    """Return the schema id of each message of `data`, and which messages begin as one that has an id."""
    framed = ends - begins >= HEAD_BYTES
    start = np.where(framed, begins, 0)
    found = np.frombuffer(data + b"\0" * HEAD_BYTES, np.uint8)
    framed &= found[start] == 0
    ids = np.zeros(len(begins), np.int64)
    for i in range(1, HEAD_BYTES):
        ids = ids << 8 | found[start + i]
    return ids, framed


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@lru_cache(maxsize=_REGISTRIES)
def _unknown(_registry: Registry) -> Recent:
    return Recent(seconds=AGAIN, room=_KEPT)


@lru_cache(maxsize=_KEPT)
def _schema(registry: Registry, id: int) -> Registered:
    client = _client(registry)
    found = _asked(registry, f"schema {id}", lambda: client.get_schema(id), id)
    texts: dict[tuple[str, int], str] = {}
    _refer(registry, client, found.references or (), texts)
    return Registered(found.schema_type or "AVRO", found.schema_str, tuple(texts.values()))


def _refer(registry: Registry, client: Any, references: Sequence[Any], texts: dict[tuple[str, int], str]) -> None:
    """Collect what a schema refers to, and before each what that refers to."""
    for reference in references:
        place = (reference.subject, reference.version)
        if place in texts:
            continue
        if len(texts) > _KEPT:
            raise RegistryFailed(url=registry.url, answer="references without end", asked=f"subject {place[0]}")
        texts[place] = ""
        found = _asked(registry, f"version {place[1]} of {place[0]}", lambda at=place: client.get_version(*at).schema)
        _refer(registry, client, found.references or (), texts)
        del texts[place]
        texts[place] = found.schema_str


def _asked(registry: Registry, what: str, ask: Any, id: int | None = None) -> Any:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        found = ask()
        if not isinstance(found.schema_str, str):
            raise TypeError("no schema in the answer")
    except SchemaRegistryError as error:
        if id is not None and error.http_status_code == _NOT_FOUND and error.error_code in _UNKNOWN:
            raise UnknownSchemaId(url=registry.url, id=id) from None
        _failed(registry, what, f"HTTP {error.http_status_code}: {error.error_message}")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _failed(registry, what, f"what is no schema ({type(error).__name__}: {error})")
    except Exception as error:  # noqa: BLE001 - the errors of whichever HTTP library the client uses
        _client.cache_clear()
        raise RegistryUnreachable(url=registry.url, detail=f"{type(error).__name__}: {error}"[:_SHOWN]) from None
    return found


def _failed(registry: Registry, what: str, answer: str) -> NoReturn:
    # Credentials may be others by the next attempt.
    _client.cache_clear()
    raise RegistryFailed(url=registry.url, answer=answer[:_SHOWN], asked=what) from None


@lru_cache(maxsize=_REGISTRIES)
def _client(registry: Registry) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise FormatPackageMissing(format="of a registry", package="confluent-kafka", detail=str(error)) from None
    settings: dict[str, Any] = {name: secrets.resolve(name, value) for name, value in registry.settings}
    try:
        return SchemaRegistryClient(
            {**settings, "url": registry.url, "timeout": SECONDS, "max.retries": _RETRIES, "retries.wait.ms": WAIT}
        )
    except (ValueError, TypeError, OSError) as error:
        raise InvalidArgument(
            parameter="the registry's settings", value=", ".join(settings), expected=f"what its client takes: {error}"
        ) from None
