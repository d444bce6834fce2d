"""The reclock operator: spans of bound epochs become the ranges that each epoch holds of each source.

For sources that can be read by range this is all of reclocking: the slices are the work list, and no row is touched.
The operator needs no state of its own, because a span's slices are a function of the timeline below the span's upper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tidegauge.dataflow import OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Stream
from tidegauge.reclock.slices import plan_span
from tidegauge.remap.binding import Slice
from tidegauge.remap.operator import Span
from tidegauge.remap.timeline import Timeline

__all__ = ["SpanSlices", "reclock"]


SpanSlices: TypeAlias = Mapping[str, list[Slice]]
"""The slices of a span's epochs, by source; sources with none in the span are left out."""


def reclock(spans: Stream[Span], timeline: Timeline) -> Stream[SpanSlices]:
    """Build the operator."""
    builder = OperatorBuilder(spans.scope, "reclock")
    builder.input(spans)
    output: Stream[SpanSlices] = builder.output()

    def build(context: OperatorContext) -> Callable[[list[OperatorInput], list[OperatorOutput]], None]:
        context.capabilities[0].drop()

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            for capability, batch in inputs[0].drain():
                outputs[0].give(capability, [plan_span(timeline.tables, span.lower, span.upper) for span in batch])

        return step

    builder.build(build, notify=False)
    return output
