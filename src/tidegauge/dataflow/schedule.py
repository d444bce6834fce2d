"""The nodes to run in the next step: activations by the worker itself, by timers and by other threads.

Invariant: nodes activated during a step run in the next one, so an operator that wakes itself cannot spin; and
nothing is lost between two steps: a wake-up that comes while the worker decides to park ends the parking. A needless
activation is harmless, a missing one is a hang.

Timers do not pile up. An operator that asks for one whenever it runs, and that others wake as well, would get one
more each time, each of them waking it to ask again. So of many timers of one operator those that are close together
are one. And nothing is kept of a dataflow that is complete or was dropped.

>>> woken = []
>>> class Noted:
...     gone = False
...     def mark(self): woken.append("noted")
>>> activations = Activations(lambda: 0.0)
>>> Activator(activations, Noted()).activate()
>>> activations.listen(); activations.collect()
>>> woken
['noted']
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil, frexp
from typing import Any, Final, Protocol

from tidegauge.dataflow.looking.log import Log
from tidegauge.dataflow.order import Time
from tidegauge.dataflow.workers.mailbox import Address

__all__ = [
    "NAP",
    "TIMERS",
    "Activations",
    "Activator",
    "Bell",
    "Runtime",
    "Schedulable",
    "ScopePlace",
    "SyncActivator",
]

TIMERS: Final = 32
"""How many timers an operator may have at any instants that it likes."""

NAP: Final = 0.5
"""Seconds that a thread sleeps at a time. Of a signal right before a sleep, Python hears at the end of that."""


class Schedulable(Protocol):
    """A node that can be activated. It has a hash, which identifies it."""

    @property
    def gone(self) -> bool:
        """Whether nothing in its dataflow runs any more."""
        ...

    def mark(self) -> None:
        """Note that it and all around it have to run in this step."""
        ...


class ScopePlace(Schedulable, Protocol):
    """The surroundings of a scope."""

    def keep(self, outputs: Mapping[int, Collection[Time]], why: str, *, tell: bool) -> None:
        """Keep outputs of the scope at these times. tell: at the peers as well."""
        ...


class Activations:
    """The activations of one worker. Everything but `wake` belongs to the worker's own thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic: Final = monotonic
        self._ready: list[Schedulable] = []
        self._timers: list[tuple[float, int, Schedulable]] = []
        self._due: dict[Schedulable, set[float]] = {}
        self._serial = 0
        self._foreign: deque[SyncActivator] = deque()
        self._bell: Final = Bell()

    def soon(self, node: Schedulable) -> None:
        """Run `node` in the next step."""
        self._ready.append(node)

    def after(self, node: Schedulable, seconds: float) -> None:
        """Run `node` in the first step that begins `seconds` from now or later.

        Of a node that has many timers a further one may be later by a sixteenth of its seconds.
        """
        if node.gone:
            return
        due = self._monotonic() + seconds
        waiting = self._due.setdefault(node, set())
        if len(waiting) >= TIMERS and seconds > 0:
            grain = 2.0 ** (frexp(seconds)[1] - 5)
            due = ceil(due / grain) * grain
        if due not in waiting:
            waiting.add(due)
            self._serial += 1
            heappush(self._timers, (due, self._serial, node))

    def forget(self) -> None:
        """Keep nothing of nodes that are gone."""
        self._ready = [node for node in self._ready if not node.gone]
        if any(node.gone for node in self._due):
            self._timers = [timer for timer in self._timers if not timer[2].gone]
            heapify(self._timers)
            self._due = {node: waiting for node, waiting in self._due.items() if not node.gone}

    def wake(self, activator: SyncActivator) -> None:
        """Run an activator's node in the next step, and end the parking. From any thread."""
        self._foreign.append(activator)
        self.unpark()

    def unpark(self) -> None:
        """End the parking, or keep the next one from beginning. From any thread."""
        self._bell.ring()

    def next_timer(self) -> float | None:
        """Return when the next timer is due, None without one."""
        return self._timers[0][0] if self._timers else None

    @property
    def ready(self) -> bool:
        """Whether something is to run in the next step, timers not counted."""
        return bool(self._ready or self._foreign)

    def listen(self) -> None:
        """Begin a step: from now on, a wake-up ends the worker's parking. Only then are arrivals looked at, so no
        wake-up is lost.
        """
        self._bell.hush()

    def collect(self) -> None:
        """Mark all that is due."""
        for _ in range(len(self._foreign)):  # a thread that wakes again and again does not keep it here
            self._foreign.popleft().deliver()
        if self._timers:
            now = self._monotonic()
            while self._timers and self._timers[0][0] <= now:
                due, _, node = heappop(self._timers)
                self._due[node].discard(due)
                node.mark()
        if self._ready:
            ready, self._ready = self._ready, []
            for node in ready:
                node.mark()

    def park(self, timeout: float | None) -> None:
        """Sleep until another thread wakes, a timer is due or `timeout` seconds have passed. None: no such limit."""
        if self._timers:
            due = max(0.0, self._timers[0][0] - self._monotonic())
            timeout = due if timeout is None else min(due, timeout)
        while timeout is None or timeout > 0:
            nap = NAP if timeout is None else min(timeout, NAP)
            if self._bell.heard(within=nap):
                break
            timeout = None if timeout is None else timeout - nap


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a dataflow asks of its worker.

    report: called with the path and the error of an operator that raised. validate: check that all permission is
    derived. index, peers: which worker it is, of how many. post: send a letter to the same address at a peer. log:
    who is told of what happens, None for nobody.
    """

    activations: Activations
    report: Callable[[str, BaseException], None]
    validate: bool
    index: int
    peers: int
    post: Callable[[int, Address, Any], None]
    log: Log | None = None


class Activator:
    """Wakes one operator from the worker's own thread."""

    __slots__ = ("_activations", "_node")

    def __init__(self, activations: Activations, node: Schedulable) -> None:
        self._activations = activations
        self._node = node

    def activate(self) -> None:
        """Run the operator in the next step."""
        self._activations.soon(self._node)

    def activate_after(self, seconds: float) -> None:
        """Run the operator in the first step that begins `seconds` from now or later, by the worker's clock."""
        self._activations.after(self._node, seconds)


