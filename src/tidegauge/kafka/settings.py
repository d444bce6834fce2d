"""How to reach a Kafka cluster, as a value: bootstrap servers, and settings that are passed on to librdkafka.

Invariant: the value holds references to secrets, never secrets (`secrets`): it may be shown, stored and pickled. Only
the dicts that `consumer`, `producer` and `admin` return have secrets in them; they go to a client and nowhere else.

>>> settings = Settings.of("localhost:9092", {"security.protocol": "SASL_PLAINTEXT", "sasl.password": "env:SECRET"})
>>> settings.describe()
{'servers': 'localhost:9092', 'sasl.password': 'env:SECRET', 'security.protocol': 'SASL_PLAINTEXT'}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidegauge import secrets
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafka import SettingTaken

__all__ = ["Settings", "Value"]

Value: TypeAlias = str | int | float | bool

_SERVERS: Final = re.compile(r"[^\s,]+(,[^\s,]+)*")
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]*")

_OURS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "the servers are an argument of their own",
    "metadata.broker.list": "the servers are an argument of their own",
    "group.id": "the group is an argument of its own",
    "group.instance.id": "partitions are assigned here, no group is joined",
    "group.protocol": "partitions are assigned here, no group is joined",
    "transactional.id": "it is derived from the flow and the output",
    "enable.idempotence": "exactly once rests on it",
    "enable.auto.commit": "offsets are committed when every output holds the records",
    "auto.commit.interval.ms": "offsets are committed when every output holds the records",
    "enable.auto.offset.store": "offsets are committed when every output holds the records",
    "offset.store.method": "offsets are committed when every output holds the records",
    "auto.offset.reset": "every range that is read has its offsets pinned",
    "enable.partition.eof": "the end of a range is found by it",
    "api.version.request": "what a broker is able to do is asked of it",
    "api.version.fallback.ms": "what a broker is able to do is asked of it",
    "broker.version.fallback": "what a broker is able to do is asked of it",
    "allow.auto.create.topics": "a misspelt name would make a topic",
    "go.batch.consumer": "it is of another client",
    "plugin.library.paths": "it would load foreign code into every task",
}
"""Settings that are not the user's, and why."""

_QUIET: Final = 2
"""The level of librdkafka's own log, on standard error: our own errors report failures."""

_CALLS: Final = re.compile(r".*_cb$|^logger$|^on_delivery$|^key\.(de)?serializer$|^value\.(de)?serializer$")


@dataclass(frozen=True, slots=True)
class Settings:
    """Bootstrap servers and settings, sorted by name. Make it with `of`, which checks them.

    plain: whether no setting refers to a secret.
    """

    servers: str
    entries: tuple[tuple[str, Value], ...] = ()
    plain: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain = not any(secrets.is_reference(value) for _name, value in self.entries)
        object.__setattr__(self, "plain", plain)

    @staticmethod
    def of(servers: str, settings: Mapping[str, Value] | None = None) -> Settings:
        """Return checked settings. Raises `InvalidArgument`, `SettingTaken`, `SecretInClear`."""
        if not isinstance(servers, str) or _SERVERS.fullmatch(servers) is None:
            raise InvalidArgument(parameter="servers", value=servers, expected="'host:port', or several with ','")
        if settings is not None and not isinstance(settings, Mapping):
            raise InvalidArgument(parameter="settings", value=type(settings).__name__, expected="a dict")
        for name, value in (settings or {}).items():
            _check(name, value)
        return Settings(servers, tuple(sorted((settings or {}).items())))

    def describe(self) -> dict[str, Value]:
        """Return servers and settings as JSON, with references in place of secrets."""
        return {"servers": self.servers, **dict(self.entries)}

    def get(self, name: str, default: Value) -> Value:
        """Return the user's value of a setting, or the default."""
        return dict(self.entries).get(name, default)

    def consumer(self, **ours: Value) -> dict[str, Value]:
        """Return the configuration of a consumer that is assigned its partitions. Secrets are resolved.

        The names of `ours` are written with `_` for `.`; they give way to the user's. Raises `SecretUnavailable`.
        """
        fixed: dict[str, Value] = {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
        return self._resolved({"isolation.level": "read_committed", **_dotted(ours)}, fixed)

    def producer(self, **ours: Value) -> dict[str, Value]:
        """Return the configuration of a producer; see `consumer`."""
        return self._resolved(_dotted(ours), {})

    def admin(self, **ours: Value) -> dict[str, Value]:
        """Return the configuration of an admin client; see `consumer`."""
        return self._resolved(_dotted(ours), {})

    def digest(self) -> str:
        """Return a text that differs for other settings, or when a secret is another one now.

        It is made to tell clients apart within a process, and is kept there. Raises `SecretUnavailable`.
        """
        found = json.dumps(self._resolved({}, {}), sort_keys=True)
        return hashlib.blake2b(found.encode(), digest_size=16).hexdigest()

    def _resolved(self, defaults: Mapping[str, Value], fixed: Mapping[str, Value]) -> dict[str, Value]:
        mine = {
            name: secrets.resolve(name, value) if isinstance(value, str) else value for name, value in self.entries
        }
        return {"log_level": _QUIET, **defaults, **mine, **fixed, "bootstrap.servers": self.servers}


def _dotted(ours: Mapping[str, Value]) -> dict[str, Value]:
    return {name.replace("_", "."): value for name, value in ours.items()}


def _check(name: object, value: object) -> None:
    if not isinstance(name, str) or (_NAME.fullmatch(name) is None and not _CALLS.match(name)):
        raise InvalidArgument(
            parameter="settings", value=name, expected="names of librdkafka's, like 'sasl.username'"
        )
    if name in _OURS:
        raise SettingTaken(setting=name, why=_OURS[name])
    if _CALLS.match(name) or not isinstance(value, str | int | float | bool):
        raise SettingTaken(setting=name, why="its value is to be a text, a number or a boolean, as it goes to tasks")
    secrets.check(name, value)
