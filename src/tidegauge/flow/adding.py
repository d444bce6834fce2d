"""Going over to a newer flow while the flow runs: to one that has more outputs, or other code for rows that are to be
replaced, and is otherwise the same.

Somebody says `add`, or `replace`, and the driver has an older flow. It loads the newer one from where it came from.
If the two differ in nothing else, it finishes the work under way and begins again with the newer one: the process,
its engine and its session stay. Everything that counts is durable, so this is any restart, without the wait for one.

Invariant: a driver goes over only to a flow for which nothing that runs already has changed without a decision.

>>> from tidegauge.flow.spec import FlowSpec
>>> from tidegauge.remap.policy import Manual
>>> old = FlowSpec("shop", "sqlite:///shop.db", Manual(), {}, frozenset(), {})
>>> successor(old, old, adding={"large"}, replacing={})
"output 'large' is not in it"
>>> from dataclasses import replace
>>> successor(old, replace(old, store="sqlite:///other.db"), adding={"large"}, replacing={})
'it has another name or store'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from tidegauge.errors.base import brief
from tidegauge.flow.dropping import without
from tidegauge.flow.replacing import intended
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.code import changes, code_of
from tidegauge.job.plan import OutputPlan
from tidegauge.remap.store import Decisions, Replacement

__all__ = ["NewerFlow", "successor"]


class NewerFlow:
    """Where a run loads a newer flow from, once for each decision that its own does not know.

    load: None where there is none to be had.
    """

    def __init__(self, load: Callable[[], FlowSpec] | None) -> None:
        self._load: Final = load
        self._weighed: object = frozenset[str]()

    def look(
        self, flow: FlowSpec, decided: Decisions, lacking: frozenset[str], *, tell: Callable[[str], None]
    ) -> FlowSpec | None:
        """Return the flow to go over to. None if there is none; `tell` hears why.

        decided: what stands. lacking: the outputs that the flow lacks, or whose code it does.
        """
        if self._load is None or (decided.number, lacking) == self._weighed:
            return None
        self._weighed = decided.number, lacking
        replacing = {name: decided.replacements[name] for name in lacking & decided.replacements.keys()}
        try:
            found = successor(flow, self._load(), adding=decided.added & lacking, replacing=replacing)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the newer flow, this one goes on
            found = f"it cannot be loaded: {brief(error)}"
        if isinstance(found, str):
            names = ", ".join(sorted(lacking))
            tell(f"the newer flow for {names} is not taken: {found}; this run goes on as before")
            return None
        return found


def successor(
    old: FlowSpec, new: FlowSpec, *, adding: Collection[str], replacing: Mapping[str, Replacement]
) -> FlowSpec | str:
    """Return the flow to go over to, or why that cannot be, in words about the newer flow.

    adding: the outputs to take in. Others that are new are left out: nobody has asked for them. replacing: the
    decisions about tables whose rows are made again by code that the old flow lacks.
    """
    if (new.name, new.store) != (old.name, old.store):
        return "it has another name or store"
    if new.policy != old.policy:
        return "it mints epochs by another rule"
    if new.following != old.following:
        return "it shares sources of another flow, or none"
    for name, source in old.sources.items():
        if name not in new.sources:
            return f"source {name!r} is gone from it"
        if new.sources[name].describe() != source.describe() or (name in new.required) != (name in old.required):
            return f"source {name!r} is another one in it"
    for name, plan in old.outputs.items():
        if name not in new.outputs:
            return f"output {name!r} is gone from it"
        decided = name in replacing and intended(new.outputs[name], replacing[name])
        after = tuple(one for one in new.outputs[name].after if one in old.outputs)  # of those that both have
        if (what := _changed(plan, replace(new.outputs[name], after=after), code=not decided)) is not None:
            return f"output {name!r} has {what} in it"
    for name in adding:
        if name not in new.outputs:
            return f"output {name!r} is not in it"
    for name, one in replacing.items():
        if name in new.outputs and not intended(new.outputs[name], one):
            return f"output {name!r} does not have the code that its table is to be replaced with in it"
    return without(new, new.outputs.keys() - old.outputs.keys() - set(adding))


def _changed(old: OutputPlan, new: OutputPlan, *, code: bool) -> str | None:
    """Return what of an output is another one, None if nothing is. code: whether its code is compared, too."""
    if (old.sink.identity, old.sink.describe()) != (new.sink.identity, new.sink.describe()):
        return "another table"
    if _options(old) != _options(new):
        return "other options"
    if code and changes(code_of(old), code_of(new)):
        return "other code"
    return None


def _options(plan: OutputPlan) -> tuple[object, ...]:
    return plan.start, plan.stamps, plan.after, plan.patience, plan.cadence, plan.evolution
