"""What people decide about a flow's outputs while it runs: its driver hears of it, and does it.

Every transaction of the driver brings along the number of the decisions (`Lease.decisions`). Once that is another
one, they are looked at, beside the worker. So a driver that has nothing to write hears within the five seconds after
which it renews its lease, and one that binds epochs with the next of them; nothing is asked in vain.

Invariant: what stands at the beginning of a worker is known before it begins, so a driver that starts finds outputs
paused. Nothing here is durable: the decisions are, in the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final

from tidegauge.backfill.adaptive import BEGIN, EACH, ROUND, LiveLag, Observed, step
from tidegauge.backfill.rate import Pacing
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Transient
from tidegauge.flow.board import Board
from tidegauge.flow.replacing import intended
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.store import Decisions, Lease, Store
from tidegauge.sinks.pausing import Pausing
from tidegauge.sources.push.source import PushedSource

__all__ = ["Deciding", "pausable"]


def pausable(flow: FlowSpec, output: str) -> bool:
    """Whether an output can wait while others go on: what a source pushes comes once, for all its outputs."""
    plan = flow.outputs.get(output)
    return plan is not None and not isinstance(flow.sources[plan.source], PushedSource)


class Deciding:
    """The decisions that a run goes by. spawn: looks at the store beside the worker."""

    def __init__(self, flow: FlowSpec, store: Store, lease: Lease, *, env: Env, spawn: Spawn) -> None:
        self._flow = flow
        self._store: Final = store
        self._lease: Final = lease
        self._spawn: Final = spawn
        self._looking: Future[Decisions] | None = None
        self._env: Final = env
        self._decided: Mapping[str, frozenset[str]] = {}
        self._weighed: object = None
        """The board and the decisions that were weighed last."""
        self.paused: Mapping[str, tuple[str, ...]] = {}
        """The outputs that are paused, each with its reasons."""
        self.dropping: frozenset[str] = frozenset()
        """The outputs of the flow that are to be dropped."""
        self.replacing: frozenset[str] = frozenset()
        """The outputs whose tables are to be replaced, where the present worker does not know it yet."""
        self.lacking: frozenset[str] = frozenset()
        """The outputs to take in that the flow lacks, and those of its own that are replaced by code it lacks."""
        self.known = Decisions()
        """What stands by the last look."""
        self._begun: frozenset[str] = frozenset()
        """The editions of those that it knew when it began."""
        self.pausing = Pausing()
        self._pacing = Pacing(env.monotonic)
        self._adaptive = BEGIN
        self._due = 0.0
        self._lag = LiveLag()

    def begin(self, flow: FlowSpec, found: Decisions, *, late: Collection[str]) -> tuple[Pausing, Pacing]:
        """Go by the decisions that opening the flow has found; return the values that a new worker's operators ask.

        flow: the one that is opened, without dropped outputs. late: the outputs that are.
        """
        self._flow = flow
        self._begun = frozenset(one.edition for one in found.replacements.values())
        self._know(found, late)
        self.paused = {name: tuple(sorted(why)) for name, why in self._decided.items()}
        rate, within = self._rate()
        self.pausing, self._pacing = Pausing(self.paused), Pacing(self._env.monotonic, rate, within=within)
        return self.pausing, self._pacing

    def look(self, board: Board) -> None:
        """Look whether anything was decided, and do it."""
        if self._looking is None and self._lease.decisions != self.known.number:
            self._looking = self._spawn(partial(self._store.decisions, self._flow.name))
        if self._looking is not None and self._looking.done():
            looked, self._looking = self._looking, None
            try:
                found = looked.result()
            except Transient:
                return  # the number is still another one, so this is asked again
            self._know(found, board.late)
            rate, within = self._rate()
            self._pacing.become(rate, within=within)
        if self.known.rate == "auto":
            self._adapt(board)
        self.follow(board)

    def _rate(self) -> tuple[int | None, float | None]:
        """Return the present rate, and within how many seconds after a late job the next one may begin."""
        return (int(self._adaptive), ROUND) if self.known.rate == "auto" else (self.known.rate, None)

    def _adapt(self, board: Board) -> None:
        """Give way to the live outputs, or take more, once a second.

        One that is stalled does not count, nor the time for which one gathers rows by choice.
        """
        now = self._env.monotonic()
        lag = self._lag.seen(now, upper=board.upper, published=board.published)
        if now >= self._due:
            self._due = now + EACH
            stalled = any(one.state == "stalled" and name not in board.late for name, one in board.outputs.items())
            gathers = (plan.cadence.seconds for plan in self._flow.outputs.values() if plan.cadence is not None)
            behind = 0.0 if stalled else max(0.0, lag - max(gathers, default=0.0))
            self._adaptive = step(self._adaptive, Observed(behind, bool(board.late)))
            self._pacing.become(int(self._adaptive), within=ROUND)

    def follow(self, board: Board) -> None:
        """Pause the outputs that people paused, and those that wait for others by the board's present states."""
        weighed = board, board.changes, self.known.number
        if weighed == self._weighed:
            return
        self._weighed = weighed
        waits = board.waits
        reasons = {
            name: {*self._decided.get(name, ()), *(["order"] if name in waits else [])}
            for name in [*self._decided, *waits]
        }
        paused = {name: tuple(sorted(why)) for name, why in reasons.items()}
        if paused != self.paused:
            self.paused = paused
            board.paused(paused)
            self.pausing.become(paused)

    def _know(self, found: Decisions, late: Collection[str]) -> None:
        """Go by these decisions. A rate of 0 is a reason of its own to pause the late outputs."""
        self.known = found
        self.dropping = frozenset(found.drops.keys() & self._flow.outputs.keys())
        intended_here = [
            one
            for name, one in found.replacements.items()
            if name in self._flow.outputs and intended(self._flow.outputs[name], one)
        ]
        unknown = found.replacements.keys() & self._flow.outputs.keys() - {one.output for one in intended_here}
        self.lacking = found.added - self._flow.outputs.keys() | unknown
        self.replacing = frozenset(one.output for one in intended_here if one.edition not in self._begun)
        self._lease.hear(found.number)  # it may have heard an older one last
        reasons: dict[str, set[str]] = {name: set(reasons) for name, reasons in found.paused.items()}
        for name in late if found.rate == 0 else ():
            reasons.setdefault(name, set()).add("rate")
        self._decided = {name: frozenset(why) for name, why in reasons.items() if pausable(self._flow, name)}
