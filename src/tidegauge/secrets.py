"""Secrets by reference: what a configuration holds is where a secret is, never the secret.

`env:NAME` refers to an environment variable, `file:PATH` to a file (its text, without a newline at its end). A
reference is a plain text, so it can be stored, shown, pickled and sent; it is resolved where a connection is made, in
the driver or in a task, and what it leads to is kept nowhere.

Invariant: a setting whose name says that it is secret passes `check` only as a reference. No error shows a secret.

>>> import os
>>> os.environ["THE_PASSWORD"] = "flood"
>>> resolve("sasl.password", "env:THE_PASSWORD"), resolve("sasl.username", "tide")
('flood', 'tide')
>>> check("sasl.password", "flood")
Traceback (most recent call last):
tidegauge.errors.secrets.SecretInClear: TG-0801: the setting 'sasl.password' is a secret, and was given in the clear
...
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from tidegauge.errors.secrets import SecretInClear, SecretUnavailable

__all__ = ["check", "is_reference", "is_secret", "resolve"]

_REFERENCE: Final = re.compile(r"(env:[^\0=]+|file:[^\0]+)")
_SECRET: Final = re.compile(
    r"(^|[._-])(password|passwd|passphrase|secret|token|credentials?|private[._-]?key|api[._-]?key|pem)($|[._-])"
    r"|^ssl\.key$|^sasl\.oauthbearer\.config$|^basic\.auth\.user\.info$"
)
"""Names of settings whose values are secret. `ssl.key.location`, `...token.endpoint.url` and the like are not."""
_PLACE: Final = re.compile(r"[._-](location|url|file|path|name|type|seconds|ms)$|certificate\.pem$|ca\.pem$")
_LARGEST: Final = 1 << 20


def is_secret(setting: str) -> bool:
    """Whether a setting's name says that its value is a secret.

    >>> [is_secret(name) for name in ("sasl.password", "ssl.key.pem", "ssl.key.location", "client.id", "ssl.ca.pem")]
    [True, True, False, False, False]
    """
    name = setting.lower()
    return _SECRET.search(name) is not None and _PLACE.search(name) is None


def is_reference(value: object) -> bool:
    """Whether a value refers to a secret.

    >>> is_reference("env:KAFKA_PASSWORD"), is_reference("flood"), is_reference("env:")
    (True, False, False)
    """
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def check(setting: str, value: object) -> None:
    """Raise `SecretInClear` for a secret that is no reference."""
    if is_secret(setting) and not is_reference(value):
        raise SecretInClear(setting=setting)


def resolve(setting: str, value: str) -> str:
    """Return what a value refers to, or the value where it is no reference. Raises `SecretUnavailable`."""
    if not is_reference(value):
        return value
    kind, _, place = value.partition(":")
    try:
        found = os.environ.get(place) if kind == "env" else _text_of(place)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise SecretUnavailable(setting=setting, reference=value, problem=_problem(error)) from None
    if found is None:
        raise SecretUnavailable(setting=setting, reference=value, problem="there is no such variable")
    if not found:
        raise SecretUnavailable(setting=setting, reference=value, problem="it is empty")
    return found


def _text_of(path: str) -> str:
    with Path(path).expanduser().open("rb") as stream:
        found = stream.read(_LARGEST + 1)
    if len(found) > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST} bytes")
    return found.decode().removesuffix("\n").removesuffix("\r")


def _problem(error: Exception) -> str:
    """Describe the fault of a file, in words that quote none of it."""
    if isinstance(error, UnicodeDecodeError):
        return "it is no text in UTF-8"
    return f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
