"""Following an output: its rows as of an epoch, then what each later epoch changes, as Arrow batches.

    snapshot     the rows as of `as_of`, all with that epoch
    changes      of each later epoch, in order, once it is published and the output holds it
    progress     with `progress=True`: a row says that nothing below its `_epoch` is coming any more

That is Materialize's SUBSCRIBE. Epochs never go back. A subscriber that stops and goes on with
`as_of=<last progress> - 1, snapshot=False` misses nothing and gets nothing twice.

*Sharing.* The subscribers of one output have one `ChangeFeed`: the store is asked once for all of them, and each
stretch of epochs is read and consolidated once. It keeps the newest ones, so a subscriber that is far behind reads
again by itself. It also keeps the flow's bindings, and reads those that are new: an epoch costs the same however many
came before it.

Invariants. What a subscriber got up to a progress of `e` adds up to the table as of `e - 1`, whatever dies, is
maintained or is restarted meanwhile. An epoch is delivered whole, in consecutive batches, or not at all. A
subscriber that has rows of one history gets none of another: a store put back, or a table made again, is an error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, RLock
from types import TracebackType
from typing import Final, Literal, Self

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import FlowNeverRan, NotPublished, OutputHasFailed
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.readers import CheckpointAhead, CheckpointOfAnother, KeyNotGiven, SubscribedFromNowhere
from tidegauge.flow.spec import FlowSpec
from tidegauge.looking.asof import AsOf
from tidegauge.looking.changes import DIFF, changes, counted, state
from tidegauge.looking.datasource.offsets import Offset
from tidegauge.looking.envelopes import Enveloping, befores_and_afters, upserts
from tidegauge.looking.inspect import opened
from tidegauge.looking.view import viewed
from tidegauge.looking.waiting import naps
from tidegauge.remap.store import FlowRecord, Loaded, Store
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.protocol import Applying

__all__ = ["PROGRESSED", "ChangeFeed", "Subscriber"]

PROGRESSED: Final = "_progressed"

_ROWS: Final = 65_536
"""How many rows a batch has at most."""
_STRETCH: Final = 64
"""How many epochs are read at once at most."""
_KEPT: Final = 64 << 20
"""How many bytes of changes are kept for the subscribers that come later."""
_SOONEST: Final = 0.02
_SLOWEST: Final = 0.2
"""Seconds between two looks: after something came, and after nothing came for a while."""


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far an output can be followed: the epochs below `upper`.

    over: why no later ones come: an error, or True for the end of its source. None while they may.
    """

    upper: int
    over: TidegaugeError | Literal[True] | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Changes, with the place in the output's history behind which they come, and the one up to which they go."""

    after: Offset
    upto: Offset
    rows: pa.Table


