"""TG-092x: simulated worlds: flows that cannot be simulated, and what a simulation found.

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
    "SeedPasses",
    "SimulationFailed",
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
    what = "{factory} returned two flows that differ: {difference}"
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
    remedy = "run it again with simulate(make_flow, seed={seed}), which prints the shortest life that still fails"


class SeedPasses(TidegaugeError):
    """A seed that was expected to fail."""

    code = "TG-0925"
    what = "seed {seed} does not fail any more: all laws held in {lives} lives of its drivers"
    cause = "what it found was mended, or the flow has changed: a seed stands for one life of one flow"
    remedy = "nothing is wrong; search again with new seeds"


class GreenletMissing(TidegaugeError):
    """A package that simulations need."""

    code = "TG-0926"
    what = "simulations run on greenlet, which is not installed: {detail}"
    cause = "Tidegauge was installed without its extra for tests"
    remedy = "pip install 'tidegauge[testing]'"
