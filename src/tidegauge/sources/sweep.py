"""The sweep: asks all sources of a look how far they are, beside the worker, in as few threads as will do.

Most sources have nothing new most of the time, and a flow can have a thousand. So a look is one message, its sources
queue, and a thread takes one after the other. Answers that leave everything unchanged go to the remap operator in one
batch. News goes to the reader of its source (`reader`), which holds the capability in the times of that source, and
from there to the remap operator.

A slow source holds up one thread, and nobody else: each source that took long the last time has a thread of its own
from the beginning, and while sources stand in line behind slow ones the threads double (`more`). One that is attended
is asked beside the look, and has no thread of its own: a thousand of them would be in each other's way.

Sources that look at one place, such as a folder, share what they find there in one look (`Overlapping`). One
that waits for what another one is finding is not slow by that.

What a source says is checked by its clock; what does not pass is an error like any other, and the source is asked
again. `Transient` errors are tried again with growing delays, a `Definite` one is the last that is heard of a source.
A source is told what it said last, also when that was not bound, so that it can tell what upstream has taken back.

Invariant: a source is asked by one thread at a time. One that is still being asked when the next look begins answers
that one. Shared findings were made after the look began, and go with the bindings of that look: they are never older
than these.

>>> more(waiting=990, threads=1, stuck=0, done=200, seconds=0.02)
0
>>> more(waiting=990, threads=2, stuck=2, done=0, seconds=0.02)
2
>>> sorted(meeting({"eu": ("disk", "in", "eu"), "all": ("disk", "in"), "us": ("disk", "out", "us")}))
['all', 'eu']
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from tidegauge.dataflow import (
    EventQueue,
    Messages,
    OperatorBuilder,
    OperatorContext,
    OperatorInput,
    OperatorOutput,
    Stream,
)
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Definite, TidegaugeError
from tidegauge.errors.running import SourceUnreachable
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.findings import Findings
from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.mint import checked_observation
from tidegauge.remap.round import Answer, Asking
from tidegauge.sources.abilities import Attendant, Overlapping, from_time_of
from tidegauge.sources.protocol import Source

__all__ = ["LAPSE", "SLOW", "Scout", "SweepSetup", "backoff", "meeting", "more", "news", "sweep"]

SLOW: Final = 0.001
"""Seconds from which on a source is slow to answer. A folder of a few files takes a twentieth of that."""

Scout: TypeAlias = Callable[[Bound, Observation], Observation]

_NOTHING_TOLD: Final = Bound()

LAPSE: Final = 0.02
"""Seconds between two looks at what the threads have done, while sources wait for one."""


def backoff(attempt: int) -> float:
    """Return the seconds to wait after the given number of failures in a row.

    >>> [backoff(attempt) for attempt in (1, 2, 3, 20)]
    [0.2, 0.4, 0.8, 30.0]
    """
    return min(30.0, 0.1 * 2.0 ** min(attempt, 30))


def more(*, waiting: int, threads: int, stuck: int, done: int, seconds: float) -> int:
    """Return how many threads to add to those there are, where some sources wait for one.

    stuck: threads that have been with one source all the time since the last look, `seconds` ago. done: how many
    sources have answered since then. Those who are quick are left alone: more threads would only be in their way.
    """
    free = threads - stuck
    if free > 0 and seconds * free <= SLOW * done:
        return 0
    return min(waiting, max(1, threads))


def meeting(places: Mapping[str, tuple[Hashable, ...]]) -> set[str]:
    """Return the sources whose place begins with that of another one, or is what another one's begins with."""
    here = Counter(places.values())
    around = {place[:end] for place in here for end in range(len(place))}

    def met(place: tuple[Hashable, ...]) -> bool:
        return here[place] > 1 or place in around or any(place[:end] in here for end in range(len(place)))

    return {name for name, place in places.items() if met(place)}


