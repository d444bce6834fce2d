"""The certificates that polls trust: read once for all sources that share them, and again when they have changed.

Reading them takes 20 ms, which a thousand sources do not do each. But a flow runs for months, and an authority is
added, or replaced, while it does: so polls look at where they are. A second may pass between two looks, for each call
of the system lets other threads go first, and a thousand polls a second have enough of those.

Invariant: a poll goes by the certificates that were there a second before it began, or by newer ones.

>>> from types import SimpleNamespace
>>> client, now = SimpleNamespace(__name__="client", create_ssl_context=set), whom(0.0)
>>> one = trusted(client, now)
>>> trusted(client, now) is one, trusted(client, Whom(("/etc/mine.pem", ()), ("", ()))) is one
(True, False)
"""

from __future__ import annotations

import os
import ssl
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

__all__ = ["Whom", "trusted", "whom"]

LOOKS_EVERY: Final = 1.0
_READING: Final = threading.Lock()
_READ: Final = WeakValueDictionary[tuple[str, "Whom"], Any]()
_LOOKED: Final = dict[tuple[str, str], tuple[float, "Whom"]]()
"""The last look: when it was, and what it saw."""
_DEFAULTS: Final = ssl.get_default_verify_paths()


class Whom(NamedTuple):
    """Where certificates are, each with what the disk says of it, which another certificate changes."""

    file: tuple[str, tuple[int, ...]]
    folder: tuple[str, tuple[int, ...]]


def whom(now: float) -> Whom:
    """Return which certificates are to be trusted. now: seconds by a clock that never goes back."""
    file = os.environ.get("SSL_CERT_FILE") or _DEFAULTS.openssl_cafile
    folder = os.environ.get("SSL_CERT_DIR") or _DEFAULTS.openssl_capath
    looked = _LOOKED.get((file, folder))
    if looked is None or not 0.0 <= now - looked[0] < LOOKS_EVERY:
        looked = now, Whom(_stamped(file), _stamped(folder))
        _LOOKED.clear()
        _LOOKED[file, folder] = looked
    return looked[1]


def _stamped(path: str) -> tuple[str, tuple[int, ...]]:
    try:
        status = Path(path).stat()
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
