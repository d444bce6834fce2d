"""A flow as one frozen value. Everything below the DSL takes it, and knows nothing of `Dataflow`.

Invariant: a spec never changes. What you add to a `Dataflow` later is in its next spec, and so in its next run.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> orders = flow.source("orders", tg.GeneratorSource(10, columns="id long"))
>>> flow.sink("orders", orders, tg.ParquetSink("lake/orders"))
>>> spec = flow.spec
>>> flow.sink("bad_orders", orders.errors, tg.ParquetSink("lake/bad_orders"))
>>> list(spec.outputs), list(flow.spec.outputs), spec.collecting, flow.spec.collecting
(['orders'], ['orders', 'bad_orders'], frozenset(), frozenset({'orders'}))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from tidegauge.errors.flow import UnknownName
from tidegauge.job.plan import OutputPlan
from tidegauge.remap.derived import Derived
from tidegauge.remap.policy import Policy
from tidegauge.remap.store import Following
from tidegauge.sources.protocol import Source

__all__ = ["Flow", "FlowSpec"]


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow: its name, its store, when it mints epochs, its sources and outputs by name, in the order of adding.

    required: the sources without which nothing is bound. following: whose timeline this flow's is, with the sources
    that it shares; then it has no others. None for a flow that binds its sources itself.
    """

    name: str
    store: str
    policy: Policy
    sources: Mapping[str, Source]
    required: frozenset[str]
    outputs: Mapping[str, OutputPlan]
    following: Following | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))
        object.__setattr__(self, "outputs", MappingProxyType(dict(self.outputs)))

    @property
    def collecting(self) -> frozenset[str]:
        """The sources whose bad records go to an output. A bad record does not fail such a source."""
        return frozenset(plan.source for plan in self.outputs.values() if plan.channel == "errors")

    def source(self, name: str) -> Source:
        """Return a source. Raises `UnknownName`."""
        if name not in self.sources:
            raise UnknownName(kind="source", name=name, known=sorted(self.sources))
        return self.sources[name]

    def output(self, name: str) -> OutputPlan:
        """Return an output. Raises `UnknownName`."""
        if name not in self.outputs:
            raise UnknownName(kind="output", name=name, known=sorted(self.outputs))
        return self.outputs[name]

    def origins(self, output: str) -> frozenset[str]:
        """Return the sources whose records an output has: the one that it reads, and those that one is made of."""
        name = self.outputs[output].source
        source = self.sources[name] if self.following is None else None
        return frozenset((name, *source.made_of) if isinstance(source, Derived) else (name,))

    @property
    def derived(self) -> Mapping[str, Derived]:
        """The sources that are made of others; none where another flow binds them."""
        if self.following is not None:
            return {}
        return {name: source for name, source in self.sources.items() if isinstance(source, Derived)}

    def unit_of(self, source: str) -> str:
        """Return what the positions of a source count; one that is no longer in the flow does not say."""
        return self.sources[source].unit if source in self.sources else "positions"


class Flow(Protocol):
    """What you pass to the public functions: a `tidegauge.Dataflow`. They take its `spec` once, and nothing else."""

    @property
    def spec(self) -> FlowSpec:
        """The flow as declared so far."""
        ...
