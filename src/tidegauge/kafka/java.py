"""Settings of librdkafka as those of Kafka's client for Java: the ones that mean the same in both, and no others.

A secret stays a reference: `env:NAME` and `file:PATH` become variables of Java's own configuration providers, which
the client resolves where it is made, in the JVM of the driver or of an executor (KIP-297, KIP-421).

Invariant: the result has no secret in it. It may go into a plan.

>>> from tidegauge.kafka.settings import Settings
>>> java(Settings.of("here:9092", {"fetch.wait.max.ms": 20, "security.protocol": "ssl"}))
{'bootstrap.servers': 'here:9092', 'fetch.max.wait.ms': '20', 'security.protocol': 'SSL'}
>>> login = {"sasl.mechanism": "PLAIN", "sasl.username": "tide", "sasl.password": "env:KAFKA_PASSWORD"}
>>> java(Settings.of("here:9092", login))["sasl.jaas.config"].partition(" required ")[2]
'username="tide" password="${env:KAFKA_PASSWORD}";'
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidegauge import secrets
from tidegauge.errors.kafka import SettingNotShared
from tidegauge.kafka.settings import Settings, Value

__all__ = ["check_secrets", "java"]

_SAME: Final = frozenset(
    {
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "isolation.level",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.ms",
        "sasl.mechanism",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)
_OTHER_NAME: Final = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
}
_LOGIN: Final = ("sasl.username", "sasl.password")
_MODULES: Final = {"PLAIN": "plain.PlainLoginModule"} | dict.fromkeys(
    ("SCRAM-SHA-256", "SCRAM-SHA-512"), "scram.ScramLoginModule"
)
_PROVIDERS: Final = {
    "env": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "dir": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}


def java(settings: Settings) -> dict[str, str]:
    """Return the configuration of a consumer of Java's. No secret is looked up. Raises `SettingNotShared`."""
    given = dict(settings.entries)
    made = {"bootstrap.servers": settings.servers}
    for name, value in given.items():
        if name in _SAME or name in _OTHER_NAME:
            made[_OTHER_NAME.get(name, name)] = _text(name, value)
        elif name == "ssl.endpoint.identification.algorithm":
            made[name] = "" if value == "none" else _text(name, value)
        elif name not in _LOGIN:
            raise SettingNotShared(setting=name, why="Java's client has none that is known to mean the same")
    if "security.protocol" in made and not secrets.is_reference(given["security.protocol"]):
        made["security.protocol"] = made["security.protocol"].upper()
    if made.keys() & {"ssl.truststore.location", "ssl.truststore.certificates"}:
        made["ssl.truststore.type"] = "PEM"
    if any(name in given for name in _LOGIN):
        made["sasl.jaas.config"] = _login(made.get("sasl.mechanism", "GSSAPI"), given)
    return made | _providers(made)


def check_secrets(settings: Settings) -> None:
    """Raise `SettingNotShared` for a secret of this machine that Java's words for a login cannot hold.

    Raises `SecretUnavailable`.
    """
    for name, value in settings.entries:
        if name in _LOGIN and isinstance(value, str) and secrets.is_reference(value):
            found = secrets.resolve(name, value)
            if value.startswith("file:") and _ends_with_newline(value.removeprefix("file:")):
                raise SettingNotShared(
                    setting=name, why="its file ends with a newline, which Java takes for a part of it"
                )
            _quotable(name, found)


def _ends_with_newline(path: str) -> bool:
    return Path(path).expanduser().read_bytes().endswith((b"\n", b"\r"))


def _login(mechanism: str, given: Mapping[str, Value]) -> str:
    """Return user and password in the words of JAAS."""
    if mechanism not in _MODULES:
        raise SettingNotShared(setting="sasl.username", why=f"with {mechanism} it does not mean the same in Java")
    parts = [
        f'{name.removeprefix("sasl.")}="{_quotable(name, _text(name, given[name]))}"'
        for name in _LOGIN
        if name in given
    ]
    return f"org.apache.kafka.common.security.{_MODULES[mechanism]} required {' '.join(parts)};"


def _quotable(name: str, value: str) -> str:
    """Return what may stand between quotation marks."""
    if any(character in value for character in '"\\\n\r'):
        why = "it has a quotation mark, a backslash or a newline in it, which cannot be said to Java safely"
        raise SettingNotShared(setting=name, why=why)
    return value


def _text(name: str, value: Value) -> str:
    """Return a value as Java writes it; a reference as the variable of a provider."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if "${" in text:
        raise SettingNotShared(setting=name, why="Java's client would take '${' for the begin of a variable")
    if not secrets.is_reference(value):
        return text
    kind, _, place = text.partition(":")
    if kind == "env":
        return f"${{env:{place}}}"
    file = Path(place).expanduser().absolute()
    if set(str(file)) & {":", "}"}:
        raise SettingNotShared(setting=name, why="the path of its file has a ':' or a '}' in it")
    return f"${{dir:{file.parent}:{file.name}}}"


def _providers(made: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the providers whose variables occur."""
    used = [name for name in _PROVIDERS if any(f"${{{name}:" in value for value in made.values())]
    if not used:
        return {}
    return {
        "config.providers": ",".join(used),
        **{f"config.providers.{name}.class": _PROVIDERS[name] for name in used},
    }
