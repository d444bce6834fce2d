"""Sail inside this process: a Spark Connect server in Rust on a free port of this machine, and a session on it.

Invariant: the session's settings that decide rows are as a flow wants them, and nobody else uses it. The server ends
with `stop`, or with the process: there is no other process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidegauge.errors.sail import SailBesideSpark, SailMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Sail"]

_NEEDED: Final = ("pysail.spark", "grpc", "grpc_status", "google.rpc", "zstandard")
"""The server, and what PySpark imports for a session on it."""
_REMOTE: Final = "SPARK_CONNECT_MODE_ENABLED"
"""PySpark's functions look at this variable: are sessions remote?"""
_RUNNING: Final[dict[int, bool]] = {}
"""The ports of the servers that run in this process, and whether the variable was there without them."""
_SETTINGS: Final = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}


class Sail:
    """A server, and the session of one engine on it. Raises `SailMissing`, `SailBesideSpark`."""

    def __init__(self) -> None:
        try:
            sail, *_ = map(import_module, _NEEDED)
        except ImportError as error:
            raise SailMissing(detail=str(error)) from error
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is not None:  # noqa: SLF001
            raise SailBesideSpark
        os.environ.setdefault("RUST_LOG", "error")  # or Sail tells of each session
        self._server: Final[Any] = sail.SparkConnectServer("127.0.0.1", 0)
        self._server.start(background=True)
        _, port = self._server.listening_address
        self._port: Final[int] = port
        _RUNNING[port] = _REMOTE in os.environ and all(_RUNNING.values())
        self.session: Final[SparkSession] = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        for name, value in _SETTINGS.items():
            self.session.conf.set(name, value)

    def stop(self) -> None:
        """End the session and the server, and leave PySpark as it was."""
        with suppress(Exception):
            self.session.stop()
        self._server.stop()
        before = _RUNNING.pop(self._port, True)
        if not before and not _RUNNING:
            os.environ.pop(_REMOTE, None)
