"""Waiting until an output is where you want it: a new table is live, say, and a report can be made of it.

Invariant: it asks the store and the table alone, so it works from any process, also while another one drives the
flow. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.flow import InvalidArgument
from tidegauge.flow.board import OutputCondition
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import outputs
from tidegauge.looking.reports import OutputReport

__all__ = ["wait_until"]

_SOONEST: Final = 0.05
_SLOWEST: Final = 1.0
"""Seconds between two looks: the first, and any later."""


def wait_until(
    flow: Flow, output: str, state: OutputCondition, *, timeout: float | None = None, env: Env | None = None
) -> OutputReport:
    """Wait until an output is in a state (`live`, `paused`, ...), and return where it stands then.

    A flow that has not run yet is waited for. timeout: seconds; None for as long as it takes.

    Raises `TimeoutError`; why the output has failed, when that is not what you wait for; `UnknownName` and
    `InvalidArgument`.
    """
    flow.spec.output(output)
    if state not in get_args(OutputCondition):
        raise InvalidArgument(parameter="state", value=state, expected=", ".join(get_args(OutputCondition)))
    env = env or Env()
    until = None if timeout is None else env.monotonic() + timeout
    for nap in _naps():
        found = _look(flow, output, env)
        if found is not None and found.state == state:
            return found
        if found is not None and found.state == "failed" and isinstance(found.error, TidegaugeError):
            raise found.error
        left = nap if until is None else until - env.monotonic()
        if left <= 0:
            now = "not there: the flow has not run" if found is None else found.state
            raise TimeoutError(f"output {output!r} is {now}, and was to be {state} within {timeout} s")
        env.sleep(min(nap, left))
    raise AssertionError("it looks without end")


def _look(flow: Flow, output: str, env: Env) -> OutputReport | None:
    try:
        return next(one for one in outputs(flow, env=env) if one.name == output)
    except FlowNeverRan:
        return None


def _naps() -> Iterator[float]:
    nap = _SOONEST
    while True:
        yield nap
        nap = min(_SLOWEST, 2 * nap)