class SyncActivator:
    """Wakes one operator from any thread, and the worker if it is parked. Waking a dropped one does nothing."""

    __slots__ = ("_activations", "_node", "_queued")

    def __init__(self, activations: Activations, node: Schedulable) -> None:
        self._activations = activations
        self._node = node
        self._queued = False

    def activate(self) -> None:
        """Run the operator in the next step. Calls before that step are one."""
        if not self._queued:
            self._queued = True
            self._activations.wake(self)

    def deliver(self) -> None:
        """Mark the operator; for the worker. The flag is cleared first: what comes later is a call of its own."""
        self._queued = False
        self._node.mark()


class Bell:
    """A thread sleeps on it: others ring it, at any instant, and a ring that comes before the sleep ends it at once.

    Ctrl-C may come in the middle of a ring or of a sleep. A `threading.Event` is Python code around a lock: an
    interrupt there leaves the lock taken for good. A `queue.SimpleQueue` is in one piece, but when a signal's handler
    takes longer than the rest of the sleep, it sleeps for ever. So the bell is the interpreter's lock itself: held,
    it is silent; to ring is to release it. It rings or it does not, at whatever instant a thread was interrupted; a
    sleep ends at its time. It is silent at first.

    >>> bell = Bell()
    >>> bell.ring(); bell.ring()
    >>> bell.heard(within=10.0), bell.heard(within=0.0)
    (True, False)
    """

    __slots__ = ("_silent",)

    def __init__(self) -> None:
        self._silent: Final = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Let it ring, if it does not already. From any thread."""
        if self._silent.locked():
            with suppress(RuntimeError):  # another thread was quicker
                self._silent.release()

    def hush(self) -> None:
        """Let it be silent."""
        self._silent.acquire(blocking=False)

    def heard(self, *, within: float) -> bool:
        """Wait until it rings, at most `within` seconds, and hush it; say whether it rang."""
        return self._silent.acquire(timeout=within)
