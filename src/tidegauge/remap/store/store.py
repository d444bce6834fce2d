"""The store: one object over one database, with one method for each thing that a flow has to know or to make durable.

Invariants (laws 2 and 3). Every method that writes is one transaction that begins by checking the lease, and is
durable when it returns. Each is marked as an effect of the `Env`, and can be repeated after a crash before or after
it. Holds alone are anybody's: they need no lease, and are no effects of a run. A server that goes away in the middle
is waited for; what it had done by then is not done twice.

>>> import tempfile
>>> from datetime import UTC, datetime
>>> from tidegauge.remap.frontier import Frontier
>>> env, folder = Env(), tempfile.TemporaryDirectory()
>>> store = Store.open(f"sqlite:///{folder.name}/shop.db", env=env)
>>> lease = store.acquire("shop", holder=LeaseHolder.current(env))
>>> store.register(lease, sources={"orders": SourceSpec({"kind": "file"})}, outputs={})
>>> bound = Proposal(frontier=Frontier({"p0": 5}))
>>> store.append(lease, expected=0, at=datetime(2026, 11, 20, 17, tzinfo=UTC), proposals={"orders": bound})
0
>>> store.load("shop").sources["orders"].table.epoch_of("p0", 4)
0
>>> lease.release(); store.close(); folder.cleanup()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from tidegauge.env import Effect, Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.store import StoreFull, StoreNotWritable
from tidegauge.remap.binding import Proposal
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.history import History, Missed
from tidegauge.remap.start import StampMode, StartRecord
from tidegauge.remap.store import append as timeline
from tidegauge.remap.store import (
    backfills,
    chain,
    compaction,
    decisions,
    incarnations,
    losses,
    read,
    register,
    replacements,
    starts,
)
from tidegauge.remap.store.address import File, parse
from tidegauge.remap.store.codes import record_codes
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.dropping import drop_output
from tidegauge.remap.store.earlier import record_columns
from tidegauge.remap.store.following import Followed, follow
from tidegauge.remap.store.history import read_bindings
from tidegauge.remap.store.lease import Lease, LeaseHolder, acquire, break_lease, holding, silent
from tidegauge.remap.store.opening import copied, exists, opened
from tidegauge.remap.store.owner import Following, check_following, followed, look
from tidegauge.remap.store.recent import RecentLinks
from tidegauge.remap.store.register import record_stalls
from tidegauge.remap.store.restore import Rebuilt, restore, since_restored
from tidegauge.remap.store.schema import outputs as output_rows
from tidegauge.remap.store.schema import sources as source_rows
from tidegauge.remap.store.values import (
    Backfill,
    BackfillUnit,
    CodeRecord,
    Decisions,
    EpochRecord,
    FlowRecord,
    Gap,
    HoldRecord,
    Loaded,
    OutputSpec,
    Replacement,
    SourceSpec,
    Stall,
)
from tidegauge.remap.times import EpochTimes

__all__ = ["Store"]

_KEPT: Final = 64
"""How many of the links that were bound last are kept."""


class Store:
    """An open store. Several may be open on one database, in one process or in many."""

    def __init__(self, database: Database, env: Env, *, copy: TemporaryDirectory[str] | None = None) -> None:
        self._database: Final = database
        self._copy: Final = copy
        self._env: Final = env
        self._heads: Final[dict[int, timeline.Head]] = {}
        self._recent: Final = RecentLinks(kept=_KEPT)
        self._losses: Final[dict[int, int]] = {}
        """Up to which loss of the owner a follower knows all."""
        self.noted = 0
        """How often losses were noted by way of this object."""

    @staticmethod
    def open(url: str, *, env: Env) -> Store:
        """Open the store at `sqlite:///PATH` or `postgresql://...`; a new one is made, a SQLite file with its folder.

        A file that cannot be written is read from a copy; then what writes raises `StoreNotWritable` or `StoreFull`.
        Raises `InvalidStoreUrl`, `StoreNotReadable`, `StoreNotWritable`, `NotAStore`, `StoreTooNew`, `CorruptStore`,
        `StoreDriverMissing`, or a transient `StoreFull`, `StoreAway`, `StoreBusy`, `StoreUnreachable`, `StoreFailed`.
        """
        address = parse(url)
        try:
            return Store(opened(address, env), env)
        except (StoreNotWritable, StoreFull) as refused:
            if not isinstance(address, File) or not address.path.is_file():
                raise
            database, folder = copied(address, env, refused)
            return Store(database, env, copy=folder)

    @staticmethod
    def exists(url: str) -> bool:
        """Whether `open` would find a store rather than make one. Raises as `open` does, of what can be known."""
        return exists(url)

    def close(self) -> None:
        """Close the connections. Everything written stays."""
        self._database.close()
        if self._copy is not None:
            self._copy.cleanup()

    @property
    def url(self) -> str:
        """Where the store is, without secrets."""
        return self._database.url

    def flow(self, name: str) -> FlowRecord | None:
        """Return a flow, or None when it was never run."""
        with self._database.reading() as connection:
            return read.find_flow(connection, name)

    def holder(self, flow_name: str) -> str:
        """Return who has the flow's lease, for people; "" when nobody has, or its process is known to be gone."""
        with self._database.reading() as connection:
            return holding(connection, self._database.now(connection, self._env), self._env, flow_name)

    def silent(self, flow_name: str) -> str:
        """Return who may live and has not renewed the flow's lease for longer than usual, for people; else ""."""
        with self._database.reading() as connection:
            return silent(connection, self._database.now(connection, self._env), self._env, flow_name)

    def load(self, flow_name: str) -> Loaded:
        """Return all that is known of a flow. Raises `UnknownName`, or `DamagedStore`."""
        with self._database.reading() as connection:
            return read.load(connection, flow_name)

    def load_tables(self, flow_name: str, known: Loaded | None) -> Loaded:
        """Return what `load` returns, without the facts of partitions, for looks that are repeated.

        known: what it returned at the last look, of this store or of one that may have been put in its place. Of the
        bindings only those that are new are read, as long as the history goes on from there. Raises what `load`
        raises.
        """
        with self._database.reading() as connection:
            return read.load_tables(connection, flow_name, known)

    def epochs(
        self, flow_name: str, *, first: int | None = None, last: int | None = None, limit: int | None = None
    ) -> list[EpochRecord]:
        """Return the epochs from `first` to `last`, both included, ascending; with a limit, the newest of them."""
        with self._database.reading() as connection:
            return read.read_epochs(connection, flow_name, first=first, last=last, limit=limit)

    def times(self, flow_name: str) -> EpochTimes:
        """Return when every epoch of a flow was minted. Raises `UnknownName`."""
        with self._database.reading() as connection:
            return read.read_times(connection, flow_name)

    def bindings(
        self, flow_name: str, *, source: str | None = None, first: int | None = None, last: int | None = None
    ) -> pa.Table:
        """Return the bindings of the epochs from `first` to `last`, both included, of one source or of all.

        Columns as in `history.BINDINGS`. Raises `UnknownName`, or `DamagedStore`.
        """
        with self._database.reading() as connection:
            return read_bindings(connection, flow_name, source=source, first=first, last=last)

    def state_at(self, flow_name: str, source: str, epoch: int) -> SourceState | None:
        """Return the state that a source had at an epoch, None where it had kept none in that incarnation.

        Raises `EpochBelowSince`, `EpochNotMinted`, `UnknownName`.
        """
        with self._database.reading() as connection:
            return read.read_state(connection, flow_name, source, epoch)

    def history(self, flow_name: str, lower: int, upper: int, *, whole: bool) -> History:
        """Return the history of the epochs `[lower, upper)`, as far as the store knows it and can tell it apart.

        whole: it is to say where every source stood before `lower`, so it begins with the epoch in front of that. Of
        more than `chain.LONGEST` epochs the last ones. May be asked in any thread. Raises `UnknownName`, and
        `UpperMismatch` for epochs that are not bound.
        """
        recent = self._recent.of(flow_name)
        if not whole and (found := recent.between(lower, upper)) is not None:
            return found
        with self._database.reading() as connection:
            flow = read.read_flow(connection, flow_name)
            before = chain.digest_before(connection, flow.id, flow.incarnation, lower)
            first = max(0, lower - 1) if whole else lower
            last = upper >= (recent.links[0].epoch if recent.links else flow.upper)
            return History(chain.read_links(connection, flow, first, upper, whole=whole, last=last), before)

    def digests(self, flow_name: str, uppers: Sequence[int]) -> dict[int, str]:
        """Return the digest of all epochs before each upper: "" where none was kept, as it was bound by a version
        without digests; those that are not bound are left out. Raises `UnknownName`."""
        with self._database.reading() as connection:
            flow = read.read_flow(connection, flow_name)
            found = chain.digests(connection, flow.id, uppers)
        return {upper: found.get(upper, "") for upper in uppers if upper <= flow.upper}

    def known_digests(self, flow_name: str) -> dict[int, str]:
        """Return the digest before each upper whose last epoch the store can tell from those before it."""
        with self._database.reading() as connection:
            return chain.known(connection, read.read_flow(connection, flow_name))

    def restore(self, lease: Lease, rebuilt: Rebuilt) -> None:
        """Make the flow's timeline that which was rebuilt from its tables.

        The lease ends with it, and the store is to be opened anew. Done by hand, and no effect of a run.
        """
        self._database.write(partial(restore, lease=lease, rebuilt=rebuilt, at=self._env.now(), env=self._env))

    def bring_back_since(self, lease: Lease, since: int) -> None:
        """Make the epochs below `since` count as one, as they do for some table; nobody holds one of them then."""
        self._database.write(partial(since_restored, lease=lease, since=since, at=self._env.now()))

    def gaps(self, flow_name: str) -> list[Gap]:
        """Return the losses, sorted by source, epoch and partition."""
        with self._database.reading() as connection:
            return losses.read_gaps(connection, flow_name)

    def epoch_at(self, flow_name: str, time: datetime) -> int | None:
        """Return the last published epoch that was minted at or before a time (with its timezone), or None."""
        with self._database.reading() as connection:
            return read.read_epoch_at(connection, flow_name, time)

    def acquire(self, flow_name: str, *, holder: LeaseHolder) -> Lease:
        """Take the flow's lease; a flow begins to exist by it. Raises `FlowAlreadyRunning` with who has it.

        A holder that asks again gets the lease that it has.
        """
        lease = acquire(self._database, self._env, flow_name, holder)
        self._heads.pop(lease.flow_id, None)  # others may have had it since
        self._recent.forget(flow_name)
        return lease

    def recognise(self, lease: Lease) -> None:
        """See that a store which was away has bound what this object has, and renew the lease in it.

        Raises `LeaseLost`, and `StoreReplaced` where the digests of the timeline differ."""
        with self._database.reading() as connection:
            timeline.recognise(connection, lease, self._heads.get(lease.flow_id), url=self.url)
        lease.renew()  # after it was recognised: nothing is written into a store that is not ours

    def break_lease(self, flow_name: str, *, force: bool = False) -> str:
        """Take the flow's lease away, and return who held it, for people. It is no effect of a run.

        Raises `LeaseHeld` when the holder lives on this machine, unless it is forced, and `NothingHeld`.
        """
        return self._database.write(partial(break_lease, env=self._env, flow=flow_name, force=force))

    def retime(self, lease: Lease) -> int:
        """Take the times of epochs that lie in the future back to now; return how many epochs those are."""
        retime = partial(timeline.retime, lease=lease, now=self._env.now())
        self._heads.pop(lease.flow_id, None)
        return self._database.write(retime)

    def register(self, lease: Lease, *, sources: Mapping[str, SourceSpec], outputs: Mapping[str, OutputSpec]) -> None:
        """Make the flow's sources and outputs known, with their present configurations. Others stay unchanged.

        Raises `SchemaChanged` when a declared schema is not the one that the source was started with, `ClockChanged`
        when its clock is not, and `OutputMoved` when an output has another source than before and the same table.
        Then nothing was written.
        """
        self._write("register", register.register, lease, sources, outputs)

    def record_schema(self, lease: Lease, source: str, schema: pa.Schema) -> None:
        """Set the columns of a source, once. Raises `SchemaChanged` when they were set to others."""
        self._write("record schema", register.record_schema, lease, source, schema)

    def record_columns(self, lease: Lease, found: Mapping[str, pa.Schema]) -> None:
        """Let other columns of sources take effect: records that are bound keep those that they have.

        Raises `LeaseLost`.
        """
        self._write("record columns", record_columns, lease, found, self._env.now())
        self._heads.pop(lease.flow_id, None)  # the next link tells them

    def append(self, lease: Lease, *, expected: int, at: datetime, proposals: Mapping[str, Proposal]) -> int:
        """Bind the epoch `expected` to the proposed frontiers, and return it. The first epoch is 0.

        Sources without a proposal keep their frontier. `at` is the time of minting; the stored time never goes back.
        Raises `UpperMismatch` when the flow's upper is not `expected`, `LeaseLost`, `FrontierRegressed`,
        `WatermarkRegressed`, `UnknownName`; then nothing was written.
        """
        with self._env.effect("append bindings"):
            bind = partial(
                timeline.append,
                lease=lease,
                head=self._heads.get(lease.flow_id),
                expected=expected,
                at=at,
                proposals=proposals,
                write_id=self._env.unique(),
            )
            head = self._database.write(bind, again=partial(bind, repeated=True))
        self._heads[lease.flow_id] = head
        if head.link is None:
            self._recent.forget(lease.flow)
        else:
            self._recent.bind(lease.flow, [head.link], head.before)
        return expected

    def followed(self, flow_name: str) -> frozenset[str]:
        """Return the flows whose sources a flow shared when it ran last."""
        with self._database.reading() as connection:
            return followed(connection, flow_name)

    def check_following(self, flow_name: str, following: Following, configs: Mapping[str, Mapping[str, Any]]) -> str:
        """Return the incarnation of the flow that is followed. configs: how this flow describes the shared sources.

        Raises what says that it cannot be followed; see `following`.
        """
        with self._database.reading() as connection:
            return check_following(connection, flow_name, following, configs, url=self.url)

    def follow(
        self,
        lease: Lease,
        following: Following,
        *,
        expected: int,
        incarnation: str,
        configs: Mapping[str, Mapping[str, Any]],
    ) -> Followed:
        """Bind what the followed flow has bound beyond the epochs before `expected`, at most `LONGEST` epochs of it.

        If there is nothing new it costs one read. Raises `UpperMismatch`, `LeaseLost`, and the errors of
        `following`; then nothing was written.
        """
        known = self._losses.get(lease.flow_id, -1)
        owner = partial(look, upper=expected, noted=known, incarnation=incarnation, configs=configs)
        with self._database.reading() as connection:
            failures = owner(connection, following)
        if failures is not None:
            return Followed(owned=expected, failures=failures)
        append = partial(
            follow,
            lease=lease,
            following=following,
            expected=expected,
            incarnation=incarnation,
            configs=configs,
            url=self.url,
        )
        with self._env.effect("append bindings"):
            new, newest = self._database.write(append)
        self._losses[lease.flow_id] = newest
        self.noted += new.noted
        self._recent.bind(lease.flow, new.links, new.before)
        if new.links:
            last = new.links[-1]
            self._heads[lease.flow_id] = timeline.Head(
                lease.incarnation, last.epoch + 1, last.minted_at, {}, last.digest
            )
        return new

    def publish(self, lease: Lease, *, expected: int, upper: int, at: datetime) -> None:
        """Publish the epochs `[expected, upper)`. Raises `UpperMismatch` when others are published, or
        `LeaseLost`."""
        with self._env.effect("publish"):
            publish = partial(timeline.publish, lease=lease, expected=expected, upper=upper, at=at)
            self._database.write(publish, again=partial(publish, repeated=True))

    def advance_since(self, lease: Lease, since: int) -> None:
        """Make the epochs below `since` indistinguishable, which frees their bindings. Not undone by a smaller one.

        Raises `SinceHeld` beyond an epoch that somebody holds, and `SinceTooFar` beyond the last published one:
        resuming at `published` needs that to be distinct. What the outputs need, their tables know, and the caller.
        """
        self._write("advance since", compaction.advance_since, lease, since)

    def hold(self, flow_name: str, owner: str, epoch: int) -> None:
        """Keep `since` from passing an epoch, until it is released. An owner that holds already moves its hold.

        It needs no lease, and is safe against a compaction at the same instant: see `compaction`. Raises
        `HoldTooEarly`, `HoldNotBound`, `UnknownName`.
        """
        at = self._env.now()
        self._database.write(lambda connection: compaction.hold(connection, flow_name, owner, epoch, at))

    def release(self, flow_name: str, owner: str) -> None:
        """Let go of what an owner holds. Raises `UnknownName`, also when it was released before."""
        release = partial(compaction.release, name=flow_name, owner=owner)
        self._database.write(release, again=partial(release, repeated=True))

    def holds(self, flow_name: str) -> list[HoldRecord]:
        """Return the holds of a flow, the least epoch first."""
        with self._database.reading() as connection:
            return compaction.read_holds(connection, flow_name)

    def decide(self, flow_name: str, decision: decisions.Decision) -> Decisions:
        """Make a decision about the flow's outputs, and return all that stand. Needs no lease, as holds do not."""
        decide = partial(decisions.decide, name=flow_name, decision=decision, at=self._env.now())
        return self._database.write(decide)

    def decisions(self, flow_name: str) -> Decisions:
        """Return what people decided about the flow's outputs. In any thread. Raises `UnknownName`."""
        with self._database.reading() as connection:
            return decisions.read_decisions(connection, read.read_flow(connection, flow_name).id)

    def record_failure(self, lease: Lease, source: str, epoch: int, error: TidegaugeError) -> None:
        """Note that a source has failed for good from an epoch on. It stays until it is cleared.

        Of several, the one at the least epoch counts; of those, the first.
        """
        self._write("record failure", register.record_source, lease, source, epoch, error)

    def clear_failure(self, lease: Lease, source: str) -> None:
        """Forget the failure of a source, because its cause is gone."""
        self._write("record failure", register.clear, lease, source_rows, source)

    def begin_incarnation(
        self, lease: Lease, source: str, *, at: datetime, reason: str, identity: str = "", gaps: Sequence[Gap] = ()
    ) -> int:
        """Begin a new incarnation of a source at the flow's upper, and return its number.

        Its positions count from 0 again; its failure, its seal and its state are over. Earlier bindings stay, for
        people to look at. gaps: the ranges that are lost by it. identity: the identity of the new upstream; if it is
        not known yet, the one that it has when first bound.
        """
        begin = partial(
            incarnations.begin, lease=lease, source=source, identity=identity, at=at, reason=reason, gaps=gaps
        )
        with self._env.effect("begin incarnation"):
            number = self._database.write(begin)
        self._heads.pop(lease.flow_id, None)
        return number

    def record_stalls(self, lease: Lease, stalls: Sequence[Stall]) -> None:
        """Say what the driver waits for at present. For people, and no effect of a run."""
        self._database.write(partial(record_stalls, lease=lease, found=stalls))

    def record_gap(self, lease: Lease, gap: Gap) -> None:
        """Note that records are lost, once for each range of an epoch."""
        self._write("record gap", losses.record_gap, lease, gap)
        self.noted += 1

    def untold(self, flow_id: int, output: str, *, before: int) -> losses.Untold:
        """Return the losses that a commit of an output, of the epochs before one, is to carry. In any thread."""
        with self._database.reading() as connection:
            return losses.untold(connection, flow_id, output, before=before)

    def record_told(self, lease: Lease, output: str, upto: int) -> None:
        """Note that the commits of an output carry the losses up to this id; 0 for none."""
        self._write("record told", losses.record_told, lease, output, upto)

    def bring_back(self, lease: Lease, gaps: Mapping[str, Sequence[Missed]]) -> int:
        """Note losses, by source, that a table has told and that are not there; return how many those were."""
        return self._database.write(lambda connection: losses.bring_back(connection, lease, gaps))

    def pass_over(self, lease: Lease, source: str, gaps: Sequence[Gap], *, lift: bool) -> None:
        """Note that records are skipped by hand, once for each range of an epoch.

        lift: whether the failure of the source stood there, and is over by it.
        """
        self._write("record gap", partial(losses.pass_over, lift=lift), lease, source, gaps)

    def record_output_failure(self, lease: Lease, output: str, epoch: int, error: TidegaugeError) -> None:
        """Note that an output has failed at an epoch, for a reason of its own. The last failure counts."""
        self._write("record output failure", register.record_output, lease, output, epoch, error)

    def record_held(self, lease: Lease, uppers: Mapping[str, int | None]) -> None:
        """Record that the tables of outputs held the epochs before these; None forgets the record."""
        self._write("record held", register.record_held, lease, uppers)

    def record_start(self, lease: Lease, output: str, start: StartRecord | None) -> None:
        """Make durable where an output begins, in place of an earlier record; None: with its source."""
        self._write("record start", starts.record_start, lease, output, start, self._env.now())

    def record_codes(self, lease: Lease, codes: Mapping[str, Sequence[CodeRecord]]) -> None:
        """Make durable which code makes the rows of outputs, in place of earlier records of these outputs."""
        self._write("record code", record_codes, lease, codes)

    def begin_backfill(
        self, lease: Lease, output: str, *, start: int, steps: str, mode: StampMode = "faithful"
    ) -> Backfill:
        """Plan that an output gets all bound epochs from `start` on, hidden; return that plan while it stands."""
        begin = partial(backfills.begin_backfill, lease=lease, output=output, start=start, steps=steps, mode=mode)
        with self._env.effect("begin backfill"):
            return self._database.write(partial(begin, at=self._env.now()))

    def add_unit(self, lease: Lease, output: str, unit: BackfillUnit) -> None:
        """Record that the next epochs of a backfill are staged. Raises `InvalidArgument` for others."""
        self._write("record unit", backfills.add_unit, lease, output, unit)

    def end_backfill(self, lease: Lease, output: str) -> None:
        """Forget the backfill of an output: its table holds these epochs, or its staged files are gone."""
        self._write("end backfill", backfills.end_backfill, lease, output)

    def drop_output(self, lease: Lease, output: str) -> None:
        """Forget all that the store has of an output, if anything. By hand, and no effect of a run."""
        self._database.write(partial(drop_output, lease=lease, output=output))

    def end_replacement(self, lease: Lease, found: Replacement, codes: Sequence[CodeRecord] | None = None) -> None:
        """End a replacement and its plan, and record which code makes the rows by now: its own if the table has them.

        Another one that was decided meanwhile stands.
        """
        self._write("end backfill", replacements.end_replacement, lease, found, codes)

    def clear_output_failure(self, lease: Lease, output: str) -> None:
        """Forget the failure of an output, because its table holds the epoch at which it had failed."""
        self._write("record output failure", register.clear, lease, output_rows, output)

    def _write(self, effect: Effect, work: Callable[..., None], *said: Any) -> None:
        """Make a change durable that can be made twice. said: what the work is given after the connection."""
        with self._env.effect(effect):
            self._database.write(lambda connection: work(connection, *said))
