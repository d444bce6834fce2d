"""Where a new output's past comes from, if not from its source: the table of another output."""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.outputs import PastNotThere
from tidegauge.job.past import remaining
from tidegauge.job.plan import Dedupe, OutputPlan
from tidegauge.sinks.protocol import Applying

__all__ = ["From", "check_past"]


@dataclass(frozen=True, slots=True)
class From:
    """The table of another output, as a place for a new one to get its past from: `start=tg.From("orders")`.

    The new output begins where that one does. Whatever it lacks while it is late, it reads from that table as far as
    this holds it, and upstream is not asked for it; then it goes on with the source, like any output.

    Args:
        output: an output that is declared before, of the stream that the new one goes on from: its steps are the
            first ones of the new output's.
    """

    output: str

    def __post_init__(self) -> None:
        if not isinstance(self.output, str) or not self.output:
            raise InvalidArgument(parameter="output", value=self.output, expected="the name of an output")


def check_past(plan: OutputPlan, other: OutputPlan, *, pushed: bool, operating: bool) -> None:
    """Raise `PastNotThere` unless the rows of another output's table are those that an output goes on from.

    pushed: whether their source pushes. operating: whether it is certain that the other's rows have operations.
    """
    why = None
    if (plan.source, plan.channel) != (other.source, other.channel):
        why = f"that is written from {_stream(other)}, and this output from {_stream(plan)}"
    elif remaining(plan.steps, other.steps) is None:
        why = "that has steps which are not the first ones of this output"
    elif any(isinstance(step, Dedupe) for step in remaining(plan.steps, other.steps) or ()):
        why = "this output keeps the first row of each key, and a table has no order of rows"
    elif pushed:
        why = f"source {plan.source!r} is pushed, and gives its records once, for all outputs"
    elif operating or (isinstance(other.sink, Applying) and other.sink.applies):
        why = "that applies operations to the rows of their keys, and keeps no row of each record"
    if why is not None:
        raise PastNotThere(output=plan.name, table=other.name, why=why)


def _stream(plan: OutputPlan) -> str:
    return repr(plan.source) if plan.channel == "rows" else f"{plan.source}.{plan.channel}"
