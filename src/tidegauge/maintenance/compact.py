"""Letting the history of a flow go, and holding it: how far back its epochs can be told apart.

Compaction makes all epochs before one indistinguishable, which frees their bindings. The tables keep their rows, each
with its own epoch; what goes is which position came in at which of these epochs. An output that is added afterwards
is written from the same records, those from before with the first epoch that is left.

Invariant: nobody's place is lost. It goes no further than the last published epoch, the last epoch that each output
holds, and the least epoch that somebody holds; what it kept, and for whom, it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.flow.belonging import check_all, table_of
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.looking.asof import instant
from tidegauge.looking.inspect import holds, opened
from tidegauge.maintenance.resume import leased
from tidegauge.remap.store import Loaded, Store

__all__ = ["Compacted", "compact", "hold", "release"]


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction came to: the epochs before `since` can no longer be told apart.

    wanted: how far it was asked to go. kept: why it went no further, for people; "" where it did.
    """

    flow: str
    since: int
    wanted: int
    kept: str


def compact(flow: Flow, *, before: int | str | datetime, env: Env | None = None) -> Compacted:
    """Merge the epochs before an epoch, or before the last one published by a time (UTC without a zone).

    It goes as far as it may; see `Compacted`. Takes the flow's lease: raises `FlowAlreadyRunning` with the driver
    that runs it, `FlowNeverRan`, and whatever a run raises if the store and the tables do not have one history.
    """
    spec = flow.spec
    env = env or Env()
    if isinstance(before, bool) or not isinstance(before, int | str | datetime):
        raise InvalidArgument(parameter="before", value=before, expected="an epoch or a time like 2026-11-20 17:00")
    if isinstance(before, int) and before < 0:
        raise InvalidArgument(parameter="before", value=before, expected="an epoch, counted from 0")
    with opened(spec, env) as store, leased(store, spec.name, env) as lease:
        loaded = store.load(spec.name)
        check_all(spec, store, loaded)
        wanted = before if isinstance(before, int) else store.epoch_at(spec.name, instant(before)) or 0
        furthest, why = _furthest(spec, store, loaded)
        since = max(loaded.flow.since, min(wanted, furthest))
        store.advance_since(lease, since)
    return Compacted(spec.name, since, wanted, why if since < wanted else "")


def _furthest(flow: FlowSpec, store: Store, loaded: Loaded) -> tuple[int, str]:
    """Return how far `since` may go, and why no further."""
    last = max(loaded.flow.published - 1, 0)
    limits = [(last, f"epoch {last} is the last published" if loaded.flow.published else "no epoch is published")]
    limits += [(held.epoch, f"{held.owner!r} holds epoch {held.epoch}") for held in store.holds(flow.name)]
    for name, plan in flow.outputs.items():
        if name not in loaded.outputs:
            continue  # it has not run yet: it begins at `since`, wherever that is
        # Only one that another driver writes by now is ahead of what is loaded: the store refuses what comes of that.
        upper = min(table_of(flow, name, loaded).upper, loaded.flow.upper)
        if stands := loaded.outputs[name].reached(upper):
            lacks = min(holds(loaded, plan.source, stands), _moved(loaded, plan.source, stands))
            why = f"goes on from epoch {lacks - 1}, the last it holds" if upper else f"begins at epoch {lacks}"
            limits.append((max(lacks - 1, 0), f"output {name!r} {why}"))
    return min(limits, key=lambda limit: limit[0])


def _moved(loaded: Loaded, source: str, upper: int) -> int:
    """Return the first epoch from `upper` on at which a source moved, in any incarnation.

    What an output has lost of one that is over, it will never hold. If that was folded, nobody could tell any more
    that it is all that the output lacks.
    """
    moved = loaded.sources[source].slices(max(upper, loaded.flow.since + 1), loaded.flow.upper)
    return moved[0].epoch if moved else loaded.flow.upper


def hold(flow: Flow, owner: str, epoch: int, *, env: Env | None = None) -> None:
    """Keep an epoch, and all after it, from being compacted until `owner` releases it.

    Use it for a long query or your own backfill. `owner` is a name that tells people who needs the epoch. An owner's
    last hold counts. Needs no lease, so the flow may be running. Raises `HoldTooEarly` for an epoch that was
    compacted already, `HoldNotBound` for one that is not bound yet, `FlowNeverRan`.
    """
    spec = flow.spec
    with opened(spec, env or Env()) as store:
        store.hold(spec.name, owner, epoch)


def release(flow: Flow, owner: str, *, env: Env | None = None) -> None:
    """Let go of the epoch that `owner` holds. Raises `UnknownName` when it holds none, `FlowNeverRan`."""
    spec = flow.spec
    with opened(spec, env or Env()) as store:
        store.release(spec.name, owner)
