"""TG-092x, TG-0943, TG-095x: simulated worlds: flows that cannot be simulated, and what a simulation found.

>>> print(UnknownFault(kind="fire", known=["crash", "pause"]))
TG-0920: there is no fault 'fire'; there are 'crash', 'pause'
  likely cause: a name that is misspelt
  what to do:   name the kinds of faults that you want, or leave them out for all
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = [
    "FactoryBroke",
    "FlowsDiffer",
    "GreenletMissing",
    "PlanFailed",
    "SeedPasses",
    "SimulationFailed",
    "StepDrawsChance",
    "StepKeepsState",
    "StepRaises",
    "StepSeesCuts",
    "StepSeesOrder",
    "StepSeesProcess",
    "Ungeneratable",
    "UnknownFault",
]


class UnknownFault(TidegaugeError):
    """A kind of fault that does not exist."""

    code = "TG-0920"
    what = "there is no fault {kind!r}; there are {known}"
    cause = "a name that is misspelt"
    remedy = "name the kinds of faults that you want, or leave them out for all"


class FactoryBroke(TidegaugeError):
    """A function that should return a flow, and does not."""

    code = "TG-0921"
    what = "{factory} returned no flow: {detail}"
    cause = "an error in the function, or a file or a variable that it needs and that is not there"
    remedy = "give a function without parameters that returns a new tidegauge.Dataflow each time"


class FlowsDiffer(TidegaugeError):
    """A function that returns another flow each time."""

    code = "TG-0922"
    what = "{factory} returned flows that differ: {difference}"
    cause = "a name, a column or an option that depends on the time, on a random number, or on what ran before"
    remedy = "return the same flow each time: a driver that starts again has to find its own sources and outputs"


class Ungeneratable(TidegaugeError):
    """A column for which a simulation has no values."""

    code = "TG-0923"
    what = "source {source!r}: no values are generated for column {column!r} of type {type}"
    cause = "a nested or rare type; a simulation writes booleans, numbers, texts, dates, timestamps and decimals"
    remedy = "simulate a flow with other columns: take this one out, or declare a simpler type in its place"


class SimulationFailed(TidegaugeError):
    """A law that does not hold in a simulated world."""

    code = "TG-0924"
    what = "seed {seed}: {law}\n{detail}"
    cause = "a step that is not a function of its rows alone, or an error in a connector or in Tidegauge"
    remedy = (
        "correct it, then run the seed again, with the same faults and epochs: replay(make_flow, seed={seed}), or "
        "'tidegauge simulate FLOW --replay {seed}'"
    )


class PlanFailed(TidegaugeError):
    """A law that does not hold in the world of a plan."""

    code = "TG-0943"
    what = "{law}\n{detail}"
    cause = "a step that is not a function of its rows alone, or an error in a connector or in Tidegauge"
    remedy = "correct it, then carry out the same plan again: Hypothesis has kept it, and prints it"


class SeedPasses(TidegaugeError):
    """A seed that was expected to fail."""

    code = "TG-0925"
    what = "seed {seed} does not fail any more: all laws held in {lives} lives of its drivers"
    cause = (
        "what it found was mended, or the seed failed with another flow, other faults or other epochs, or "
        "in another version of Tidegauge"
    )
    remedy = "if it failed with other --faults or --epochs, give them again; else nothing is wrong: search new seeds"


class GreenletMissing(TidegaugeError):
    """A package that simulations need."""

    code = "TG-0926"
    what = "simulations run on greenlet, which is not installed: {detail}"
    cause = "Tidegauge was installed without its extra for tests"
    remedy = "pip install 'tidegauge[testing]'"


class StepRaises(TidegaugeError):
    """A function that raises for rows that its columns can hold."""

    code = "TG-0950"
    what = "output {output!r}: map_batches({step}) raises {error}\n  for these rows:     {rows}"
    cause = "a null, or a value that the function does not expect; the run would fail this output at such a row"
    remedy = (
        "let the function take the value, or keep it out: a column declared 'not null' has no nulls, and a record "
        "that lacks it is a bad record"
    )


class StepDrawsChance(TidegaugeError):
    """A function that gives other rows for the same rows."""

    code = "TG-0951"
    what = (
        "output {output!r}: map_batches({step}) gives other rows for the same rows\n"
        "  the rows:           {rows}\n  one call gives:     {first}\n  the next one gives: {second}"
    )
    cause = "the function asks the clock, draws a random number or a UUID, or asks something outside of the flow"
    remedy = "compute it from the row: an epoch that is read again after a crash has to be the same"


class StepKeepsState(TidegaugeError):
    """A function that remembers earlier calls."""

    code = "TG-0952"
    what = (
        "output {output!r}: map_batches({step}) remembers earlier calls, in {kept}\n"
        "  the rows:           {rows}\n  one call gives:     {first}\n  a later one gives:  {second}"
    )
    cause = "the function keeps a total, a counter or what it has seen; epochs may come again, and in other processes"
    remedy = "let each row speak for itself, and add up in a query on the published table"


class StepSeesOrder(TidegaugeError):
    """A function whose rows depend on which partition's rows came first."""

    code = "TG-0953"
    what = (
        "output {output!r}: map_batches({step}) depends on the order of partitions, which differs from run to run\n"
        "  the rows:           {rows}\n  in this order:      {first}\n  the other way:      {second}"
    )
    cause = "the function numbers rows, takes the first of several, or compares a row with the one before it"
    remedy = "do that in a query on the published table, in the order of _epoch, _partition and _offset"


class StepSeesCuts(TidegaugeError):
    """A function whose rows depend on how the rows of an epoch are cut into batches."""

    code = "TG-0954"
    what = (
        "output {output!r}: map_batches({step}) depends on how rows are cut into batches\n"
        "  the rows:           {rows}\n  as one batch:       {first}\n  row by row:         {second}"
    )
    cause = "the function adds up, limits or removes duplicates over a batch, which is any part of an epoch"
    remedy = "compute each row from itself alone, and aggregate in a query on the published table"


class StepSeesProcess(TidegaugeError):
    """A function that gives other rows in another process."""

    code = "TG-0955"
    what = (
        "output {output!r}: map_batches({step}) gives other rows in another process\n"
        "  the rows:           {rows}\n  this process gives: {first}\n  another one gives:  {second}"
    )
    cause = (
        "the function takes the order of a set of texts, or hash() of one, which each process draws anew; or it asks "
        "for something else that a process has of its own, such as its number"
    )
    remedy = "sort what comes out of a set, and take a digest of hashlib in place of hash()"