def news(observed: Observation, last: Observation | None, bound: Bound) -> bool:
    """Whether an observation says anything new compared with the last one and with the bindings."""
    return (
        last is None
        or observed.more
        or bool(observed.taken_back)
        or observed.upper.sealed
        or observed.upper != bound.frontier
        or observed.upper != last.upper
        or observed.lower != last.lower
        or observed.identity != last.identity
        or observed.details != last.details
        or observed.schema != last.schema
        or (observed.state is not None and observed.state != bound.state)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepSetup:
    """What the operator works with.

    readers: where each source's reader hears its news. pushed: the answers of sources that know at once how far they
    are. scouts: of sources whose records are gone through for further columns before they are bound; each takes what
    its source was told and what it said. answers: where the remap operator hears of answers without news. going:
    whether to ask any source; called in all threads. attendants: of the sources that have one.
    """

    sources: Mapping[str, Source]
    readers: Mapping[str, EventQueue]
    pushed: Mapping[str, Callable[[int, Bound], Answer]]
    answers: EventQueue
    env: Env
    spawn: Spawn
    going: Callable[[], bool]
    scouts: Mapping[str, Scout] = field(default_factory=dict)
    attendants: Mapping[str, Attendant] = field(default_factory=dict)


def sweep(asked: Stream[Asking], setup: SweepSetup) -> None:
    """Build the operator. To each `Asking` there is one `Answer` of each source that it names."""
    builder = OperatorBuilder(asked.scope, "sweep")
    builder.input(asked)
    builder.build(lambda context: _Sweep(context, setup).step, notify=False)


@dataclass(slots=True, eq=False)
class _Asked:
    """A source, and the state of asking it. number: the look that it answers next. at: when that began. bound: the
    knowledge it is given. last: its last answer, which the remap operator may not have received yet.

    Threads read what it is told, and write nothing.
    """

    name: str
    source: Source
    looks: Source | Attendant
    clock: FromTime
    bound: Bound
    at: datetime
    scout: Scout | None = None
    number: int = 0
    last: Observation | None = None
    busy: bool = False
    slow: bool = False
    stalled: TidegaugeError | None = None
    attempt: int = 0
    quiet_until: float = float("-inf")

    def resting(self, now: float) -> bool:
        """Whether it is not to be asked at present, or never again."""
        return self.stalled is not None and (isinstance(self.stalled, Definite) or now < self.quiet_until)

    def again(self) -> Answer:
        """Return its last error as its answer."""
        return Answer(self.name, self.number, error=self.stalled, attempt=self.attempt)

    def probed(self) -> tuple[Bound, Observation | BaseException]:
        """Ask it, in the thread that has taken it; return what it was told as well."""
        told = self.bound
        try:
            said = checked_observation(self.name, self.clock, told, self.looks.probe(told, now=self.at))
            return told, said if self.scout is None else self.scout(told, said)
        except BaseException as error:  # noqa: BLE001 - it is the worker's to raise
            return told, error


class _Sweep:
    """The operator's state. What threads touch is `line`, `at_work` and `heard`, one atomic step at a time."""

    def __init__(self, context: OperatorContext, setup: SweepSetup) -> None:
        now = setup.env.now()
        self.setup = setup
        self.activator = context.activator
        self.wake = context.sync_activator()
        self.asked = {
            name: _Asked(
                name,
                setup.sources[name],
                setup.attendants.get(name, setup.sources[name]),
                from_time_of(setup.sources[name]),
                _NOTHING_TOLD,
                now,
                setup.scouts.get(name),
            )
            for name in setup.readers
        }
        self.meeting = meeting(
            {name: one.source.looks_at for name, one in self.asked.items() if isinstance(one.source, Overlapping)}
        )
        self.line: deque[_Asked] = deque()
        self.at_work: set[_Asked] = set()
        self.heard: deque[tuple[_Asked, Bound, Observation | BaseException, float]] = deque()
        self.threads: list[Future[Any]] = []
        self.before: set[_Asked] = set()
        self.done = 0
        self.looked_at = float("-inf")

    def step(self, inputs: list[OperatorInput], _outputs: list[OperatorOutput]) -> None:
        """Take in the sources to ask, pass on the answers, and see to it that none waits behind a slow one."""
        quiet: list[Answer] = []
        for _capability, batch in inputs[0].drain():
            for asking in batch:
                self.begin(asking, quiet)
        self.hear(quiet)
        if quiet:
            self.setup.answers.append(Messages((), quiet))
        self.tend()

    def begin(self, asking: Asking, quiet: list[Answer]) -> None:
        """Let the sources stand in line, with a thread for each that is slow and one for all others."""
        now, at, slow = self.setup.env.monotonic(), self.setup.env.now(), 0
        findings = Findings(lock=self.setup.env.lock, clock=self.setup.env.monotonic)
        for name, bound in asking.bounds.items():
            if (pushed := self.setup.pushed.get(name)) is not None:
                quiet.append(pushed(asking.number, bound))
                continue
            asked = self.asked[name]
            if name in self.meeting:
                told = replace(bound, last=asked.last, findings=findings.beside())
            else:
                told = bound if bound.last is asked.last else replace(bound, last=asked.last)
            asked.number, asked.bound, asked.at = asking.number, told, at
            if asked.busy:  # late: it answers this look
                continue
            if asked.resting(now):
                quiet.append(asked.again())
                continue
            asked.busy = True
            slow += asked.slow
            self.line.append(asked)
        self.looked_at, self.before, self.done = now, set(), 0
        self.start(min(len(self.line), 1 + slow))

    def start(self, count: int) -> None:
        """Put this number of threads to work."""
        for _ in range(count):
            self.threads.append(self.setup.spawn(self.work))

    def work(self) -> None:
        """Ask one after the other, in a thread, until nobody stands in line."""
        clock = self.setup.env.monotonic
        begun = clock()
        while self.setup.going():
            try:
                asked = self.line.popleft()
            except IndexError:
                break
            self.at_work.add(asked)
            told, said = asked.probed()
            self.at_work.discard(asked)
            ended = clock()
            waited = 0.0 if told.findings is None else told.findings.waited
            self.heard.append((asked, told, said, ended - begun - waited))
            begun = ended
        self.wake.activate()

    def hear(self, quiet: list[Answer]) -> None:
        """Take in the answers: news goes to the readers."""
        for _ in range(len(self.heard)):
            self.done += 1
            asked, told, said, seconds = self.heard.popleft()
            asked.busy, asked.bound = False, _NOTHING_TOLD
            asked.slow = seconds > SLOW and asked.looks is asked.source
            if isinstance(said, BaseException):
                self.tell(asked, self.failed(asked, said))
                continue
            new = news(said, asked.last, told)
            asked.last, asked.stalled, asked.attempt = said, None, 0
            answer = Answer(asked.name, asked.number, observed=said)
            if new:
                self.tell(asked, answer)
            else:
                quiet.append(answer)

    def failed(self, asked: _Asked, error: BaseException) -> Answer | BaseException:
        """Let a source that did not answer rest. Its reader raises any other error."""
        if not isinstance(error, TidegaugeError | OSError):
            return error
        asked.stalled = (
            error
            if isinstance(error, TidegaugeError)
            else SourceUnreachable(source=asked.name, error=type(error).__name__, detail=str(error))
        )
        asked.attempt += 1
        asked.quiet_until = self.setup.env.monotonic() + backoff(asked.attempt)
        return asked.again()

    def tell(self, asked: _Asked, said: Answer | BaseException) -> None:
        self.setup.readers[asked.name].append(Messages((), [said]))

    def tend(self) -> None:
        """Add threads where sources wait behind slow ones, and look again soon."""
        for thread in self.threads:
            if thread.done():
                thread.result()
        self.threads = [thread for thread in self.threads if not thread.done()]
        if not self.line or not self.setup.going():
            return
        now, at_work = self.setup.env.monotonic(), self.at_work.copy()
        if (seconds := now - self.looked_at) >= LAPSE:
            line, threads, stuck = len(self.line), len(self.threads), len(at_work & self.before)
            self.start(more(waiting=line, threads=threads, stuck=stuck, done=self.done, seconds=seconds))
            self.looked_at, self.before, self.done = now, at_work, 0
        self.activator.activate_after(LAPSE)
