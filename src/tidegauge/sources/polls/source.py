"""`PollingSource`: a function of the user's that is called with a state, and returns rows with the state after them.

    def fetch(cursor):
        page = ask_upstream(after=cursor or 0)
        return tg.Fetched(page["orders"], state=page["cursor"], more=page["has_more"])

The state is kept in the binding, and rows are staged before they are bound: see `poller`. A position counts the polls
that brought rows.

Invariant: the function runs in the driver of a run, and nowhere else. It is no part of the value that travels to
tasks, nor is anything that it holds.

>>> import pickle
>>> source = PollingSource(lambda state: Fetched([{"id": 1}], state=1), columns="id long", staging="/lake/polls")
>>> source.describe()["every"], pickle.loads(pickle.dumps(source)) == source
(60.0, True)
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
from tidegauge.errors.base import Transient
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.fromtime import InvalidState, StateTooLarge
from tidegauge.errors.polls import NotFetched, PollFailed, PollsElsewhere, StateNotKept
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import SEQUENCE, FromTime, SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.ddl import as_schema, to_ddl
from tidegauge.sources.metadata import with_metadata
from tidegauge.sources.polls.merging import Merges, Merging, merging_of
from tidegauge.sources.polls.poller import Beside, Brought, Fetch, Poller, PollerSetup, in_a_thread
from tidegauge.sources.polls.rows import as_rows
from tidegauge.sources.polls.staged import PollSplit, StagedPolls
from tidegauge.sources.polls.states import decoded, encoded
from tidegauge.sources.protocol import OnBadRecord, Split
from tidegauge.sources.staging import staging_place

__all__ = ["KIND", "Fetched", "PollingSource", "kept", "seconds", "staging_at"]

_log: Final = logging.getLogger(__name__)

KIND: Final = "tidegauge/function"
"""The kind of the states of functions."""

_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a function returns: rows, and the state to go on from.

    rows: a pyarrow Table or RecordBatch, or a list of dicts. state: None, bool, int, float, str, bytes, datetime,
    date, timedelta, list, tuple, dict, in any nesting. more: whether there is more to be had at once. watermark: up
    to which event time the rows are complete, with a time zone; an earlier one than before, or None, leaves that as
    it was.
    """

    rows: Any
    state: Any = None
    more: bool = False
    watermark: datetime | None = None


def seconds(parameter: str, value: object) -> float:
    """Return a number of seconds above 0. Raises `InvalidArgument`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e9:
        raise InvalidArgument(parameter=parameter, value=value, expected="a number of seconds above 0")
    return float(value)


def staging_at(path: Any) -> str:
    """Return where polls are staged. Raises `InvalidArgument`, `CredentialsInAddress`, `PollsElsewhere`."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgument(parameter="staging", value=path, expected="the path of a folder that stays")
    return staging_place(path, elsewhere=lambda scheme: PollsElsewhere(scheme=f"{scheme}:"))


