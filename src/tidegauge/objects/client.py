"""The client of a bucket, and what its refusals mean.

One client serves a bucket in a process, as long as the environment says the same of it. Credentials are found where
the client is made: in the environment, in a profile, or at the instance. They are no part of a value that is stored,
shown or sent, and no text of a refusal quotes any.

Invariant: what leaves `asking` is FileNotFoundError for an object that is not there in a bucket that is, or an error
of ours; no answer about a bucket that is gone, or out of reach, passes for one about an object.

>>> refusal("s3://lake/orders", "403 Forbidden: <Error><Code>ExpiredToken</Code><Message>too old</Message></Error>")
CredentialsRefused({'place': 's3://lake/orders', 'detail': 'ExpiredToken: too old'})
>>> refusal("s3://lake/orders", "404: <Error><Code>NoSuchBucket</Code></Error>").code
'TG-0580'
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.objects import BucketMissing, CredentialsRefused, ObjectLibraryMissing, ObjectStoreAway
from tidegauge.lazy import library
from tidegauge.objects.address import parts
from tidegauge.objects.profile import provider

__all__ = ["RETRIES", "RETRY_SECONDS", "asking", "at_once", "client", "obstore", "refusal", "told"]

obstore: Final[Any] = library("obstore")

RETRIES: Final = 4
RETRY_SECONDS: Final = 20
"""What a client tries by itself. After that the output is `stalled`, and tries again after growing delays."""
_PATIENCE: Final = timedelta(seconds=30)
_AT_ONCE: Final = 16
"""How many requests of one step are under way at the same time."""

T = TypeVar("T")
R = TypeVar("R")

_SETTINGS: Final = {"s3": "AWS_", "gs": "GOOGLE_", "abfss": "AZURE_"}
"""How the variables begin that say how the stores of a scheme are reached."""
_YES: Final = frozenset({"1", "true", "yes", "on", "y"})

_CODE: Final = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_BUCKET: Final = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_REFUSED: Final = re.compile(
    r"Forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|TokenRefreshRequired"
    r"|Unauthorized|AuthenticationFailed|InvalidClientTokenId|CredentialsNotLoaded|http://169\.254\."
    r"|AWS Error (ACCESS_DENIED|EXPIRED_TOKEN|INVALID_\w*ID|INVALID_SIGNATURE|SIGNATURE_DOES_NOT_MATCH)"
    r"|AWS Error UNKNOWN \(HTTP status 40[013]\)"
)
"""The address is where an instance's credentials are asked for, where there are no others; then Arrow's words,
and the status of a token that has expired: sometimes it keeps no word beside it."""
_TOOK: Final = re.compile(r" in [\d.]+(ns|µs|ms|s)\b")
_AWAY: Final = re.compile(
    r"AWS Error|Generic \w+ error|[Ee]rror sending request|timed out|SlowDown|ServiceUnavailable"
)
_SHOWN: Final = 300


def client(bucket: str) -> Any:
    """Return the client of a bucket. Raises `ObjectLibraryMissing`."""
    return _made(bucket, frozenset(one for one in os.environ.items() if one[0].startswith(_of(bucket))))


def _of(place: str) -> str:
    return _SETTINGS[place.partition(":")[0]]


@lru_cache(maxsize=64)
def _made(bucket: str, _settings: frozenset[tuple[str, str]]) -> Any:
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise ObjectLibraryMissing(place=bucket) from error
    keys: dict[str, Any] = {}
    if bucket.startswith("s3:"):
        with asking(bucket):
            keys = {} if (found := provider(os.environ)) is None else {"credential_provider": found}
    return from_url(
        bucket,
        **keys,
        client_options={
            "timeout": _PATIENCE,
            "connect_timeout": timedelta(seconds=5),
            "allow_http": os.environ.get(f"{_of(bucket)}ALLOW_HTTP", "").lower() in _YES,
        },
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
        },
    )


def at_once(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what a function that waits for a store returns of each item, in their order; several wait at once."""
    waiting = list(items)
    if len(waiting) < 2:
        yield from map(function, waiting)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(waiting)), thread_name_prefix="objects") as pool:
        yield from pool.map(function, waiting)


@contextmanager
def asking(place: str) -> Iterator[None]:
    """Raise what a refusal means. `place` is the address that was asked for, for people."""
    try:
        yield
    except FileNotFoundError as error:
        if _BUCKET.search(str(error)):
            raise refusal(place, str(error)) from None
        raise FileNotFoundError(2, "No such object", place) from None
    except (TidegaugeError, obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
        raise
    except (obstore.exceptions.BaseError, OSError, ValueError) as error:
        raise refusal(place, str(error)) from None  # its text may quote an access key


def told(place: str, text: str) -> BucketMissing | CredentialsRefused | ObjectStoreAway | None:
    """Return what another client of the store tells of its refusal; None where its error is of something else."""
    return refusal(place, text) if any(one.search(text) for one in (_BUCKET, _REFUSED, _AWAY)) else None


def refusal(place: str, text: str) -> BucketMissing | CredentialsRefused | ObjectStoreAway:
    """Return what a store's refusal means, by its text."""
    if _BUCKET.search(text):
        return BucketMissing(place=place, bucket=parts(place)[0])
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        detail = f"{code[1]}: {message[1]}" if message is not None and message[1].strip() else code[1]
    else:
        detail = _TOOK.sub("", " ".join(text.partition("\n\nDebug source")[0].split()))
        if "builder error" in detail:
            detail = f"the endpoint is no address of https, and {_of(place)}ALLOW_HTTP is not true"
    kind = CredentialsRefused if _REFUSED.search(text) else ObjectStoreAway
    return kind(place=place, detail=detail[:_SHOWN])
