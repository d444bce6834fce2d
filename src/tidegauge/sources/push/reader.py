"""The reader of a push source: its one connection, what came of it, and what remap and upstream are told.

It lives in the scope of its source, where times are frontiers of that source. It holds the capability of the frontier
that it has reached, so the scope's own frontier says which records have come, and becomes empty only when the source
said that it is sealed (law 5). One call at a time runs beside the worker: it connects where there is no connection,
acknowledges, and receives. The reader asks for no more than there is room for.

A run that ends when it has caught up loses no time at its end: the first time that everything up to upstream's end
has come, the reader asks for the look that binds it (`hurry`), and calls wait for next to nothing while that is so.
What comes later waits for the tick, or each arrival would make an epoch where something else keeps the run going.

A connection that breaks costs no record and doubles none, because each receipt ends at a frontier: the next
connection begins there. What upstream was told last may not have come to it: the next connection tells it again.

    Received                 -> checked (`law`), given, and the capability downgraded to its frontier
    nothing                  -> received again
    Transient, OSError       -> closed; after a growing delay connected again from the frontier reached
    Definite                 -> the source has failed; epochs that are not whole fail where they are planned
    either, `of_start`       -> where others of its outputs lack less, those that lack it fail, and the others go on

Nothing is acknowledged before a call on the connection has passed the checks: an upstream that was restored from an
older backup would delete what it appended since.

The remap operator asks how far the source is, by the sweep, as it asks any source. The reader answers at once, in the
worker's thread: `answer`. Where records have columns that the source does not have yet, the answer says so, and the
flow is opened anew before they are bound (`flow.columns`): as for sources that are scouted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegauge.dataflow import EventQueue, OperatorBuilder, OperatorContext, OperatorOutput, Scope, Stream
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.push import NothingReceived
from tidegauge.errors.running import SourceUnreachable, UpstreamRecreated
from tidegauge.reclock.room import Room
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.mint import checked_observation
from tidegauge.remap.round import Answer
from tidegauge.sources.push.law import AT_ONCE, lawful, still_there
from tidegauge.sources.push.pieces import MEMORY, Pieces
from tidegauge.sources.push.protocol import ConnectsAlone, DecodedLater, Received, Subscription
from tidegauge.sources.push.source import PushedSource, StreamRows, joined_columns
from tidegauge.sources.reader import Owed
from tidegauge.sources.sweep import backoff

__all__ = ["WAIT", "PushReader", "push_reader"]

SIZE: Final = 16 << 20
"""Bytes that one call is to give at most, by the mean size of the records before."""
WAIT: Final = 0.2
"""Seconds that one call waits for news. A stop waits for it too."""
LONG: Final = 1.0
"""Seconds after which it is worth saying that nothing is received because outputs lack too much."""
SILENT: Final = 5.0
"""Seconds after which it is worth saying that a call has not come back."""
STEADY: Final = 10.0
"""Seconds after which a connection that gave nothing new counts as a good one: delays begin anew after it."""
_PAUSE: Final = 0.02
"""Seconds between two calls when the first had nothing."""
_BRIEFLY: Final = 0.02
"""Seconds that one call waits for news where a run is about to end, which waits for the call to return."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PushSetup:
    """What a reader works with.

    start: where it begins. bound: the durable knowledge about the source. mints: whether new records are
    bound; otherwise the source is read up to the bound frontier. confirm: raises when this driver is no longer to
    acknowledge. going: whether to receive anything. left_behind: hears that upstream no longer has `start`, and says
    whether other outputs go on without those that lack it; the reader is over then. takes_on: whether
    outputs take further columns on. passed_over: those that were found before, where some are not taken on. hurry:
    asks for a look at once; None where the run goes on when it has caught up.
    """

    name: str
    source: PushedSource
    pieces: Pieces
    room: Room
    start: Frontier
    bound: Callable[[], Bound]
    mints: bool
    acknowledgements: EventQueue
    confirm: Callable[[], None]
    env: Env
    spawn: Spawn
    going: Callable[[], bool]
    left_behind: Callable[[TidegaugeError], bool]
    takes_on: bool = False
    passed_over: pa.Schema | None = None
    hurry: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    """What one call came to: what it received, whether it acknowledged, and why upstream did not take that."""

    received: Received | None = None
    told: bool = False
    refused: Exception | None = None


