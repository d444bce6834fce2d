"""The `StreamingQueryListener`s of a classic session: they are told of a flow as of a query of Spark's own.

Events are made in the JVM from JSON, as PySpark makes them in Python, and posted by the session's manager of queries.
Spark has both for its own use only (`private[spark]`). So where a version does not have them, the first event fails,
and no other is tried. On Spark Connect there is no JVM to post in.

Invariant: nothing here raises.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegauge.engine.spark.errors import root_message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkListeners"]

_log: Final = logging.getLogger(__name__)


class SparkListeners:
    """A `QueryEvents`: the listeners of a classic session."""

    def __init__(self, session: SparkSession) -> None:
        self._session: Final[Any] = session
        self._ids: tuple[str, str] = ("", "")
        self._dead = False

    def started(self, about: Mapping[str, Any]) -> None:
        """Post a `QueryStartedEvent`. Spark hands it to the listeners before this returns."""
        self._ids = about["id"], about["runId"]

        def event(streaming: Any) -> Any:
            return streaming.StreamingQueryListener.QueryStartedEvent(
                *self._uuids(), about["name"], about["timestamp"]
            )

        self._post(event)

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Post a `QueryProgressEvent`."""

        def event(streaming: Any) -> Any:
            parsed = getattr(getattr(streaming, "StreamingQueryProgress$"), "MODULE$").fromJson(json.dumps(progress))
            return streaming.StreamingQueryListener.QueryProgressEvent(parsed)

        self._post(event)

    def terminated(self, error: str | None) -> None:
        """Post a `QueryTerminatedEvent`."""

        def event(streaming: Any) -> Any:
            option = self._session._jvm.scala.Option  # noqa: SLF001
            said = option.apply(error), option.apply(None)
            return streaming.StreamingQueryListener.QueryTerminatedEvent(*self._uuids(), *said)

        self._post(event)

    def _uuids(self) -> list[Any]:
        return [self._session._jvm.java.util.UUID.fromString(one) for one in self._ids]  # noqa: SLF001

    def _post(self, event: Callable[[Any], Any]) -> None:
        if self._dead:
            return
        try:
            streaming = self._session._jvm.org.apache.spark.sql.streaming  # noqa: SLF001
            self._session._jsparkSession.streams().postListenerEvent(event(streaming))  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 - of another version, or of a JVM that is gone
            self._dead = True
            _log.info("Spark's listeners are not told of the flow: %s", root_message(error))
