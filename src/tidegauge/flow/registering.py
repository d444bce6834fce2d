"""What the store is told of a flow before anything runs: its sources and outputs, by name.

Invariant: nothing is read for it but what the flow says of itself, and the columns that it declares.
"""

from __future__ import annotations

from tidegauge.flow.columns import declared
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.store import SHARED, Lease, OutputSpec, SourceSpec, Store
from tidegauge.sources.abilities import from_time_of
from tidegauge.sources.push.source import grows

__all__ = ["register"]


def register(flow: FlowSpec, store: Store, lease: Lease, owner: str = "") -> None:
    """Make the flow's sources and outputs known to the store, by name. Raises what does not fit what it knows.

    owner: the incarnation of the flow that is followed, if known.
    """
    following = flow.following
    said = {} if following is None else {name: {SHARED: following.said(name, owner)} for name in flow.sources}
    collecting = {plan.source for plan in flow.outputs.values() if plan.channel == "errors"}
    store.register(
        lease,
        sources={
            name: SourceSpec(
                {**source.describe(), **said.get(name, {})},
                declared(flow, name),
                from_time_of(source).kind,
                streams=grows(source),
                collected=name in collecting,
            )
            for name, source in flow.sources.items()
        },
        outputs={
            name: OutputSpec(plan.source, plan.sink.describe(), plan.sink.identity)
            for name, plan in flow.outputs.items()
        },
    )
