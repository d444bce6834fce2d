"""Which epoch somebody means: `as_of` is an epoch, a time, or positions of sources.

    3                               the table with the epochs up to 3
    "2026-11-20 17:00"              the newest epoch that was minted by then; a time without a zone is UTC
    {"orders": {0: 1200}}           the first epoch with all records of partition 0 before the position 1200
    None                            the newest published epoch

A position is a frontier, as Spark's `endingOffsets` and Kafka's `position()` are: one past the last record that is
meant. Partitions are given by their key, as in `_partition`, or for files by their path.

Invariant. Of the epochs that hold what the positions ask for, it is the first one (`into` of the remap table); a
position that no epoch has reached names none.

>>> instant("2026-11-20 17:00").isoformat()
'2026-11-20T17:00:00+00:00'
>>> checked({"orders": {0: 1200}})
{'orders': {'0': 1200}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import index
from typing import Any, Final, TypeAlias

from tidegauge.errors.command import NotPublished, PastTheEnd, UnknownPartition
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import NotYetBound
from tidegauge.looking.locate import key_of
from tidegauge.remap.store import Loaded, Store
from tidegauge.remap.table import RemapTable
from tidegauge.sources.union.places import UNION, InputLife

__all__ = ["AsOf", "Positions", "checked", "epoch_of", "instant", "published_epoch"]

Positions: TypeAlias = Mapping[str, Mapping[str, int] | Mapping[int, int]]
"""Of sources, for each partition the position before which all records are meant."""

AsOf: TypeAlias = int | str | datetime | Positions | None

_EXPECTED: Final = 'an epoch, a time like 2026-11-20 17:00, or positions like {"orders": {0: 1200}}'


def instant(as_of: str | datetime) -> datetime:
    """Return the point in time that a text names; one without a zone is UTC. Raises `InvalidArgument`."""
    try:
        time = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
    except ValueError:
        raise InvalidArgument(parameter="as_of", value=as_of, expected=_EXPECTED) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def checked(positions: object, *, parameter: str = "as_of") -> dict[str, dict[str, int]]:
    """Return positions with the keys of partitions as texts. Raises `InvalidArgument` for anything else."""
    refused = InvalidArgument(parameter=parameter, value=positions, expected='positions like {"orders": {0: 1200}}')
    if not isinstance(positions, Mapping) or not positions:
        raise refused
    found: dict[str, dict[str, int]] = {}
    for source, each in positions.items():
        if not isinstance(source, str) or not isinstance(each, Mapping) or not each:
            raise refused
        found[source] = {}
        for partition, position in each.items():
            number = _whole(position)
            if number is None or (not isinstance(partition, str) and _whole(partition) is None):
                raise refused
            found[source][str(partition)] = number
    return found


def _whole(number: Any) -> int | None:
    """Return an integer of any kind that is not negative, None for anything else."""
    found = None
    if not isinstance(number, bool):
        with suppress(TypeError):
            found = index(number)
    return found if found is not None and found >= 0 else None


def epoch_of(loaded: Loaded, positions: Mapping[str, Mapping[str, int]]) -> int:
    """Return the first epoch that has all records before some positions, by the present bindings.

    Raises `NotYetBound` where none has, `PastTheEnd` where none will, `UnknownName`, `UnknownPartition`,
    `AmbiguousPath`.
    """
    epoch = 0
    for source, each in positions.items():
        found = loaded.sources.get(source)
        if found is None:
            raise UnknownName(kind="source", name=source, known=sorted(loaded.sources))
        for partition, position in each.items():
            if not position:
                continue
            key = key_of(found, source, partition)
            if position > (end := found.table.frontier[key]):
                if found.table.sealed_at is not None:
                    raise PastTheEnd(position=position - 1, partition=key, source=source, end=end)
                upper = loaded.flow.upper
                raise NotYetBound(source=source, partition=key, position=position - 1, upper=upper)
            epoch = max(epoch, found.table.epoch_of(key, position - 1))
            united = InputLife(source, found.incarnation).partition(key)
            for union, table in _unions(loaded, source):
                if position > table.frontier[united]:
                    raise NotYetBound(source=union, partition=united, position=position - 1, upper=loaded.flow.upper)
                epoch = max(epoch, table.epoch_of(united, position - 1))
    return epoch


def _unions(loaded: Loaded, source: str) -> Iterator[tuple[str, RemapTable]]:
    """Yield the unions that a source is an input of, with their bindings; not those that have failed or are new.

    One that had failed, or came later, has records of the source in later epochs.
    """
    for name, found in loaded.sources.items():
        inputs = found.config.get("of") if found.config.get("kind") == UNION else None
        if inputs is not None and source in inputs and found.failure is None and found.table.frontier:
            yield name, found.table


def published_epoch(store: Store, loaded: Loaded, as_of: AsOf) -> int | None:
    """Return the published epoch that `as_of` names, None for the newest one.

    Raises `NotPublished`, and what `epoch_of` raises.
    """
    published = loaded.flow.published
    if as_of is None:
        if published == 0:
            raise NotPublished(as_of="the newest epoch", published=0)
        return None
    epoch: int | None
    if isinstance(as_of, Mapping):
        positions = checked(as_of)
        try:
            epoch = epoch_of(loaded, positions)
        except UnknownPartition as unknown:
            raise unknown if published else NotPublished(as_of=positions, published=0) from None
    elif isinstance(as_of, bool) or not isinstance(as_of, int | str | datetime):
        raise InvalidArgument(parameter="as_of", value=as_of, expected=_EXPECTED)
    else:
        epoch = as_of if isinstance(as_of, int) else store.epoch_at(loaded.flow.name, instant(as_of))
    if epoch is None or not 0 <= epoch < published:
        raise NotPublished(as_of=as_of, published=published)
    return epoch
