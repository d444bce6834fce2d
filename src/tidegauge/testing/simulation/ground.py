"""The flow that worlds are made of: what its factory returns, looked at once, and what a plan has to know of it.

Invariant: a factory returns equal flows. A driver that starts again calls it, and has to find its own.

>>> import tidegauge as tg
>>> def make_flow():
...     flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=2.0)
...     flow.sink("lake", flow.source("orders", tg.GeneratorSource(columns="id long")), tg.ParquetSink("lake"))
...     return flow
>>> ground = Ground.of(make_flow)
>>> ground.facts.sources, ground.facts.tick, "lake: commit" in ground.facts.places
(('orders',), 2.0, True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegauge.engine.local import LocalEngine
from tidegauge.env import POINTS as EFFECTS
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import EmptyFlow
from tidegauge.errors.mysqlsource import BinlogServerAway
from tidegauge.errors.postgressource import ServerAway
from tidegauge.errors.simulable import DatabaseNotKnown
from tidegauge.errors.simulation import FactoryBroke, FlowsDiffer
from tidegauge.flow.deciding import pausable
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.perform import output_schema
from tidegauge.remap.policy import Every
from tidegauge.sources import FileSource, GeneratorSource
from tidegauge.sources.batches.source import BatchSource
from tidegauge.sources.bytewax.logged import BytewaxLogSource
from tidegauge.sources.bytewax.source import BytewaxSource
from tidegauge.sources.listings.source import ListingSource
from tidegauge.sources.mysql.source import MySqlSource
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.sources.push.source import PushedSource
from tidegauge.testing.simulation.alike import difference
from tidegauge.testing.simulation.gaining import can_gain, can_join
from tidegauge.testing.simulation.outside import ANSWERS, outside
from tidegauge.testing.simulation.plan import FaultKind, FlowFacts
from tidegauge.testing.simulation.store import POINTS as STORE_POINTS
from tidegauge.testing.simulation.tables import POINTS as SINK_POINTS
from tidegauge.testing.simulation.upstream import ATTENDED_POINTS, BYTEWAX_POINTS, PUSH_POINTS, is_polled
from tidegauge.testing.simulation.upstream import POINTS as SOURCE_POINTS
from tidegauge.testing.simulation.upstream.database.binlog_sender import BINLOG_POINTS
from tidegauge.testing.simulation.upstream.database.sender import DATABASE_POINTS

__all__ = ["GivenFlow", "Ground", "MakeFlow"]

MakeFlow = Callable[[], Flow]


@dataclass(frozen=True, slots=True)
class GivenFlow:
    """A flow as a command is given it."""

    spec: FlowSpec


@dataclass(frozen=True, slots=True)
class Ground:
    """A factory, the flow that it makes, and the facts for plans."""

    make: MakeFlow
    spec: FlowSpec
    facts: FlowFacts

    @staticmethod
    def of(make: MakeFlow) -> Ground:
        """Look at what a factory makes.

        Raises `FactoryBroke`, `FlowsDiffer`, `EmptyFlow`, `NeedsSpark`, and the errors of steps and columns.
        """
        spec = _made(make)
        if not spec.outputs:
            raise EmptyFlow(flow=spec.name)
        _anew(make, spec)
        engine = LocalEngine(threads=0)
        for plan in spec.outputs.values():
            if (columns := spec.sources[plan.source].schema) is not None:
                output_schema(plan, columns, engine)
        polled = tuple(name for name, source in spec.sources.items() if is_polled(source))
        listed = tuple(name for name in polled if isinstance(spec.sources[name], ListingSource))
        foreign = tuple(name for name in polled if isinstance(spec.sources[name], BytewaxSource))
        asked = {name: ATTENDED_POINTS[: 2 if name in listed else 4] for name in polled}
        asked |= dict.fromkeys(foreign, BYTEWAX_POINTS)
        effects = (point for point in EFFECTS if polled or not point.endswith(" stage poll"))
        places = [*effects, *STORE_POINTS]
        places += [f"{name}: {point}" for name in spec.outputs for point in SINK_POINTS]
        feeds = tuple(name for name, source in spec.sources.items() if isinstance(source, PushedSource))
        written = tuple(name for name in spec.sources if name not in spec.derived)
        for name in written:
            places += [f"{name}: {point}" for point in (PUSH_POINTS if name in feeds else SOURCE_POINTS)]
            pushing = getattr(spec.sources[name], "source", None) if name in feeds else None
            for kind, points_ in ((PostgresSource, DATABASE_POINTS), (MySqlSource, BINLOG_POINTS)):
                places += [f"{name}: {point}" for point in points_ if isinstance(pushing, kind)]
            places += [f"{name}: {point}" for point in asked.get(name, ())]
        policy = spec.policy
        tick = policy.seconds if isinstance(policy, Every) and policy.seconds else 1.0
        answering: dict[FaultKind, tuple[str, ...]] = {
            kind: tuple(place for place in places if outside(kind, place)) for kind in ANSWERS
        }
        answering["torn"] = tuple(place for place in places if place.endswith(": closed"))
        files = tuple(name for name, source in spec.sources.items() if isinstance(source, FileSource))
        loaded = tuple(name for name in written if isinstance(spec.sources[name], BatchSource))
        theirs = tuple(name for name in written if isinstance(spec.sources[name], BytewaxLogSource))
        others = (*feeds, *files, *polled, *loaded, *theirs)
        topics = ((name, spec.sources[name]) for name in written if name not in others)
        logs = tuple(name for name, source in topics if not isinstance(source, GeneratorSource))
        readers = Counter(plan.source for plan in spec.outputs.values())
        companied = tuple(
            name for name, plan in spec.outputs.items() if readers[plan.source] > 1 and plan.source not in feeds
        )
        late = tuple(name for name in spec.outputs if pausable(spec, name))
        tables = tuple(name for name in late if not spec.outputs[name].sink.shared)
        databases = {name: getattr(spec.sources[name], "source", None) for name in feeds}
        facts = FlowFacts(
            written,
            tuple(spec.outputs),
            tuple(places),
            tick,
            feeds,
            logs,
            files,
            companied,
            late,
            tables,
            answering,
            {**can_gain(spec, logs, engine), **can_join(spec)},
            (*listed, *loaded),
            tuple(name for name, one in databases.items() if isinstance(one, PostgresSource | MySqlSource)),
            tuple(name for name, one in databases.items() if isinstance(one, PostgresSource)),
        )
        return Ground(make, spec, facts)

    def again(self) -> FlowSpec:
        """Return the flow anew, as a driver that starts does.

        Raises `FlowsDiffer` where it is another one by now, and what the factory raises.
        """
        return _anew(self.make, self.spec)


def _made(make: MakeFlow) -> FlowSpec:
    try:
        made: Any = make()
    except (ServerAway, BinlogServerAway) as error:
        raise DatabaseNotKnown(**{name: error.evidence[name] for name in ("source", "detail")}) from error
    except TidegaugeError:
        raise
    except Exception as error:
        raise FactoryBroke(factory=_name(make), detail=f"{type(error).__name__}: {error}") from error
    if not isinstance(spec := getattr(made, "spec", None), FlowSpec):
        raise FactoryBroke(factory=_name(make), detail=f"it returned {made!r}")
    return spec


def _anew(make: MakeFlow, first: FlowSpec) -> FlowSpec:
    spec = _made(make)
    if (found := difference(first, spec)) is not None:
        raise FlowsDiffer(factory=_name(make), difference=found)
    return spec


def _name(make: MakeFlow) -> str:
    return str(getattr(make, "__qualname__", repr(make)))
