"""Keeping the tables of a flow in shape: small files are packed, what nothing names goes, and logs are kept short.

Invariant: no reader sees other rows than before, at any epoch that it could read as of; and no driver is disturbed.
Each pack is a commit of its own, which is made only where nobody has touched its files. So it can be given up, lost
to a driver's merge, or killed, and the next maintenance goes on from the table as it then is. Only files that a
driver may have staged wait for the flow's lease: they are removed while nobody drives the flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.sinks import TableUnavailable
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.errors.upkeep import NotMaintained
from tidegauge.flow.belonging import check, table_of
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.looking.inspect import opened
from tidegauge.maintenance.resume import leased
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.protocol import OutputId, job_mark
from tidegauge.sinks.upkeep import Maintainable, Pack, Remnant, Upkeep
from tidegauge.sources.batches.loading import sweep
from tidegauge.sources.batches.source import BatchSource
from tidegauge.sources.staging import path_of

__all__ = ["Maintained", "MaintainedOutput", "maintain", "maintain_until"]

_ROUNDS: Final = 8
"""How often a table is looked at again, for packs of packs, and in the place of those that were given up."""


@dataclass(frozen=True, slots=True)
class MaintainedOutput:
    """What the maintenance of one output came to; of a dry run, what it would come to.

    files: how many the table had before, and has now but for what a driver adds. packed: how many were packed, with
    the rows and bytes that were written again by it. versions: of the table, one for each pack. given_up: packs that
    others made needless, by taking out some of their files. removed: files that nothing named, with their bytes.
    kept: files that nothing names and a driver may have staged, while one runs. checkpoint: the version of one that
    was made. left: why the output is left alone, "" if it is not. error: why it could not be maintained, as far as it
    was not.
    """

    output: str
    kind: str
    files: tuple[int, int] = (0, 0)
    packed: int = 0
    rows: int = 0
    bytes: int = 0
    versions: tuple[str, ...] = ()
    given_up: int = 0
    removed: int = 0
    freed: int = 0
    kept: int = 0
    checkpoint: str | None = None
    left: str = ""
    error: TidegaugeError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What the maintenance of a flow's tables came to."""

    flow: str
    outputs: tuple[MaintainedOutput, ...]
    dry_run: bool


def maintain(
    flow: Flow,
    outputs: Sequence[str] | None = None,
    *,
    retention: timedelta | None = None,
    dry_run: bool = False,
    env: Env | None = None,
) -> Maintained:
    """Pack small files of the flow's tables, remove files that nothing names, and keep their logs short.

    What killed loads have staged is removed, too. The flow may be running, here or elsewhere. Call it as often as you
    like: a row is written again about as often as the logarithm of its table's size says, whenever you call it.

    Args:
        flow: the flow that writes the tables.
        outputs: the names of the outputs, None for all whose sinks can be maintained.
        retention: how long files stay that newer versions of a table do not have: readers of older versions need
            them, and so does `as_of` for a table by key. None for what each table says
            (`delta.deletedFileRetentionDuration`, else 7 days; `history.expire.max-snapshot-age-ms`, else 5 days).
        dry_run: only say what would be done.
        env: the world, for tests.

    An error of one output is kept in its result; the others are maintained. Raises `UnknownName`, `NotMaintained` for
    an output that you name, `InvalidArgument`, `FlowNeverRan`.
    """
    spec = flow.spec
    env = env or Env()
    if isinstance(outputs, str) or (retention is not None and retention < timedelta(0)):
        raise _invalid(outputs, retention)
    for name in outputs or ():
        if name not in spec.outputs:
            raise UnknownName(kind="output", name=name, known=sorted(spec.outputs))
        if not isinstance(spec.outputs[name].sink, Maintainable):
            raise NotMaintained(output=name, kind=_kind(spec, name))
    if not dry_run:
        _sweep(spec)
    with opened(spec, env) as store:
        keeper = _Keeper(spec, store, store.load(spec.name), env, retention, dry_run=dry_run, over=lambda: False)
        names = dict.fromkeys(spec.outputs if outputs is None else outputs)
        return Maintained(spec.name, tuple(keeper.output(name) for name in names), dry_run)


def maintain_until(flow: Flow, over: Callable[[], bool], *, env: Env) -> Maintained:
    """Maintain all outputs, and begin nothing more once it is over."""
    spec = flow.spec
    _sweep(spec)
    with opened(spec, env) as store:
        keeper = _Keeper(spec, store, store.load(spec.name), env, None, dry_run=False, over=over)
        return Maintained(spec.name, tuple(keeper.output(name) for name in spec.outputs if not over()), dry_run=False)


def _sweep(spec: FlowSpec) -> None:
    """Remove what loads have staged that were killed."""
    for source in spec.sources.values():
        if isinstance(source, BatchSource):
            with suppress(OSError, TidegaugeError):  # what is away has time
                sweep(path_of(str(source.path)))


