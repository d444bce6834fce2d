"""Verifying that a flow's store and its tables have one history, by everything that they keep of it.

    the store     each epoch's digest follows from the one before it and from its bindings
    each table    its upper is bound, and its digest, which takes in all epochs before it, is the store's
    gaps          that the commits tell are in the store
    its files     are there, as large as they were committed, and hold epochs that the table has

Invariant: looking changes nothing, and the flow may be running.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.errors.sinks import OutputIsNoTable
from tidegauge.flow.belonging import check, check_unseen, table_of
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import opened
from tidegauge.remap.history import Link, origin, rest
from tidegauge.remap.rebuilding import Way, gaps_on, pooled, way_to
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.location import at
from tidegauge.sinks.protocol import Table

__all__ = ["Verified", "verify"]

_PIECE = 10_000


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings: `epochs` whose digests were recomputed, `files` that were checked, and the problems.

    recoverable: how far the timeline could be rebuilt from the tables alone, and from which epoch on: (since, upper).
    None where it could not be rebuilt up to what they hold.
    """

    flow: str
    upper: int
    since: int
    epochs: int
    files: int
    recoverable: tuple[int, int] | None
    problems: tuple[str, ...]


def verify(flow: Flow) -> Verified:
    """Check a flow's store and tables against each other; see the module. Raises `FlowNeverRan`."""
    spec = flow.spec
    with opened(spec, Env()) as store:
        loaded = store.load(spec.name)
        problems, epochs = _chain(store, loaded)
        tables, links, files = dict[str, Table](), list[Link](), 0
        for name in (name for name in spec.outputs if name in loaded.outputs):
            try:
                table = tables[name] = table_of(spec, name, loaded)
                check(store, spec, name, table)
                check_unseen(store, spec, name, table, loaded)
                links += table.links()
                found = list(_files(name, table))
            except TidegaugeError as error:
                problems.append(f"output {name}: {brief(error)}")
                continue
            files += len(found)
            problems += [said for said in found if said]
        problems += _gaps(store, loaded, links)
    recoverable = _recoverable(loaded.flow.incarnation, tables, links)
    return Verified(spec.name, loaded.flow.upper, loaded.flow.since, epochs, files, recoverable, tuple(problems))


def _chain(store: Store, loaded: Loaded) -> tuple[list[str], int]:
    """Return the faults of the store's digests, and how many were recomputed."""
    flow, wrong, counted, expected = loaded.flow, set[int](), 0, 0
    for lower in range(flow.since + 1 if flow.since else 0, flow.upper, _PIECE):
        history = store.history(flow.name, lower, min(flow.upper, lower + _PIECE), whole=False)
        before, expected = history.before, lower
        for link in history.links:
            if link.whole:  # the last that a version without digests bound; or one that was changed
                follows = link.digest == rest(flow.incarnation, link.epoch + 1, link.sources) or not before
            else:
                follows = link.epoch == expected and link.follows(before)
            if not follows:
                wrong.add(link.epoch)
            counted += 1
            before, expected = link.digest, link.epoch + 1
    if counted and expected < flow.upper:
        wrong.add(expected)
    said = [f"store: what is bound in epoch {epoch} is not what its digest says" for epoch in sorted(wrong)]
    return said, counted


def _gaps(store: Store, loaded: Loaded, links: list[Link]) -> Iterator[str]:
    """Yield what the tables have told to be lost, and the store does not know."""
    flow = loaded.flow
    known = {(gap.source, gap.epoch, gap.partition, gap.lower, gap.upper) for gap in store.gaps(flow.name)}
    told = gaps_on(Way(flow.upper, ()), pooled(links), flow.upper, stored=store.known_digests(flow.name))
    for name, gaps in told.items():
        for gap in gaps:
            if (name, gap.epoch, gap.partition, gap.lower, gap.upper) not in known:
                where = f"{gap.lower} to {gap.upper} of {gap.partition} in epoch {gap.epoch}"
                yield f"source {name}: {where} is lost, which the tables know, and the store does not"


def _files(output: str, table: Table) -> Iterator[str]:
    """Yield for each file of a table its fault, "" if it has none."""
    with suppress(OutputIsNoTable):  # what is in a topic, its broker knows
        for file in table.files():
            [path] = table.uris([file])
            try:
                size = at(path).stat().st_size
            except OSError as error:
                if file not in table.files():  # all of its rows were replaced meanwhile
                    continue
                yield f"output {output}: its file {file.path} cannot be read: {error.strerror}"
                continue
            if size != file.bytes:
                yield f"output {output}: its file {file.path} has {size} bytes, of {file.bytes} that were committed"
            elif file.last_epoch >= table.upper:
                yield f"output {output}: its file {file.path} has epoch {file.last_epoch}, which it does not hold"
            else:
                yield ""


def _recoverable(incarnation: str, tables: dict[str, Table], links: list[Link]) -> tuple[int, int] | None:
    furthest = max(tables.values(), key=lambda table: table.upper, default=None)
    if furthest is None or not furthest.upper:
        return (0, 0)
    way = way_to(pooled(links), furthest.upper, furthest.digest or "", stored={}, origin=origin(incarnation))
    return None if way is None else (way.since or 0, furthest.upper)
