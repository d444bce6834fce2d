"""An output as a query of Structured Streaming follows it: how far it can be had, and which portions a batch has.

    latest       the offset up to which a batch goes that begins at another one
    portions     what its tasks read

The store is asked at most five times a second, and its table only when the flow has published something; each answer
is of a look that began after the question.

Invariants. Only published epochs that the output holds are given. The portions of two offsets are the same rows
whenever, and however often, they are asked for; where that cannot be so any more, it is an error, never fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.types import StructType

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import NotPublished, OutputHasFailed
from tidegauge.errors.readers import ChangesNotAskedFor, ChangesUnknown, CheckpointAhead, CheckpointOfAnother
from tidegauge.errors.sinks import EpochReplaced
from tidegauge.errors.store import EpochBelowSince
from tidegauge.looking.changes import differences
from tidegauge.looking.datasource.columns import check_columns
from tidegauge.looking.datasource.offsets import LATEST, Offset, capped
from tidegauge.looking.datasource.options import Options
from tidegauge.looking.datasource.portions import DifferencePortion, TaskPortion, of_view
from tidegauge.looking.datasource.stored import StoredOutput, found, looking, stored
from tidegauge.looking.view import View
from tidegauge.remap.store import FlowRecord

__all__ = ["FollowedOutput"]

_PAUSE: Final = 0.2
"""Seconds between the beginnings of two looks."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look found: the flow, how far the output can be had, and why no more of it comes, if that is known."""

    flow: FlowRecord
    upper: Offset
    by_key: bool
    failure: TidegaugeError | None = None


