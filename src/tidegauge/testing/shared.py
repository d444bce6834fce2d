"""One broker for several processes: the first that needs it starts it, the last that leaves takes it down.

Invariant: nobody counts. Every process holds the broker's pipe, and the system tells the keeper when the last one
has let go of it or has died.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidegauge.processes import hold
from tidegauge.testing.broker import KafkaBroker
from tidegauge.testing.endpoint import Endpoint

__all__ = ["shared"]


@contextmanager
def shared(place: Path) -> Iterator[Endpoint]:
    """Yield the broker of everyone who names the folder `place`, which is made if need be.

    Raises what `KafkaBroker.start` raises.
    """
    place.mkdir(parents=True, exist_ok=True)
    mine: KafkaBroker | None = None
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = place / "broker.json"
        joined = _join(known)
        if joined is None:
            mine = KafkaBroker()
            mine.start()
            where = {"servers": mine.servers, "sasl_servers": mine.sasl_servers}
            known.write_text(json.dumps({**where, "folder": str(mine.folder), "pid": mine.pid}))
            joined = mine.endpoint, -1
    endpoint, pipe = joined
    try:
        yield endpoint
    finally:
        if mine is not None:
            mine.leave()
        else:
            os.close(pipe)


def _join(known: Path) -> tuple[Endpoint, int] | None:
    """Take hold of the broker that is written down there, if it is there still."""
    with suppress(OSError, ValueError):  # nobody wrote, the folder is gone, or nobody reads the pipe
        where = json.loads(known.read_text())
        pipe = hold(Path(where["folder"]))
        return Endpoint(where["servers"], where["sasl_servers"]), pipe
    return None
