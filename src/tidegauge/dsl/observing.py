"""A run of a flow as an engine's own listeners see it: a query that starts, makes progress and terminates.

Each publication is a progress. Its numbers are those of the `Publication`, in the words that Spark has for a query.

Invariant: a query's id is the flow's for as long as its store lives; each run has a `runId` of its own. What one
progress has as `endOffset`, the next one has as `startOffset`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tidegauge.flow.publication import Publication
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.observing import Listened, QueryEvents
from tidegauge.remap.frontier import ORIGIN, Frontier

if TYPE_CHECKING:
    from tidegauge.flow.runner import Runner

__all__ = ["ObservedFlow", "observed", "progress_of"]


def observed(runner: Runner) -> ObservedFlow | None:
    """Return what tells the listeners of a run's engine, None where nobody can listen."""
    events = runner.engine.events() if isinstance(runner.engine, Listened) else None
    return None if events is None else ObservedFlow(runner, events)


class ObservedFlow:
    """Tells of one run of a flow, in one thread."""

    def __init__(self, runner: Runner, events: QueryEvents) -> None:
        self._events: Final = events
        self._flow: FlowSpec = runner.flow
        self._ids: Final = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{runner.lease.incarnation}:{runner.flow.name}")),
            "runId": str(uuid.uuid5(uuid.NAMESPACE_OID, runner.env.unique())),
            "name": runner.flow.name,
        }
        self._at = runner.env.now()
        self._positions: Mapping[str, Frontier] = {
            name: status.published for name, status in runner.board.sources.items()
        }
        self.error: Exception | None = None
        """The error that has ended the run, if one has."""

    def goes_over(self, flow: FlowSpec) -> None:
        """Know that the run goes on with a newer flow."""
        self._flow = flow

    def begin(self) -> None:
        """Tell that the run has begun."""
        self._events.started({**self._ids, "timestamp": _instant(self._at)})

    def __call__(self, publication: Publication) -> None:
        """Tell a publication."""
        told = progress_of(self._flow, publication, before=self._positions, since=self._at)
        self._at, self._positions = publication.published_at, publication.positions
        self._events.progressed({**self._ids, **told})

    def end(self) -> None:
        """Tell that the run has ended."""
        self._events.terminated(None if self.error is None else str(self.error))


def progress_of(
    flow: FlowSpec, publication: Publication, *, before: Mapping[str, Frontier], since: datetime
) -> dict[str, Any]:
    """Return a publication in Spark's words. before, since: where the one before it has ended, and when."""
    seconds = publication.seconds or 0.0
    passed = (publication.published_at - since).total_seconds()
    rows: dict[str, int] = {}
    for name, count in publication.rows.items():
        if name in flow.outputs:
            source = flow.outputs[name].source
            rows[source] = max(count, rows.get(source, 0))
    written = {f"{name}.rows": str(count) for name, count in publication.rows.items()}
    written |= {f"{name}.bytes": str(count) for name, count in publication.bytes.items()}
    milliseconds = round(1000 * seconds)
    return {
        "timestamp": _instant(publication.published_at - timedelta(seconds=seconds)),
        "batchId": publication.epochs.stop - 1,
        "batchDuration": milliseconds,
        "durationMs": {} if publication.seconds is None else {"triggerExecution": milliseconds},
        "eventTime": {},
        "stateOperators": [],
        "sources": [
            {
                "description": f"tidegauge[{name}]",
                "startOffset": _offsets(before.get(name, ORIGIN)),
                "endOffset": _offsets(positions),
                "latestOffset": None,
                "numInputRows": rows.get(name, 0),
                "inputRowsPerSecond": rows.get(name, 0) / passed if passed > 0 else 0.0,
                "processedRowsPerSecond": rows.get(name, 0) / seconds if seconds > 0 else 0.0,
                "metrics": {},
            }
            for name, positions in publication.positions.items()
        ],
        "sink": {
            "description": f"tidegauge[{', '.join(flow.outputs)}]",
            "numOutputRows": sum(publication.rows.values()),
            "metrics": written,
        },
        "observedMetrics": {},
    }


def _offsets(positions: Frontier) -> str:
    """Return a frontier as Spark has offsets: JSON, by partition."""
    return json.dumps(dict(sorted(positions.items())))


def _instant(at: datetime) -> str:
    """Return an instant as Spark writes it.

    >>> _instant(datetime(2026, 11, 27, 8, 0, 0, 123456, tzinfo=UTC))
    '2026-11-27T08:00:00.123Z'
    """
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