class FollowedOutput:
    """One output for one query, in the process that plans its batches. It keeps nothing open."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options: Final = options
        self._schema: Final = schema
        self._seen: _Seen | None = None
        self._due = 0.0
        self._end: Offset | None = None
        self._proved: Offset | None = None

    @property
    def initial(self) -> dict[str, Any]:
        """Where a new query begins. It is the same whenever it is asked for."""
        match self._options.starting:
            case "latest":
                return dict(LATEST)
            case "earliest":
                return Offset(0).encode()
            case epoch:
                return Offset(epoch).encode()

    def stop_at_present(self) -> None:
        """Take what can be had now for all that there is, from now on."""
        self._end = self._look().upper

    def newest(self) -> Offset:
        """Return how far the output could be had at the last look."""
        return (self._seen or self._look()).upper

    def latest(self, start: Offset | None, *, most: int | None) -> Offset:
        """Return where a batch ends that begins at an offset: the same one if there is nothing to be had.

        start: None for a query that begins with what comes next; the batch then has no rows.

        Raises `CheckpointOfAnother`, `CheckpointAhead`, `NotPublished`, and `OutputHasFailed` once all is given that
        the output holds.
        """
        seen = self._look()
        upper = seen.upper
        last = upper if self._end is None or self._end.epoch > upper.epoch else self._end
        if start is None:
            return last
        self._prove(start, seen)
        if start.epoch >= upper.epoch and seen.failure is not None:
            raise seen.failure
        end = max(start.epoch, last.epoch)
        if not (seen.by_key and start.epoch == 0):  # the rows of all keys come at once
            end = capped(start.epoch, end, most=most)
        if end == start.epoch:
            return start
        return last if end == last.epoch else self._between(end, last, by_key=seen.by_key)

    def portions(self, start: Offset | None, end: Offset) -> list[TaskPortion]:
        """Return what the tasks of a batch read.

        Raises `CheckpointOfAnother`, `CheckpointAhead`, `ChangesUnknown`, `ColumnsUnlike`, and what `read_arrow`
        raises.
        """
        if start is None or start == end:
            return []
        with stored(self._options) as output:
            check_kind(output, self._options)
            name, newest = output.name, output.view(None, since=start.epoch, upto=end.epoch - 1)
            for offset in (start, end):
                self._check(offset, output, newest)
            if not start.epoch <= end.epoch <= newest.epoch + 1:  # older versions of Spark go by the end alone
                raise CheckpointAhead(epoch=max(start.epoch, end.epoch), output=name, upper=newest.epoch + 1)
            check_columns(newest, name, self._schema, changes=self._options.changes)
            if not output.by_key:
                return of_view(name, replace(newest, epoch=end.epoch - 1), start.epoch)
            try:
                if start.epoch:
                    told = differences(
                        output.flow, name, start.epoch, end.epoch, store=output.store, loaded=output.loaded
                    )
                    return [DifferencePortion(name, one) for one in told]
                return of_view(name, output.view(end.epoch - 1), 0, epoch=end.epoch - 1)
            except (EpochBelowSince, EpochReplaced) as gone:
                detail = gone.summary
                raise ChangesUnknown(output=name, lower=start.epoch, upper=end.epoch, detail=detail) from gone

    def _look(self) -> _Seen:
        """Look at the output, unless nothing was published since all that is published was seen."""
        env = Env()
        if (early := self._due - env.monotonic()) > 0:
            env.sleep(early)
        self._due = env.monotonic() + _PAUSE
        with looking(self._options) as store:
            seen = self._seen
            if seen is None or seen.flow != store.flow(seen.flow.name) or seen.upper.epoch != seen.flow.published:
                self._seen = seen = self._found(found(store, self._options))
                self._proved = None
            return seen

    def _found(self, output: StoredOutput) -> _Seen:
        check_kind(output, self._options)
        view = output.view(None)
        upper = view.epoch + 1
        failure = None
        for failed in (output.source.failure, output.known.failure):
            if failed is not None and upper >= failed[0]:
                epoch, error = failed
                failure = OutputHasFailed(output=output.name, epoch=epoch, as_of=upper, detail=error.summary)
        return _Seen(output.loaded.flow, offset_at(output, view, upper), output.by_key, failure)

    def _prove(self, start: Offset, seen: _Seen) -> None:
        """Raise unless an offset is of the life that was seen."""
        if start == self._proved:
            return
        if start.epoch > seen.flow.published:
            if not start.incarnation:
                raise NotPublished(as_of=start.epoch, published=seen.flow.published)
            raise CheckpointAhead(epoch=start.epoch, output=self._options.output, upper=seen.flow.published)
        with stored(self._options) as output:
            self._check(start, output, output.view(None))
        self._proved = start

    def _check(self, offset: Offset, output: StoredOutput, view: View) -> None:
        """Raise `CheckpointOfAnother` or `CheckpointAhead` unless an offset is one of the present output."""
        if offset.epoch > (published := output.loaded.flow.published):
            raise CheckpointAhead(epoch=offset.epoch, output=output.name, upper=published)
        unlike = offset.unlike(offset_at(output, view, offset.epoch))
        if unlike is not None:
            what, was, now = unlike
            raise CheckpointOfAnother(epoch=offset.epoch, what=what, output=output.name, was=was, now=now)

    def _between(self, end: int, last: Offset, *, by_key: bool) -> Offset:
        """Return the offset at an epoch before the last one; of a table by key at the next one that can be told."""
        with stored(self._options) as output:
            while by_key and end < last.epoch:
                try:
                    output.view(end - 1)
                    break
                except (EpochReplaced, EpochBelowSince):
                    end += 1
            view = output.view(None)
            return offset_at(output, view, end)


def check_kind(output: StoredOutput, options: Options) -> None:
    """Raise `ChangesNotAskedFor` for a table by key whose rows are to be followed as if they only came."""
    if output.by_key and not options.changes:
        raise ChangesNotAskedFor(output=output.name)


def offset_at(output: StoredOutput, view: View, epoch: int) -> Offset:
    """Return the offset at an epoch that is bound, given any view of the present table."""
    digests = output.store.digests(output.flow.name, [epoch])
    return Offset.of(epoch, output.loaded.flow.incarnation, view.table, digests.get(epoch, ""))
