"""An engine's own listeners: a flow shows itself to them as a query that makes progress.

Invariant: whatever becomes of an event, the flow goes on. An engine that cannot post any more posts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

__all__ = ["Listened", "QueryEvents"]


class QueryEvents(Protocol):
    """What an engine's listeners are told of one run of a query. None of it raises; it may take its time."""

    def started(self, about: Mapping[str, Any]) -> None:
        """Tell that it has begun. about: `id`, `runId`, `name` and `timestamp`."""
        ...

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Tell its progress, in the words of Spark's `StreamingQueryProgress`."""
        ...

    def terminated(self, error: str | None) -> None:
        """Tell that it has ended, and the error that has ended it, if one has."""
        ...


@runtime_checkable
class Listened(Protocol):
    """An `Engine` that may have listeners of its own."""

    def events(self) -> QueryEvents | None:
        """Return what tells them, None where nobody can listen. Begins no session."""
        ...