class _Keeper:
    """Maintains the outputs of a flow, one after the other."""

    def __init__(
        self,
        flow: FlowSpec,
        store: Store,
        loaded: Loaded,
        env: Env,
        retention: timedelta | None,
        *,
        dry_run: bool,
        over: Callable[[], bool],
    ) -> None:
        """over: whether to begin nothing more."""
        self._flow: Final = flow
        self._store: Final = store
        self._loaded: Final = loaded
        self._env: Final = env
        self._retention: Final = retention
        self._dry_run: Final = dry_run
        self._over: Final = over

    def output(self, name: str) -> MaintainedOutput:
        """Maintain an output, and say what it came to, an error too."""
        said = MaintainedOutput(name, _kind(self._flow, name))
        sink = self._flow.outputs[name].sink
        if not isinstance(sink, Maintainable):
            return replace(said, left=f"{type(sink).__name__} has nothing to maintain unseen")
        if name not in self._loaded.outputs:
            return replace(said, left="it has not run yet")
        owner = OutputId(self._flow.name, name, self._loaded.flow.incarnation)
        steps = [said]
        try:
            table = table_of(self._flow, name, self._loaded)
            check(self._store, self._flow, name, table)
            upkeep = sink.maintain(owner)
            try:
                self._kept(upkeep, steps)
            finally:
                upkeep.end()
        except TidegaugeError as error:
            return replace(steps[-1], error=error)
        except OSError as error:  # a disk that is full, say
            return replace(steps[-1], error=TableUnavailable(table=sink.identity, detail=brief(error)))
        return steps[-1]

    def _kept(self, table: Upkeep, steps: list[MaintainedOutput]) -> None:
        """Do it step by step, and add to `steps` what it has come to."""
        said = steps[-1]
        before = len(table.files())
        steps.append(said := replace(said, files=(before, before)))
        for _ in range(_ROUNDS):
            packs = table.plan()
            if self._dry_run:
                steps.append(_planned(said, packs))
                break
            if not packs:
                break
            for pack in packs:
                if self._over():
                    return
                said = self._packed(table, pack, said)
                steps.append(said)
        said = self._cleared(table, steps[-1])
        steps.append(said)
        if not self._dry_run:
            steps.append(replace(said, checkpoint=table.shorten()))

    def _packed(self, table: Upkeep, pack: Pack, said: MaintainedOutput) -> MaintainedOutput:
        mark = job_mark(self._loaded.flow.incarnation)
        with self._env.effect("stage"):
            files = table.stage(pack, job=mark + self._env.unique()[-16:])
        try:
            with self._env.effect("commit output"):
                version = table.commit(pack, files, write=mark + self._env.unique()[-16:])
        except BaseException:
            with suppress(OSError, TidegaugeError):
                table.discard(files)
            raise
        if version is None:
            table.discard(files)
            return replace(said, given_up=said.given_up + 1)
        return replace(
            said,
            files=(said.files[0], said.files[1] - len(pack.files) + len(files)),
            packed=said.packed + len(pack.files),
            rows=said.rows + pack.rows,
            bytes=said.bytes + sum(file.bytes for file in files),
            versions=(*said.versions, version),
        )

    def _cleared(self, table: Upkeep, said: MaintainedOutput) -> MaintainedOutput:
        """Remove what nothing names; what a driver may have staged, if there is none."""
        found = table.remnants(self._retention)
        free = [one for one in found if not one.staged]
        staged = [one for one in found if one.staged]
        if not self._dry_run:
            table.clear(free)
            if staged:
                try:
                    with leased(self._store, self._flow.name, self._env):
                        table.clear(staged)
                except FlowAlreadyRunning:
                    return _removed(said, free, kept=len(staged))
        return _removed(said, found)


def _removed(said: MaintainedOutput, remnants: Sequence[Remnant], *, kept: int = 0) -> MaintainedOutput:
    return replace(said, removed=len(remnants), freed=sum(one.bytes for one in remnants), kept=kept)


def _planned(said: MaintainedOutput, packs: Sequence[Pack]) -> MaintainedOutput:
    """Return what packs would come to, if each became one file of the same size."""
    packed = sum(len(pack.files) for pack in packs)
    return replace(
        said,
        files=(said.files[0], said.files[0] - packed + len(packs)),
        packed=packed,
        rows=sum(pack.rows for pack in packs),
        bytes=sum(pack.bytes for pack in packs),
    )


def _kind(flow: FlowSpec, output: str) -> str:
    return str(flow.outputs[output].sink.describe().get("kind", ""))


def _invalid(outputs: object, retention: object) -> InvalidArgument:
    if isinstance(outputs, str):
        return InvalidArgument(parameter="outputs", value=outputs, expected="names of outputs, in a list")
    return InvalidArgument(parameter="retention", value=retention, expected="a time that is not negative")