class PushReader:
    """The reader's state. All of it can be lost: a run begins from the bindings and the tables."""

    def __init__(self, setup: PushSetup) -> None:
        self.setup: Final = setup
        self.reached = setup.start
        self.end: Frontier | None = None
        self.identity = ""
        self.error: TidegaugeError | None = None
        self.attempt = 0
        self._streams: Final = setup.source.source.streams
        self._raw: Final = isinstance(setup.source.source, DecodedLater)
        self._subscription: Subscription | None = None
        self._call: Future[_Done] | None = None
        self._connected = False
        self._asking = False
        self._granted = 0
        self._current = self._hurried = False
        self._over = False
        self._owed: Final = Owed()
        self._call_at = float("-inf")
        self._called_at = self._joined_at = 0.0
        self._full_at = 0.0
        self._mean = 1024.0
        self._full = ""
        self._further: pa.Schema | None = None
        """The columns of all streams, where records told of others than are known."""
        self._awaits = False
        self._hindered: TidegaugeError | None = None

    # What others ask, in the worker's thread.

    def answer(self, number: int, bound: Bound) -> Answer:
        """Answer to a look: how far the source has come, or why it does not come further."""
        name, source = self.setup.name, self.setup.source
        if self.error is not None:
            return Answer(name, number, error=self.error, attempt=self.attempt)
        upper = bound.frontier.join(self.reached)
        observed = Observation(
            at=self.setup.env.now(),
            upper=upper,
            end=upper if self.end is None or self._awaits else upper.join(self.end),  # not behind, but without a seal
            more=self.end is None and bool(self._full),  # room comes from binding: not to be waited for
            coming=not self._current,
            identity=self.identity,
            schema=source.schema if bound.schema is None else self._further,
            note=self._full or ("" if self.identity or self._connected else "waiting for a connection"),
        )
        try:
            checked = checked_observation(name, source.from_time, bound, observed)
        except TidegaugeError as error:
            return Answer(name, number, error=error, attempt=1)
        why = self._held_up()
        return Answer(name, number, checked, NothingReceived(source=name, why=why) if why else self._hindered)

    def _held_up(self) -> str:
        """Return why nothing has been received for long, "" if the source goes on or waits for its next epoch."""
        now = self.setup.env.monotonic()
        if self._call is not None and now - self._called_at > SILENT:
            return "a call to upstream has not come back"
        return self._full if self.setup.pieces.full and now - self._full_at > LONG else ""

    @property
    def _at_end(self) -> bool:
        """Whether everything has come, up to an end that upstream tells."""
        return self._current and (self.end is not None or self.reached.sealed)

    @property
    def busy(self) -> bool:
        """Whether a call is under way, or upstream is about to be told something."""
        if self._call is not None:
            return True
        owes = self._owed.frontier is not None and self._subscription is not None and not self._owed.refusals
        return owes and self.setup.pieces.failed is None

    def close(self) -> None:
        """Close the connection; where a call is under way, as soon as that is over, which nobody waits for."""
        self._over = True
        if self._call is not None:
            self._call.add_done_callback(lambda _call: self._disconnect())
        else:
            self._disconnect()

    # The operator.

    def build(self, context: OperatorContext) -> Callable[[list[Any], list[OperatorOutput]], None]:
        """Begin at `start`, and be woken by everything that may let it go on."""
        setup = self.setup
        self._held = context.capabilities[0]
        self._held.downgrade(setup.start)
        if setup.start.sealed:
            self._held.drop()
        self._activator = context.activator
        self._wake = context.sync_activator()
        setup.acknowledgements.attach(self._wake)
        setup.room.attach(self._wake)
        setup.pieces.attach(self._wake.activate)
        return self._step

    def _step(self, _inputs: list[Any], outputs: list[OperatorOutput]) -> None:
        self._owed.hear(self.setup.acknowledgements)
        if self._call is not None:
            if not self._call.done():
                return
            call, self._call = self._call, None
            self._hear(call, outputs[0])
        self._begin()

    def _begin(self) -> None:
        """Begin the next call, if there is anything to do and nothing is to be waited for."""
        setup, now = self.setup, self.setup.env.monotonic()
        if self._over or setup.pieces.failed is not None:
            return
        if (rest := self._call_at - now) > 0:
            self._activator.activate_after(rest)
            return
        owed = None if self._subscription is None else self._owed.due(now)
        limit = self._limit() if setup.going() else 0
        if self._subscription is None and not limit:
            return
        if not limit and owed is None:
            return
        bound = setup.bound()
        seconds = _BRIEFLY if self._at_end and setup.hurry is not None else WAIT
        self._asking, self._called_at = limit > 0, now
        if self._subscription is None:
            self._joined_at = now
        self._call = setup.spawn(lambda: self._work(bound, limit, seconds, owed))
        self._call.add_done_callback(lambda _call: self._wake.activate())

    def _limit(self) -> int:
        """Return how many records to ask for, 0 for none at present. Room for them is reserved by then."""
        setup = self.setup
        frontier = setup.bound().frontier
        if not self._held.held or (not setup.mints and frontier.less_equal(self.reached)):
            return 0
        before, self._full = self._full, self._filled()
        if not before:
            self._full_at = setup.env.monotonic()
        return 0 if self._full else max(1, min(AT_ONCE, int(SIZE / self._mean)))

    def _filled(self) -> str:
        """Return why there is no room for another call, "" where there is: it is reserved by then."""
        pieces, room = self.setup.pieces, self.setup.room
        if pieces.full:
            return f"{pieces.total} bytes wait for outputs that lack them: nothing is received until these go on"
        self._granted += room.reserve(2 * AT_ONCE - self._granted)  # a part is kept, and the rest awaited
        if (room.held - self._granted) * self._mean > MEMORY:
            self._activator.activate_after(_PAUSE)
        elif self._granted == 2 * AT_ONCE:
            return ""
        return f"{room.held - self._granted} records wait for their epoch: nothing is received until they have it"

    def _work(self, bound: Bound, limit: int, seconds: float, owed: Frontier | None) -> _Done:
        """Connect, acknowledge and receive, as far as each is due. Runs beside the worker."""
        setup = self.setup
        if limit:
            setup.pieces.relieve()  # first: what comes next needs the memory
        if self._subscription is None:
            subscription = self._subscription = self._connection(bound)
            known, found = bound.identity or self.identity, subscription.identity
            if known and found and known != found:
                raise UpstreamRecreated(source=setup.name, known=known, found=found)
        refused: Exception | None = None
        if owed is not None:
            try:
                with setup.env.effect("acknowledge"):
                    setup.confirm()  # right before: upstream may delete what it is told of
                    self._subscription.acknowledge(owed)
            except (OSError, Transient) as error:
                refused = error
        received = self._subscription.receive(limit, seconds) if limit else None
        return _Done(received, told=owed is not None, refused=refused)

    def _connection(self, bound: Bound) -> Subscription:
        source, confirm = self.setup.source.source, self.setup.confirm
        if isinstance(source, ConnectsAlone):
            return source.connect_alone(self.reached, bound, confirm)
        return source.connect(self.reached, bound)

    def _hear(self, call: Future[_Done], output: OperatorOutput) -> None:
        """Take in what a call came to."""
        setup = self.setup
        try:
            done = call.result()
            if done.received is not None:
                self._still_there(done.received)
                lawful(setup.name, self._streams, self.reached, done.received, raw=self._raw)
        except Definite as error:
            self._disconnect()
            if self._leaves_behind(error):
                return
            self.error = error
            setup.pieces.fail(error)
            return
        except (OSError, Transient) as error:
            self._disconnect()
            if self._leaves_behind(error):
                return
            self._owed.again()
            self._current = False
            self.attempt += 1
            self._call_at = setup.env.monotonic() + backoff(self.attempt)
            self._activator.activate_after(backoff(self.attempt))
            detail = SourceUnreachable(source=setup.name, error=type(error).__name__, detail=str(error))
            self.error = error if isinstance(error, TidegaugeError) else detail
            return
        self.error = None
        news = done.received is not None and (done.received.rows or done.received.frontier != self.reached)
        if news or setup.env.monotonic() - self._joined_at > STEADY:
            self.attempt = 0
        if self._subscription is not None:
            self.identity = self._subscription.identity
            self._connected = True
        self._told(done)
        if done.received is not None:
            self._give(done.received, output)
        elif self._asking:
            self._current = not self._awaits and (self.end is None or self.end.less_equal(self.reached))
            self._call_at = setup.env.monotonic() + _PAUSE
            self._activator.activate_after(_PAUSE)
        if self._at_end and not self._hurried and setup.hurry is not None:
            self._hurried = True
            setup.hurry()

    def _leaves_behind(self, error: Exception) -> bool:
        """Whether the flow goes on without the outputs that need `start`: then this reader has nothing to do."""
        if not isinstance(error, TidegaugeError) or not error.of_start or self._connected:
            return False
        self._over = self.setup.left_behind(error)
        return self._over

    def _told(self, done: _Done) -> None:
        """Take in whether upstream took the acknowledgement: if not, it is told again, late."""
        if done.refused is not None:
            self._activator.activate_after(self._owed.refused(self.setup.env.monotonic()))
        elif done.told:
            self._owed.taken()

    def _still_there(self, received: Received) -> None:
        """Raise where upstream has no longer what it had."""
        if isinstance(received, Received) and isinstance(received.end, Frontier):
            shown = self.reached if self.end is None else self.end
            still_there(self.setup.name, self.setup.bound().frontier, shown, received.end)

    def _give(self, received: Received, output: OperatorOutput) -> None:
        """Give the received records, and come to their frontier."""
        size = 0
        for stream, batch in received.batches:
            if batch.num_rows:
                size += batch.nbytes
                output.give(self._held, StreamRows(stream, batch))
        self._granted -= received.rows  # it is for the reclock operator to release
        if received.rows:
            self._mean = 0.5 * self._mean + 0.5 * size / received.rows
        self.reached = received.frontier
        self._further = self._others(received)
        if received.end is not None:
            self.end = received.end
        elif self.end is not None:  # what it has shown stays in mind
            self.end = self.end.join(self.reached)
        self._awaits, self._hindered = received.awaits, received.hindered
        self._current = not self._awaits and self.end is not None and self.end.less_equal(self.reached)
        # Behind the records: nothing that is given later lies before it.
        if self.reached.sealed:
            self._current = True
            self._held.drop()
        else:
            self._held.downgrade(self.reached)

    def _others(self, received: Received) -> pa.Schema | None:
        """Return the columns of all streams, where records have others than are known; None where not."""
        if not self.setup.takes_on or not received.further:
            return None
        known = self.setup.passed_over or self.setup.bound().schema
        if known is None:
            return None
        found = joined_columns(known, received.further)
        return None if found.equals(known) else found

    def _disconnect(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(Exception):  # it is broken, or over
                subscription.close()


def push_reader(scope: Scope, reader: PushReader) -> Stream[StreamRows]:
    """Build the operator of a reader. Its output carries the records, at the frontier before they came."""
    builder = OperatorBuilder(scope, f"reader {reader.setup.name}")
    rows: Stream[StreamRows] = builder.output()
    builder.build(reader.build)
    return rows
