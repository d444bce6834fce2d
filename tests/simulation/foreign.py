"""A flow over connectors of bytewax: partitions, a queue, and a union of partitions with rows of another source."""

from __future__ import annotations

from bytewax.inputs import DynamicSource, FixedPartitionedSource

import tidegauge as tg

__all__ = ["make_flow"]


class Parts(FixedPartitionedSource[object, object]):
    """A user's connector, which no simulation asks."""

    def list_parts(self) -> list[str]:
        raise AssertionError

    def build_part(self, step_id: str, for_part: str, resume_state: object) -> None:  # type: ignore[override]
        raise AssertionError


class Queue(DynamicSource[object]):
    """Another one."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> None:  # type: ignore[override]
        raise AssertionError


def make_flow() -> tg.Dataflow:
    """Two tables of partitions, one of a queue."""
    flow = tg.Dataflow("foreign", store="sqlite:///foreign.db", tick=1.0)
    columns = "id long, name string"
    parts = flow.source("parts", tg.BytewaxSource(Parts(), columns=columns, staging="/nowhere"))
    queue = flow.source("queue", tg.BytewaxSource(Queue(), columns=columns, staging="/nowhere"))
    flow.sink("all", parts, tg.DeltaSink("lake/all"))
    flow.sink("ids", parts.select("id"), tg.ParquetSink("lake/ids"))
    flow.sink("air", queue, tg.DeltaSink("lake/air"))
    return flow
