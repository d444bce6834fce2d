"""Waiting until a flow is where you want it: a new table is live, or what you sent is in every table.

Invariants. It asks the store, the tables and upstream, so it works from any process, also while another one drives
the flow. It changes nothing. `wait_for` returns an epoch that is published, has every record before the positions,
and is held by each of the outputs; whatever dies meanwhile, it never returns before that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeVar, get_args

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError, Transient, brief
from tidegauge.errors.command import FlowNeverRan, UnknownPartition
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import NotYetBound
from tidegauge.flow.board import OutputCondition
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.looking.asof import Positions, checked, epoch_of
from tidegauge.looking.inspect import observed, opened, outputs
from tidegauge.looking.reports import OutputReport
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Loaded
from tidegauge.sources.push.source import PushedSource

__all__ = ["naps", "wait_for", "wait_until"]

_SOONEST: Final = 0.05
_SLOWEST: Final = 1.0
"""Seconds between two looks: the first, and any later."""

Found = TypeVar("Found")


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

    def look() -> OutputReport | str:
        try:
            found = next(one for one in outputs(flow, env=env) if one.name == output)
        except FlowNeverRan:
            return f"output {output!r} is not there: the flow has not run; it was to be {state}"
        if found.state == state:
            return found
        if found.state == "failed" and isinstance(found.error, TidegaugeError):
            raise found.error
        return f"output {output!r} is {found.state}, and was to be {state}"

    return _waited(look, timeout, env)


def wait_for(
    flow: Flow,
    positions: Positions | Literal["now"],
    *,
    outputs: Sequence[str] | None = None,
    timeout: float | None = None,
    env: Env | None = None,
) -> int:
    """Wait until everything before some positions is in every table, and return the epoch to read them as of.

    Args:
        flow: the flow, which somebody runs.
        positions: for each source and partition one past the last record, `{"orders": {0: 1200}}`; or "now" for all
            that is upstream now, of the sources that these outputs read.
        outputs: the names of the outputs to wait for; all that read one of the sources if None.
        timeout: seconds; None for as long as it takes.
        env: the world, for tests.

    A flow that has not run, and a partition that no epoch has yet, are waited for; so is a late output until it has
    caught up, and a paused one until it goes on.

    Raises `TimeoutError`, which names the missing part; why an output has failed; what a source says of an
    upstream that has gone back; `UnknownName` and `InvalidArgument`.
    """
    env = env or Env()
    spec = flow.spec
    names = frozenset(spec.outputs if outputs is None else outputs)
    read = {spec.output(name).source for name in names}
    wanted = None if positions == "now" else checked(positions, parameter="positions")
    for source in read if wanted is None else wanted:
        spec.source(source)
        if wanted is None and (spec.following is not None or isinstance(spec.sources[source], PushedSource)):
            said = f"positions: source {source!r} cannot be asked how far it is"
            raise InvalidArgument(parameter="positions", value="now", expected=said)
    if outputs is None and wanted is not None:
        names = frozenset(name for name in names if not spec.origins(name).isdisjoint(wanted))
    wanting = _Wanted(flow, names, read if wanted is None else wanted.keys(), wanted, env)

    def look() -> int | str:
        found = wanting.look()
        return f"{found}, which was to be in every table" if isinstance(found, str) else found

    return _waited(look, timeout, env)


class _Wanted:
    """What one `wait_for` waits for: the positions, then the epoch that has them, then the tables."""

    def __init__(
        self,
        flow: Flow,
        names: frozenset[str],
        sources: Collection[str],
        positions: Mapping[str, Mapping[str, int]] | None,
        env: Env,
    ) -> None:
        self._flow: Final = flow
        self._names: Final = names
        self._sources: Final = sources
        self._env: Final = env
        self._positions = positions
        self._epoch: int | None = None

    def look(self) -> int | str:
        """Return the epoch that every table has, or the reason why there is none."""
        spec = self._flow.spec
        try:
            with opened(spec, self._env) as store:
                if self._epoch is None:
                    found = self._bound(spec, store.load(spec.name))
                    if isinstance(found, str):
                        return found
                    self._epoch = found
                record = store.flow(spec.name)
        except FlowNeverRan:
            return f"flow {spec.name!r} has not run"
        if record is None or record.published <= self._epoch:
            return f"epoch {self._epoch} is not published"
        for report in outputs(self._flow, env=self._env):
            if report.name in self._names and report.upper <= self._epoch:
                if report.state == "failed" and isinstance(report.error, TidegaugeError):
                    raise report.error
                return f"output {report.name!r} is {report.state} and does not hold epoch {self._epoch}"
        return self._epoch

    def _bound(self, spec: FlowSpec, loaded: Loaded) -> int | str:
        """Return the epoch that has the positions, or why there is none yet.

        Positions are upstream's: where that is not the one that was bound, it is to be bound anew first, or fails.
        """
        ends: dict[str, Frontier] = {}
        for name in self._sources:
            if name not in loaded.sources:
                return f"source {name!r} has not been bound"
            if spec.following is not None or isinstance(spec.sources[name], PushedSource):
                continue
            try:
                seen = observed(spec, name, loaded, self._env)
            except (Transient, OSError) as error:
                return f"source {name!r} does not answer ({brief(error)})"
            if seen.identity and loaded.sources[name].identity not in ("", seen.identity):
                return f"source {name!r} has another upstream than the one that was bound"
            ends[name] = seen.end if seen.more else seen.upper  # the rest of it is no record yet
        if self._positions is None:
            self._positions = ends
        try:
            return epoch_of(loaded, self._positions)
        except (NotYetBound, UnknownPartition) as missing:
            return missing.summary


def _waited(look: Callable[[], Found | str], timeout: float | None, env: Env) -> Found:
    """Look until something is found. Raises `TimeoutError` with the last text."""
    until = None if timeout is None else env.monotonic() + timeout
    for nap in naps(_SOONEST, _SLOWEST):
        found = look()
        if not isinstance(found, str):
            return found
        left = nap if until is None else until - env.monotonic()
        if left <= 0:
            raise TimeoutError(f"{found} within {timeout} s")
        env.sleep(min(nap, left))
    raise AssertionError("it looks without end")


def naps(soonest: float, slowest: float) -> Iterator[float]:
    """Yield how many seconds to wait between two looks: each time twice as many, up to the most."""
    nap = soonest
    while True:
        yield nap
        nap = min(slowest, 2 * nap)
