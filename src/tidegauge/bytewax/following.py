"""`OutputSource`: an output of a flow as a source of a bytewax dataflow, epoch by epoch.

    op.input("orders", dataflow, OutputSource(flow, "orders"))

The items are those that `flow.subscribe` gives: a dict for each row, with `_epoch`, `_diff` and the columns. First
come the rows as of an epoch, then the changes of each later one, once it is published. There is one partition. Its
resume state is the first epoch that was not given, with what tells the store, the table and the history up to there
from others (`Offset`). An epoch is given whole, in one batch.

Invariant: the items up to a state of `e` add up to the output as of `e - 1`, in whatever dataflow it is resumed; a
state of another history is refused.

>>> import tempfile
>>> import tidegauge as tg
>>> with tempfile.TemporaryDirectory() as root:
...     flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db")
...     orders = flow.source("orders", tg.GeneratorSource(2, columns="id long"))
...     flow.sink("orders", orders, tg.ParquetSink(f"{root}/orders"))
...     _ = flow.run("caught-up", engine="local")
...     part = OutputSource(flow, "orders").build_part("in", "orders", None)
...     [(row["_epoch"], row["_diff"]) for row in part.next_batch()], part.snapshot()["epoch"]
([(0, 1), (0, 1)], 1)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument
from tidegauge.flow.spec import Flow
from tidegauge.looking.datasource.offsets import Offset
from tidegauge.looking.subscription import ChangeFeed

__all__ = ["OutputSource"]

Row = dict[str, Any]
State = dict[str, Any]


class OutputSource(FixedPartitionedSource[Row, State]):
    """What an output holds, and what each later epoch changes.

    Args:
        flow: a `tidegauge.Dataflow`. It need not run in this process.
        output: the name of one of its outputs, a table that can be read.
        as_of: the epoch to begin with where there is no resume state; None for the newest published one.
        up_to: the first epoch that you do not want; None to go on until the sources of the flow have ended.

    Raises `UnknownName`, `InvalidArgument`. Reading raises `CheckpointOfAnother` and `CheckpointAhead` where the
    resume state is of another history than the output's, and what `flow.subscribe` raises: `EpochBelowSince` where
    the history since the resume state has been compacted, `OutputHasFailed`.
    """

    def __init__(self, flow: Flow, output: str, *, as_of: int | None = None, up_to: int | None = None) -> None:
        for parameter, value in (("as_of", as_of), ("up_to", up_to)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise InvalidArgument(parameter=parameter, value=value, expected="an epoch, or None")
        self._spec: Final = flow.spec
        self._spec.output(output)
        self._output: Final = output
        self._as_of: Final = as_of
        self._up_to: Final = up_to

    def list_parts(self) -> list[str]:
        """Return the name of the output: one worker reads it."""
        return [self._output]

    def build_part(self, step_id: str, for_part: str, resume_state: State | None) -> _Following:  # noqa: ARG002
        """Return what follows the output from an epoch on, or from its rows on."""
        feed = ChangeFeed(self._spec, self._output, env=Env())
        reached = None if resume_state is None else Offset.decode(resume_state)
        return _Following(feed, reached, as_of=self._as_of, up_to=self._up_to)


class _Following(StatefulSourcePartition[Row, State]):
    """The one partition. reached: the first epoch that was not given; None before the rows to begin with."""

    def __init__(self, feed: ChangeFeed, reached: Offset | None, *, as_of: int | None, up_to: int | None) -> None:
        self._feed: Final = feed
        self._reached = reached
        self._as_of: Final = as_of
        self._up_to: Final = up_to
        self._awake: datetime | None = None

    def next_batch(self) -> list[Row]:
        """Return the rows of the next epochs that are there; none where none is."""
        self._awake = None
        reached = self._reached
        if self._up_to is not None and reached is not None and reached.epoch >= self._up_to:
            raise StopIteration
        wanted = (self._as_of or 0) if reached is None else reached.epoch
        standing, pause = self._feed.standing()
        if standing.upper <= wanted:
            if reached is not None:
                self._feed.prove(reached)
            if isinstance(standing.over, TidegaugeError):
                raise standing.over
            if standing.over:
                raise StopIteration
            self._awake = datetime.now(UTC) + timedelta(seconds=pause)
            return []
        if reached is None:
            stretch = self._feed.snapshot(self._feed.resolve(self._as_of)[0])
        else:
            upper = standing.upper if self._up_to is None else min(standing.upper, self._up_to)
            stretch = self._feed.changes(reached, upper)
        found: list[Row] = stretch.rows.to_pylist()
        self._reached = stretch.upto
        return found

    def next_awake(self) -> datetime | None:
        """Return when to look again after there was nothing."""
        return self._awake

    def snapshot(self) -> Any:
        """Return the first epoch that was not given; None before anything was."""
        return None if self._reached is None else self._reached.encode()
