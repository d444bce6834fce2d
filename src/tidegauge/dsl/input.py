"""The source of a flow: what a user gives, checked, as the source that the flow reads.

That is a source read by range, one that pushes, one of another flow (`shared`), or several of this flow (`union`).

Invariant: a source is refused before anything is opened, and an option that does not concern it is refused with it.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> source, following = declared(flow, "orders", tg.GeneratorSource(10, columns="id long"))
>>> source.schema.names, following
(['id'], None)
"""

from __future__ import annotations

from typing import Any

from tidegauge.dsl.shared import Shared, check_beside, joined
from tidegauge.dsl.union import Union, united_in
from tidegauge.errors.flow import InvalidArgument
from tidegauge.flow.spec import Flow
from tidegauge.remap.policy import Every
from tidegauge.remap.store import Following
from tidegauge.sources.abilities import Placed
from tidegauge.sources.protocol import Source
from tidegauge.sources.push.protocol import PushSource
from tidegauge.sources.push.source import pushed

__all__ = ["declared"]


def declared(
    flow: Flow,
    name: str,
    source: Source | PushSource | Shared | Union,
    *,
    required: bool = False,
    staging: str | None = None,
) -> tuple[Source, Following | None]:
    """Return the source that a flow reads under a name, and whom the flow follows; see `Dataflow.source`.

    Raises `InvalidArgument`, `CannotShare`, `SharedBeside`, `CannotUnite`, `ForeignStream`, and as `placed` does.
    """
    spec = flow.spec
    if isinstance(source, Shared):
        if required is not False:
            expected = f"it where flow {source.flow!r} declares the source: that mints the epochs"
            raise InvalidArgument(parameter="required", value=required, expected=expected)
        if staging is not None:
            raise InvalidArgument(parameter="staging", value=staging, expected="none for a shared source")
        return joined(spec.name, spec.store, name, source, spec.following, spec.sources)
    check_beside(spec.name, name, spec.following, spec.sources)
    if isinstance(source, Union):
        if required is not False or staging is not None:
            expected = "neither required nor staging for a union: its sources have them"
            raise InvalidArgument(parameter="source", value=name, expected=expected)
        return united_in(flow, spec.sources, source), None
    if not isinstance(source, Source | PushSource):
        raise InvalidArgument(parameter="source", value=source, expected="a source such as tg.FileSource(...)")
    if not isinstance(required, bool):
        raise InvalidArgument(parameter="required", value=required, expected="True or False")
    if isinstance(spec.policy, Every) and not spec.policy.measures(source.unit):
        what = "bytes" if source.unit == "bytes" else "records"
        raise InvalidArgument(
            parameter="tick",
            value=spec.policy,
            expected=f"it with seconds or {what}: the positions of {name!r} count {source.unit}",
        )
    placed: Any = source.placed(spec.name, name) if isinstance(source, Placed) else source
    if isinstance(placed, PushSource):
        return pushed(placed, staging), None
    if staging is not None:
        raise InvalidArgument(parameter="staging", value=staging, expected="none for a source that does not push")
    return placed, None
