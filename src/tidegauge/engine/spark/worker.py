"""Two delays of Spark's Python workers that are longer than a small epoch's work, and what a hop does about them.

Neither touches the configuration of the session, so flows on a session of the user's are as fast as on ours.

*Acknowledgement.* Spark writes the description of a task and then its first rows to the worker's socket. TCP keeps
back the second write until the first is acknowledged (J. Nagle, RFC 896), and the kernel holds an acknowledgement for
40 ms in the hope of an answer to send it with (RFC 1122, 4.2.3.2). So a task waits 40 ms for its first row. With
`TCP_QUICKACK` (Linux) received data is acknowledged at once. It does not last, hence at the start of each hop.

*Garbage.* The daemon collects all generations after each task. With every loaded module in them that takes 25 ms of a
processor; frozen objects are not looked at.

>>> import socket
>>> with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
...     acknowledge()
...     client.getblocking()
True
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import stat
from pathlib import Path
from typing import Final

__all__ = ["acknowledge", "settle"]

_OPEN: Final = Path("/proc/self/fd")


def acknowledge() -> None:
    """Acknowledge now what TCP peers of this process have sent. Does nothing where that cannot be had."""
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or socket.getdefaulttimeout() is not None or not _OPEN.is_dir():
        return  # a default timeout would be given to every socket that is looked at
    for entry in list(_OPEN.iterdir()):
        with contextlib.suppress(OSError):  # closed meanwhile, or no TCP socket
            if stat.S_ISSOCK(os.fstat(int(entry.name)).st_mode):
                with socket.socket(fileno=os.dup(int(entry.name))) as found:
                    found.setsockopt(socket.IPPROTO_TCP, option, 1)


@functools.cache
def settle() -> None:
    """Take what this process has loaded so far out of the garbage collector's sight, once."""
    gc.collect()
    gc.freeze()