class ChangeFeed:
    """What the subscribers of one output share. All of it in any thread."""

    def __init__(self, flow: FlowSpec, output: str, *, env: Env) -> None:
        self.flow: Final = flow
        self.output: Final = output
        self.reads = 0
        """How many stretches and snapshots were read."""
        self._env: Final = env
        self._lock: Final = RLock()
        self._kept: OrderedDict[tuple[bool, int], Stretch] = OrderedDict()
        self._flow: FlowRecord | None = None
        self._loaded: Loaded | None = None
        self._open: tuple[Store, Loaded | None] | None = None
        """The store while it is open, and what this look at it has loaded."""
        self._standing = _Reach(0)
        self._proved: Final = set[Offset]()
        """Places of the history that was seen last."""
        self._naps = naps(_SOONEST, _SLOWEST)
        self._due = env.monotonic()
        sink = flow.output(output).sink
        self._by_key: Final = isinstance(sink, Applying) and sink.applies

    def standing(self, reached: Offset | None = None, *, up_to: int | None = None) -> tuple[_Reach, float]:
        """Return how far the output can be followed, and in how many seconds to ask again if that is not enough.

        That is when somebody looks for all who ask. reached: the place behind which `changes` are wanted next, which
        are read in the same look if they are there. Raises what reading them raises.
        """
        with self._lock:
            if self._env.monotonic() >= self._due:
                before = self._standing
                try:
                    with self._opened() as store:
                        self._look(store)
                        if self._standing != before:
                            self._naps = naps(_SOONEST, _SLOWEST)
                        self._due = self._env.monotonic() + next(self._naps)
                        if reached is not None and self._standing.upper > reached.epoch:
                            self.changes(reached, min(self._standing.upper, up_to or self._standing.upper))
                except FlowNeverRan:
                    self._standing = _Reach(0)
                    self._due = self._env.monotonic() + next(self._naps)
            return self._standing, max(0.0, self._due - self._env.monotonic())

    def _look(self, store: Store) -> None:
        """Look at the output, unless nothing was published since all that is published was seen."""
        now = store.flow(self.flow.name)
        if now is None or now != self._flow or self._standing.upper != now.published:
            loaded = self._load(store)
            self._flow, self._standing = loaded.flow, self._stands(store, loaded)
            self._proved.clear()

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        """Open the store, once for all that a look does, under the lock."""
        if self._open is not None:
            yield self._open[0]
            return
        try:
            with opened(self.flow, self._env) as store:
                self._open = store, None
                yield store
        finally:
            self._open = None

    def _load(self, store: Store) -> Loaded:
        """Load the flow once a look, reading its new bindings alone."""
        loaded = None if self._open is None else self._open[1]
        if loaded is None:
            loaded = self._loaded = store.load_tables(self.flow.name, self._loaded)
            self._open = store, loaded
        return loaded

    def _stands(self, store: Store, loaded: Loaded) -> _Reach:
        try:
            upper = viewed(self.flow, self.output, None, store=store, loaded=loaded).epoch + 1
        except NotPublished:
            return _Reach(0)
        source = loaded.sources[self.flow.outputs[self.output].source]
        known = loaded.outputs[self.output]
        for failure in (source.failure, known.failure):
            if failure is not None and upper >= failure[0]:
                epoch, error = failure
                failed = OutputHasFailed(output=self.output, epoch=epoch, as_of=upper, detail=error.summary)
                return _Reach(upper, failed)
        sealed = source.table.sealed_at
        return _Reach(upper, True if sealed is not None and sealed < upper else None)

    def resolve(self, as_of: AsOf) -> tuple[int, pa.Table]:
        """Return the epoch that is meant, and no rows, with the columns that changes have there.

        Raises what `read_arrow` raises, such as `NotPublished` for an epoch that is to come.
        """
        with self._lock, self._opened() as store:
            positions = isinstance(as_of, Mapping)  # partitions are given by what is known of them
            loaded = store.load(self.flow.name) if positions else self._load(store)
            view = viewed(self.flow, self.output, as_of, store=store, loaded=loaded)
            return view.epoch, counted(view.schema.empty_table(), None, 1)

    def prove(self, offset: Offset) -> None:
        """See that a place is one of the present history, once after each look that found something.

        Raises `CheckpointOfAnother`, and `CheckpointAhead` for one that is not published.
        """
        with self._lock:
            published = 0 if self._flow is None else self._flow.published
            if offset.epoch > published:
                raise CheckpointAhead(epoch=offset.epoch, output=self.output, upper=published)
            self._compare(offset, self._now(offset))

    def snapshot(self, epoch: int) -> Stretch:
        """Return the rows as of an epoch, as a change of it."""
        return self._read(
            (True, epoch),
            epoch + 1,
            lambda store, loaded: state(self.flow, self.output, epoch, store=store, loaded=loaded),
        )

    def changes(self, after: Offset, upper: int) -> Stretch:
        """Return the changes from an epoch on, up to `upper` or one below it. Raises `CheckpointOfAnother`."""
        lower = after.epoch
        end = upper if self._by_key else min(upper, (lower // _STRETCH + 1) * _STRETCH)
        with self._lock:
            if (found := self._kept.get((False, lower))) is not None and found.upto.epoch > upper:
                del self._kept[False, lower]  # somebody asked for more at once
            stretch = self._read(
                (False, lower),
                end,
                lambda store, loaded: changes(self.flow, self.output, lower, end, store=store, loaded=loaded),
            )
            self._compare(after, stretch.after)
            return stretch

    def _read(self, key: tuple[bool, int], end: int, read: Callable[[Store, Loaded], pa.Table]) -> Stretch:
        """Return changes that are kept, or read them and keep them."""
        with self._lock:
            found = self._kept.get(key)
            if found is None or found.upto.unlike(self._now(found.upto)) is not None:
                with self._opened() as store:
                    rows = read(store, self._load(store))
                    after, upto = self._offsets(store, key[1], end)
                    found = Stretch(after, upto, rows)
                    self._proved.update((after, upto))
                self.reads += 1
                self._kept[key] = found
                while sum(one.rows.nbytes for one in self._kept.values()) > _KEPT and len(self._kept) > 1:
                    self._kept.popitem(last=False)
            return found

    def _now(self, offset: Offset) -> Offset:
        """Return the same epoch in the present history: the place itself, if that was seen to be one of it."""
        if offset in self._proved:
            return offset
        with self._opened() as store:
            return self._offsets(store, offset.epoch)[0]

    def _offsets(self, store: Store, *epochs: int) -> list[Offset]:
        """Return epochs, with what tells the store, the table and the history up to each from others."""
        loaded = self._load(store)
        table = viewed(self.flow, self.output, None, store=store, loaded=loaded).table
        digests = store.digests(self.flow.name, epochs)
        return [Offset.of(one, loaded.flow.incarnation, table, digests.get(one, "")) for one in epochs]

    def _compare(self, was: Offset, now: Offset) -> None:
        """Raise `CheckpointOfAnother` unless a place is one of the present history."""
        if (unlike := was.unlike(now)) is not None:
            what, told, found = unlike
            raise CheckpointOfAnother(epoch=was.epoch, what=what, output=self.output, was=told, now=found)
        self._proved.add(was)


class Subscriber:
    """An iterator of what one subscriber gets. `close` it, or leave its `with` block, from any thread, to end it.

    Raises, where an output cannot be followed further, what stands in the way.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        *,
        as_of: AsOf,
        up_to: int | None,
        snapshot: bool,
        progress: bool,
        envelope: Enveloping | None,
        key: str | Sequence[str] | None,
    ) -> None:
        if up_to is not None and (isinstance(up_to, bool) or not isinstance(up_to, int) or up_to < 0):
            raise InvalidArgument(parameter="up_to", value=up_to, expected="an epoch, or None")
        if envelope not in (None, "upsert", "debezium"):
            raise InvalidArgument(parameter="envelope", value=envelope, expected='"upsert", "debezium" or None')
        if envelope is None and key is not None:
            raise InvalidArgument(parameter="key", value=key, expected="an envelope that it goes with")
        if isinstance(as_of, int) and not isinstance(as_of, bool):
            if as_of < 0:
                raise InvalidArgument(parameter="as_of", value=as_of, expected="an epoch")
            self._check_order(feed, as_of, up_to)
        self.feed: Final = feed
        self._as_of: Final = as_of
        self._up_to: Final = up_to
        self._snapshot: Final = snapshot
        self._progress: Final = progress
        self._envelope: Final = envelope
        self._key: Final = tuple([key] if isinstance(key, str) else key or ())
        self._closed: Final = Event()
        self._batches: Final = self._run()
        if envelope is not None and not self._key:
            raise KeyNotGiven(output=feed.output, envelope=envelope, key=key, known="those of its rows")

    @staticmethod
    def _check_order(feed: ChangeFeed, as_of: int, up_to: int | None) -> None:
        if up_to is not None and up_to < as_of:
            raise SubscribedFromNowhere(output=feed.output, as_of=as_of, up_to=up_to)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it: a thread that waits for its next batch gets none."""
        self._closed.set()

    def _run(self) -> Iterator[pa.RecordBatch]:
        if (begin := self._start()) is None:
            return
        start, rows = begin
        self._check_order(self.feed, start, self._up_to)
        yield from self._progressed(start, rows)
        if self._up_to == start:
            return
        reached = Offset(start + 1)
        if self._snapshot:
            stretch = self.feed.snapshot(start)
            reached, rows = stretch.upto, stretch.rows
            yield from self._batched(rows)
        yield from self._progressed(reached.epoch, rows)
        while self._up_to is None or reached.epoch < self._up_to:
            if (upper := self._beyond(reached.epoch, reached)) is None:
                return
            stretch = self.feed.changes(reached, upper if self._up_to is None else min(upper, self._up_to))
            reached = stretch.upto
            yield from self._batched(stretch.rows)
            yield from self._progressed(reached.epoch, stretch.rows)

    def _start(self) -> tuple[int, pa.Table] | None:
        """Wait for the epoch to begin with; None when it never comes."""
        epoch = self._as_of if isinstance(self._as_of, int) and not isinstance(self._as_of, bool) else 0
        return None if self._beyond(epoch) is None else self.feed.resolve(self._as_of)

    def _beyond(self, epoch: int, reached: Offset | None = None) -> int | None:
        """Wait until an epoch is there, and return the first one that is not; None when it never comes.

        reached: where its changes are wanted then: the place behind which they come.
        """
        while True:
            standing, pause = self.feed.standing(reached, up_to=self._up_to)
            if self._closed.is_set():
                return None
            if standing.upper > epoch:
                return standing.upper
            if reached is not None and reached.incarnation:
                self.feed.prove(reached)
            if isinstance(standing.over, TidegaugeError):
                raise standing.over
            if standing.over or self._closed.wait(pause):
                return None

    def _batched(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        if not self._closed.is_set():
            yield from self._shaped(rows, progressed=False).combine_chunks().to_batches(max_chunksize=_ROWS)

    def _progressed(self, epoch: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Say that nothing below an epoch is coming any more, in the columns that rows have."""
        if self._progress:
            schema = self._shaped(rows.slice(0, 0), progressed=True).schema
            said = {EPOCH: epoch, PROGRESSED: True}
            yield pa.record_batch([pa.array([said.get(field.name)], field.type) for field in schema], schema=schema)

    def _shaped(self, rows: pa.Table, *, progressed: bool) -> pa.Table:
        """Return rows as the subscriber wants them."""
        if self._envelope is not None:
            known = [name for name in rows.column_names if name not in (EPOCH, DIFF)]
            if not set(self._key) <= set(known):
                raise KeyNotGiven(output=self.feed.output, envelope=self._envelope, key=self._key, known=known)
            rows = (upserts if self._envelope == "upsert" else befores_and_afters)(rows, self._key)
        if self._progress:
            rows = rows.add_column(1, PROGRESSED, pa.array([progressed] * rows.num_rows, pa.bool_()))
        return rows
