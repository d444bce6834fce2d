"""Credentials of a profile: the keys that AWS's shared files have for it, where the environment has none.

The files are read again now and then, so keys that are renewed there are used without a new start. A profile whose
keys come from elsewhere (a role to assume, single sign-on, a process) needs `boto3`, which knows these ways.

>>> keys_in("[tide]\\naws_access_key_id = A\\naws_secret_access_key = S\\n", "tide")
{'access_key_id': 'A', 'secret_access_key': 'S', 'token': None}
>>> keys_in("[profile tide]\\nrole_arn = arn\\n", "tide") is None
True
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

__all__ = ["keys_in", "provider"]

_AGAIN: Final = timedelta(minutes=6)
"""A client asks again five minutes before that."""
_FILES: Final = {
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "AWS_CONFIG_FILE": "~/.aws/config",
}


def keys_in(text: str, profile: str) -> dict[str, Any] | None:
    """Return the keys that a shared file has for a profile, None where it has none."""
    found = configparser.RawConfigParser()
    found.read_string(text)
    for name in (profile, f"profile {profile}"):
        if found.has_option(name, "aws_access_key_id") and found.has_option(name, "aws_secret_access_key"):
            return {
                "access_key_id": found.get(name, "aws_access_key_id"),
                "secret_access_key": found.get(name, "aws_secret_access_key"),
                "token": found.get(name, "aws_session_token", fallback=None),
            }
    return None


def provider(environ: Mapping[str, str]) -> Callable[[], dict[str, Any]] | None:
    """Return what gives a client the keys of the profile; None where the environment has keys, or no file any."""
    if "AWS_ACCESS_KEY_ID" in environ:
        return None
    profile = environ.get("AWS_PROFILE", "default")
    paths = [Path(environ.get(name, usual)).expanduser() for name, usual in _FILES.items()]

    def keys() -> dict[str, Any] | None:
        for path in paths:
            with suppress(OSError, UnicodeDecodeError, configparser.Error):
                if (found := keys_in(path.read_text(encoding="utf-8"), profile)) is not None:
                    return {**found, "expires_at": datetime.now(UTC) + _AGAIN}
        return None

    def asked() -> dict[str, Any]:
        if (found := keys()) is None:
            raise ValueError(f"CredentialsNotLoaded: the profile {profile!r} has no keys any more")
        return found

    if keys() is not None:
        return asked
    if "AWS_PROFILE" in environ:
        return _elsewhere(profile)
    return None


def _elsewhere(profile: str) -> Callable[[], dict[str, Any]]:
    """Return what `boto3` finds for a profile."""
    try:
        session = import_module("boto3.session").Session(profile_name=profile)
        made: Any = import_module("obstore.auth.boto3").Boto3CredentialProvider
    except ImportError:
        said = f"CredentialsNotLoaded: the profile {profile!r} has no keys, and boto3, which may get some, is missing"
        raise ValueError(said) from None
    found: Callable[[], dict[str, Any]] = made(session)
    return found
