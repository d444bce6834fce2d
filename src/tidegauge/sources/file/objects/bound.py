"""The objects of bound slices, for a driver that cuts them.

Invariant: what it opens is the object of the binding. One that the driver's own look has just seen is not asked for
again; of any other the store is asked whether it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from tidegauge.errors.sources import FileGone
from tidegauge.objects.client import at_once
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources.file.identity import FileFacts
from tidegauge.sources.file.moving import moved, outside
from tidegauge.sources.file.objects.listing import ObjectListing, folder_of, objects_of
from tidegauge.sources.file.objects.moving import stands_for
from tidegauge.sources.file.objects.opening import open_object, require

__all__ = ["BoundObjects"]

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class BoundObjects:
    """Where the objects of a source are: by the bindings, and by its pattern."""

    bound: Bound
    pattern: str
    _listed: list[ObjectListing] = field(default_factory=list, init=False, repr=False, compare=False)

    def open(self, piece: Slice) -> tuple[FileFacts, BinaryIO]:
        """Open the object of a slice. Raises `FileGone`, `ObjectOverwritten`, and what asking the store does."""
        facts = FileFacts.of(self.bound.details[piece.partition])
        if not facts.etag or outside(facts.path, folder_of(self.pattern)):
            facts = self._moved(facts, piece)
        last = self.bound.last
        if last is None or piece.partition in last.lower or piece.upper > last.end[piece.partition]:
            require(facts, lower=piece.lower, upper=piece.upper)
        return facts, open_object(facts, lower=piece.lower, upper=piece.upper)

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield what a function returns of each item, in their order; several wait for the store at once."""
        return at_once(function, items)

    def _moved(self, known: FileFacts, piece: Slice) -> FileFacts:
        """Return what a file is by now that was bound elsewhere; what it was in this store, if it is no other."""
        if not self._listed:
            self._listed.append(objects_of(self.pattern, None))
        folder, position = folder_of(self.pattern), self.bound.frontier[piece.partition]
        for each in self._listed[0].objects:
            if moved(known.path, each.path, folder) and (facts := stands_for(each, known, position)) is not None:
                return facts
        if known.etag:
            return known
        raise FileGone(path=known.path, lower=piece.lower, upper=piece.upper)
