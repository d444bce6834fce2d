"""Addresses in object stores: `s3://bucket/path`, `gs://bucket/path`, `abfss://container@account/path`.

Invariant: an address holds no credentials, and two that name one place are one text. Its path has plain characters
alone, which every client spells in one way.

>>> address("s3a://lake//orders/")
's3://lake/orders'
>>> address("s3://ada:secret@lake/orders")
Traceback (most recent call last):
tidegauge.errors.objects.CredentialsInAddress: TG-0584: the s3:// address holds a user, a password, or a query
...
>>> is_address("s3://lake/orders"), is_address("/lake/orders"), parts("s3://lake/orders/_delta_log")
(True, False, ('s3://lake', 'orders/_delta_log'))
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.objects import CredentialsInAddress

__all__ = ["address", "glob_address", "is_address", "parts"]

_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss"}
_BEGIN: Final = re.compile(rf"(?i)({'|'.join(_SCHEMES)})://")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CONTAINER: Final = re.compile(r"[A-Za-z0-9$][A-Za-z0-9-]*@[A-Za-z0-9.-]+")
_KEY: Final = re.compile(r"[A-Za-z0-9!_.*'()=/-]+")
_SIGNED: Final = re.compile(r"(?i)\?(.*&)?(x-(amz|goog)-[a-z-]+|awsaccesskeyid|googleaccessid|signature|sig)=")
"""How the query of an address begins that was signed for somebody. A `?` otherwise stands for a character."""
_EXPECTED: Final = "s3://bucket/path, its path of letters, digits and ! - _ . * ' ( ) ="


def is_address(text: str) -> bool:
    """Whether a text is of the form of an address."""
    return _BEGIN.match(text) is not None


def address(text: str) -> str:
    """Return an address in its one form. Raises `CredentialsInAddress`, `InvalidArgument`."""
    found = urlsplit(text)
    scheme = _SCHEMES[found.scheme.lower()]
    where = found.netloc
    if found.query or found.fragment or ":" in where or ("@" in where and scheme != "abfss"):
        raise CredentialsInAddress(scheme=scheme)
    steps = [step for step in found.path.split("/") if step]
    if not (_CONTAINER if scheme == "abfss" else _BUCKET).fullmatch(where):
        raise InvalidArgument(parameter="path", value=text, expected=_EXPECTED)
    if not steps or {".", ".."} & set(steps) or not _KEY.fullmatch("/".join(steps)):
        raise InvalidArgument(parameter="path", value=text, expected=_EXPECTED)
    return f"{scheme}://{where}/{'/'.join(steps)}"


def glob_address(text: str) -> str:
    """Return an address, which may be a pattern, of keys that others have chosen: they may have any characters.

    Raises `CredentialsInAddress`, `InvalidArgument`.

    >>> glob_address("S3://lake//in/2026-11-2?/*.jsonl")
    's3://lake/in/2026-11-2?/*.jsonl'
    """
    begin, _, rest = text.partition("://")
    scheme = _SCHEMES[begin.lower()]
    where, _, key = rest.partition("/")
    if ":" in where or "?" in where or ("@" in where and scheme != "abfss") or _SIGNED.search(key):
        raise CredentialsInAddress(scheme=scheme)
    steps = [step for step in key.split("/") if step]
    plain = (_CONTAINER if scheme == "abfss" else _BUCKET).fullmatch(where)
    if not plain or not steps or {".", ".."} & set(steps):
        raise InvalidArgument(parameter="path", value=text, expected="s3://bucket/path, or a pattern of such paths")
    return f"{scheme}://{where}/{'/'.join(steps)}"


def parts(text: str) -> tuple[str, str]:
    """Return the bucket of an address, with its scheme, and the path in it."""
    scheme, _, rest = text.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key
