"""The certificates that polls trust: read once for all sources that share them, and again when they have changed.

Reading them takes 20 ms, which a thousand sources do not do each. But a flow runs for months, and an authority is
added, or replaced, while it does: so each poll looks at where they are, which takes two calls of the system.

Invariant: a poll goes by the certificates that were there when it began.

>>> from types import SimpleNamespace
>>> client, now = SimpleNamespace(__name__="client", create_ssl_context=set), whom()
>>> one = trusted(client, now)
>>> trusted(client, now) is one, trusted(client, Whom(("/etc/mine.pem", ()), ("", ()))) is one
(True, False)
"""

from __future__ import annotations

import os
import ssl
import threading
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

__all__ = ["Whom", "trusted", "whom"]

_READING: Final = threading.Lock()
_READ: Final = WeakValueDictionary[tuple[str, "Whom"], Any]()
_DEFAULTS: Final = ssl.get_default_verify_paths()


class Whom(NamedTuple):
    """Where certificates are, each with what the disk says of it, which another certificate changes."""

    file: tuple[str, tuple[int, ...]]
    folder: tuple[str, tuple[int, ...]]


def whom() -> Whom:
    """Return which certificates are to be trusted now."""
    return Whom(
        _stamped(os.environ.get("SSL_CERT_FILE") or _DEFAULTS.openssl_cafile),
        _stamped(os.environ.get("SSL_CERT_DIR") or _DEFAULTS.openssl_capath),
    )


def _stamped(path: str) -> tuple[str, tuple[int, ...]]:
    try:
        status = os.stat(path)  # noqa: PTH116 - a thousand times a second
    except (OSError, ValueError):
        return path, ()
    return path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def trusted(client: Any, these: Whom) -> Any:
    """Return the certificates to trust, as a client has them; all sources of a time share one reading.

    It is let go of with the last of them: the next run may find others. Raises `OSError`.
    """
    with _READING:
        if (found := _READ.get((client.__name__, these))) is None:
            found = _READ[client.__name__, these] = client.create_ssl_context()
        return found
