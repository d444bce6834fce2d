"""`BytewaxSource`: any `FixedPartitionedSource` or `DynamicSource` of bytewax as a source.

    flow.source("clicks", tg.BytewaxSource(Clicks(), columns="user string, page string", staging="/lake/staged"))

Its partitions are read in the driver of a run, each by a thread of its own (`pulling`). What they give is staged in
the log of a polled source, and their resume states are kept in the binding (`fetching`); so tasks, late outputs and
restarts read the log. A position counts the polls that brought rows.

Invariant. A `FixedPartitionedSource` that resumes from its states, as bytewax asks for, gives each item to each
output once. A `DynamicSource` has no state: its staged items come once; those that were read and not staged when a
run ends are lost, or come again, as upstream has it.

>>> import pickle
>>> from bytewax.testing import TestingSource
>>> source = BytewaxSource(TestingSource([{"n": 1}]), columns="n long", staging="/lake/staged")
>>> source.describe()["connector"], pickle.loads(pickle.dumps(source)) == source
('bytewax.testing.TestingSource', True)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.bytewax import BytewaxMissing, PartitionBlocked, PartitionRaised, PartitionStateNotKept
from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import SEQUENCE, FromTime
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.abilities import Attendant
from tidegauge.sources.bytewax.apart import IN_THREADS, PullThreads
from tidegauge.sources.bytewax.fetching import BytewaxFetch
from tidegauge.sources.ddl import as_schema, to_ddl
from tidegauge.sources.metadata import with_metadata
from tidegauge.sources.polls.merging import Merging
from tidegauge.sources.polls.poller import Beside, Poller, PollerSetup, backoff, in_a_thread
from tidegauge.sources.polls.source import seconds, staging_at
from tidegauge.sources.polls.staged import PollSplit, StagedPolls
from tidegauge.sources.protocol import OnBadRecord, Split

__all__ = ["BytewaxSource"]

_log: Final = logging.getLogger(__name__)

_NOTED: Final = 3
"""Partitions that a note tells of, at most."""


@dataclass(frozen=True)
class BytewaxSource:
    """What a source of bytewax yields.

    Args:
        connector: a `FixedPartitionedSource` or a `DynamicSource`. It lives in the driver, and is never pickled.
        columns: a DDL string or an Arrow schema.
        staging: as `PollingSource` has it, for the items read. Each source has
            a folder of its own in it.
        row: a function of one item that returns its row as a dict, or None for none. Without it, items are dicts, or
            Arrow tables or record batches.
        timeout: seconds that a partition may take for one call. After that, the source is `stalled` while no
            partition gives anything.

    Raises `InvalidArgument`, `InvalidSchema`, `ReservedColumn`, `PollsElsewhere`, `BytewaxMissing`.
    """

    connector: Any = field(compare=False, repr=False)
    _: KW_ONLY
    columns: str | pa.Schema
    staging: str | os.PathLike[str]
    row: Callable[[Any], Any] | None = field(default=None, compare=False, repr=False)
    timeout: float = 60.0
    kind: str = field(default="", repr=False)
    """The class of the connector, which a copy without it knows."""
    owner: tuple[str, str] = field(default=("", ""), repr=False)

    def __post_init__(self) -> None:
        if not self.kind:
            inputs = _inputs()
            if not isinstance(self.connector, inputs.FixedPartitionedSource | inputs.DynamicSource):
                expected = "a bytewax FixedPartitionedSource or DynamicSource"
                raise InvalidArgument(parameter="connector", value=self.connector, expected=expected)
            of = type(self.connector)
            object.__setattr__(self, "kind", f"{of.__module__}.{of.__qualname__}")
        if self.row is not None and not callable(self.row):
            raise InvalidArgument(parameter="row", value=self.row, expected="a function of one item")
        if self.columns is None:
            raise InvalidArgument(parameter="columns", value=None, expected="a DDL string or an Arrow schema")
        object.__setattr__(self, "staging", staging_at(self.staging))
        object.__setattr__(self, "timeout", seconds("timeout", self.timeout))
        _ = self.schema

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connector where it is: tasks read the log."""
        names = ("columns", "staging", "timeout", "kind", "owner")
        return {**{name: getattr(self, name) for name in names}, "connector": None, "row": None}

    @property
    def unit(self) -> str:
        """Positions count the polls that brought rows."""
        return "polls"

    @property
    def from_time(self) -> FromTime:
        """Polls are counted."""
        return SEQUENCE

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns."""
        found = as_schema(self.columns)
        assert found is not None  # noqa: S101 - checked when it was made
        return with_metadata(found, metadata=False, where="the items")

    @cached_property
    def _staged(self) -> StagedPolls:
        return StagedPolls(str(self.staging), self.schema, self.owner)

    def placed(self, flow: str, name: str) -> BytewaxSource:
        """Return the source as the one of this name in this flow, which has a folder of its own."""
        return replace(self, owner=(flow, name))

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "kind": "bytewax",
            "connector": self.kind,
            "columns": to_ddl(self.schema),
            "staging": self.staging,
            "timeout": self.timeout,
        }

    def attended(self, env: Env, *, beside: Beside = in_a_thread, apart: PullThreads = IN_THREADS) -> Attendant:
        """Return what reads during a run, `beside` it. apart: where partitions run.

        Raises `InvalidArgument` for a copy without its connector.
        """
        if self.connector is None:
            expected = "the source itself: a copy that was pickled has no connector"
            raise InvalidArgument(parameter="connector", value=None, expected=expected)
        fetch = BytewaxFetch(
            source=self.owner[1] or "the source",
            connector=self.connector,
            stateful=isinstance(self.connector, _inputs().FixedPartitionedSource),
            step=".".join(filter(None, self.owner)) or "tidegauge",
            columns=self.schema,
            row=self.row,
            timeout=self.timeout,
            run=env.unique(),
            apart=apart,
        )
        setup = PollerSetup(
            source=self.owner[1],
            staged=self._staged,
            merging=Merging("append", (), self.schema),
            fetch=fetch,
            every=0.0,
            timeout=2 * self.timeout,
            env=env,
            beside=beside,
            delay=_delay,
        )
        return _Attended(Poller(setup), fetch)

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how far the staged items go. It asks nobody: only a run reads."""
        return self._staged.probe(bound, now=now, note="only its running flow reads it")

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Return the files of these slices. Raises what says that one is not there as it was."""
        return self._staged.plan(slices, bound)

    def read(self, split: PollSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the rows of a poll: they were checked before they were staged."""
        return self._staged.read(split)

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: the log stays, for outputs that are yet to come."""


@dataclass(frozen=True, slots=True)
class _Attended:
    """A poller, and the partitions that it reads."""

    poller: Poller
    fetch: BytewaxFetch
    told: dict[str, str] = field(default_factory=dict)
    """The code of the error of each partition that the log has been told of."""

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Look, and say which partitions do not go on beside others that do. Raises what `Poller.probe` does."""
        seen = self.poller.probe(bound, now=now)
        troubles = self.fetch.troubles()
        for name, error in troubles.items():
            if self.told.get(name) != error.code:
                _log.warning("%s [%s]. Other partitions go on", error.summary, error.code)
        self.told.clear()
        self.told.update((name, error.code) for name, error in troubles.items())
        if not troubles:
            return seen
        notes = [seen.note, *(f"{error.summary} ({error.code})" for error in troubles.values())][: 1 + _NOTED]
        if len(troubles) > _NOTED:
            notes.append(f"and {len(troubles) - _NOTED} more partitions")
        return replace(seen, note="; ".join(filter(None, notes)))

    def close(self) -> None:
        self.poller.close()
        self.fetch.close()


def _delay(error: TidegaugeError | OSError, failures: int) -> float:
    """Return how long to wait after an error: not at all where its partition has a pace of its own."""
    own = isinstance(error, PartitionBlocked | PartitionRaised | PartitionStateNotKept)
    return 0.0 if own else backoff(failures)


def _inputs() -> Any:
    """Return bytewax's module of sources. Raises `BytewaxMissing`."""
    try:
        import bytewax.inputs
    except ImportError as error:
        raise BytewaxMissing(detail=str(error)) from None
    return bytewax.inputs