@dataclass(frozen=True)
class PollingSource:
    """What a function fetches, poll by poll.

    Args:
        function: is given the state that it returned last, None at first, and returns `Fetched`. It runs in the
            driver, in a thread of its own, never twice at a time.
        columns: a DDL string or an Arrow schema.
        staging: a folder that stays, for the polls; on a cluster, one that all machines see, or an address in an
            object store. Each source has a folder of its own in it.
        every: seconds between the beginnings of two polls. The first one of a run is at once.
        timeout: seconds after which the source is `stalled` while the function has not returned.
        merge: what becomes of the rows, see `merging`. key: a column, or several, for all but `"append"`.

    Raises `InvalidArgument`, `InvalidSchema`, `ReservedColumn`, `PollsElsewhere`.
    """

    function: Callable[[Any], Fetched] | None = field(compare=False, repr=False)
    _: KW_ONLY
    columns: str | pa.Schema
    staging: str | os.PathLike[str]
    every: float = 60.0
    timeout: float = 60.0
    merge: Merges = "append"
    key: str | Sequence[str] = ()
    owner: tuple[str, str] = field(default=("", ""), repr=False)

    def __post_init__(self) -> None:
        if self.function is not None and not callable(self.function):
            raise InvalidArgument(parameter="function", value=self.function, expected="a function of one state")
        if self.columns is None:
            raise InvalidArgument(parameter="columns", value=None, expected="a DDL string or an Arrow schema")
        object.__setattr__(self, "staging", staging_at(self.staging))
        object.__setattr__(self, "key", (self.key,) if isinstance(self.key, str) and self.key else tuple(self.key))
        for parameter in ("every", "timeout"):
            object.__setattr__(self, parameter, seconds(parameter, getattr(self, parameter)))
        _ = self.schema

    def __getstate__(self) -> dict[str, Any]:
        """Leave the function where it is: tasks read the log."""
        names = ("columns", "staging", "every", "timeout", "merge", "key", "owner")
        return {**{name: getattr(self, name) for name in names}, "function": None}

    @property
    def unit(self) -> str:
        """Positions count the polls that brought rows."""
        return "polls"

    @property
    def from_time(self) -> FromTime:
        """Polls are counted."""
        return SEQUENCE

    @cached_property
    def _merging(self) -> Merging:
        found = as_schema(self.columns)
        assert found is not None  # noqa: S101 - checked when it was made
        return merging_of(self.merge, self.key, with_metadata(found, metadata=False, where="the polls"))

    @cached_property
    def _staged(self) -> StagedPolls:
        return StagedPolls(str(self.staging), self.schema, self.owner)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._merging.schema

    def placed(self, flow: str, name: str) -> PollingSource:
        """Return the source as the one of this name in this flow, which has a folder of its own."""
        return replace(self, owner=(flow, name))

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "kind": "polling",
            "columns": to_ddl(self._merging.columns),
            "staging": self.staging,
            "every": self.every,
            "timeout": self.timeout,
            "merge": self.merge,
            "key": list(self.key),
        }

    def attended(self, env: Env, *, beside: Beside = in_a_thread) -> Poller:
        """Return what polls during a run, `beside` it. Raises `InvalidArgument` for a copy without its function."""
        if self.function is None:
            expected = "the source itself: a copy that was pickled has no function"
            raise InvalidArgument(parameter="function", value=None, expected=expected)
        fetch = _Function(self.owner[1] or "the source", self.function, self._merging)
        return self.polled_by(fetch, env, beside=beside)

    def polled_by(self, fetch: Fetch, env: Env, *, beside: Beside, timeout: float | None = None) -> Poller:
        """Return what polls during a run, by another function than the user's."""
        return Poller(
            PollerSetup(
                source=self.owner[1],
                staged=self._staged,
                merging=self._merging,
                fetch=fetch,
                every=self.every,
                timeout=timeout or self.timeout,
                env=env,
                beside=beside,
            )
        )

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how far the staged polls go. It asks nobody: only a run polls."""
        return self._staged.probe(bound, now=now, note=f"its running flow polls every {self.every:g} seconds")

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Return the files of the polls of these slices. Raises what says that one is not there as it was."""
        return self._staged.plan(slices, bound)

    def read(self, split: PollSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the rows of a poll: they were checked before they were staged."""
        return self._staged.read(split)

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: the log stays, for outputs that are yet to come."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A user's function as a `Fetch`."""

    source: str
    function: Callable[[Any], Fetched]
    merging: Merging

    def __call__(self, state: SourceState | None) -> Brought | None:
        if state is not None and state.kind != KIND:
            _log.warning("source %s: its state of kind %s is no function's: all is fetched", self.source, state.kind)
        known = None if state is None or state.kind != KIND else decoded(state.value)
        try:
            said = self.function(known)
        except Transient:
            raise
        except (Exception, SystemExit) as error:
            detail = " ".join(str(error).split())[:_SHOWN]
            raise PollFailed(source=self.source, error=type(error).__name__, detail=detail) from error
        if not isinstance(said, Fetched):
            raise NotFetched(source=self.source, problem=f"{type(said).__name__}, which is no tg.Fetched")
        if said.more and self.merging.how == "snapshot":
            raise NotFetched(source=self.source, problem="more=True, and a snapshot comes whole, in one Fetched")
        rows = as_rows(self.source, said.rows, self.merging.columns)
        return Brought(rows, kept(self.source, KIND, said.state, said.watermark, state), more=bool(said.more))


def kept(source: str, kind: str, value: Any, watermark: datetime | None, before: SourceState | None) -> SourceState:
    """Return a state as the binding keeps it, with a watermark that is not behind. Raises `StateNotKept`."""
    known = None if before is None else before.watermark
    try:
        state = SourceState(kind=kind, source_id=source, value=encoded(value), watermark=watermark)
        if known is not None and (state.watermark is None or state.watermark < known):
            state = SourceState(kind=kind, source_id=source, value=encoded(value), watermark=known)
    except TypeError as error:
        raise StateNotKept(source=source, problem=str(error)) from error
    except (InvalidState, StateTooLarge) as error:
        raise StateNotKept(source=source, problem=error.summary) from error
    return state
