"""TG-093x: what a simulation cannot put in the place of a source."""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = ["ClockNotSimulated", "ColumnsNotDeclared", "DatabaseNotKnown", "NoCounterpart"]


class NoCounterpart(TidegaugeError):
    """A source that nothing can stand in for in a simulation."""

    code = "TG-0930"
    what = "source {source!r} cannot be simulated: nothing stands in for a {kind}"
    cause = "a simulation asks no upstream, and only the class of a source knows how its own behaves"
    remedy = (
        "give {kind} a method simulated(self) that returns a source of the same columns over data in memory, such as "
        "SimulatedLog(PartitionedLog(...), columns=...), and for one that pushes SimulatedFeed(FeedLog(), "
        "streams=...); or simulate the flow with another source in its place"
    )


class ColumnsNotDeclared(TidegaugeError):
    """A source whose columns are inferred: there is nothing upstream that shows them."""

    code = "TG-0931"
    what = "source {source!r} cannot be simulated: its columns are not declared"
    cause = "columns are inferred from the first records, and a simulated upstream begins with none"
    remedy = "declare them in the format, like Json('id long, user string')"


class ClockNotSimulated(TidegaugeError):
    """A source that pushes and whose positions are no numbers of partitions."""

    code = "TG-0932"
    what = "source {source!r} cannot be simulated: its positions are of the kind {kind!r}"
    cause = "what stands in for a source that pushes has partitions, each with positions from 0 on"
    remedy = "simulate the flow with a source in its place that has such positions, and the same streams"


class DatabaseNotKnown(TidegaugeError):
    """A source of a database whose columns are not in its folder, and whose server does not answer."""

    code = "TG-0546"
    what = "a source of {source} cannot be simulated: its columns are not known, and its server says: {detail}"
    cause = (
        "columns are looked up when a flow is declared first, and kept in the folder of its source; it is not here"
    )
    remedy = "declare the flow once where the server can be reached, and simulate it with the folder that this leaves"
