"""How far the objects are: the positions to bind now, given what the store lists and the bindings.

An object is whole at once, and never grows. So it enters once it was listed: all of it, or, of lines that are more
than an epoch takes, a part at a time. Nothing is read to admit one that fits.

    listed, known key and ETag                   nothing to do, or the rest of it
    listed, known key, another ETag              `ObjectOverwritten`; a new object, where losses are gone on from
    listed, not known                            new
    not listed, known, read to its end           nothing to do
    not listed, known, not read to its end       asked for by itself; gone: bound up to its end, and found lost

Invariant: the bytes of an object are bound with its ETag, and read from no other. A probe admits at most `limit`
bytes beyond the bound positions, or one object that is read whole; known objects come first, then new ones, in the
order of their keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tidegauge.errors.objects import ObjectOverwritten
from tidegauge.errors.sources import FileGone
from tidegauge.objects.client import at_once
from tidegauge.objects.listing import Listed
from tidegauge.remap.binding import Bound
from tidegauge.sources.file.admitting import admit_lines, columns_known
from tidegauge.sources.file.found import Rules, Survey, give_up, unread
from tidegauge.sources.file.identity import FileFacts, Seen, partition_key
from tidegauge.sources.file.memory import OpenFiles
from tidegauge.sources.file.objects.listing import ObjectListing
from tidegauge.sources.file.objects.moving import follow
from tidegauge.sources.file.objects.opening import object_facts, open_object, require
from tidegauge.sources.formats.protocol import is_whole

__all__ = ["survey_objects"]


def survey_objects(pattern: str, listing: ObjectListing, rules: Rules, bound: Bound) -> Survey:
    """Look at what a store listed just now.

    Raises `ObjectOverwritten`, `ObjectMovedUnclear`, `EndTakenBack`, `UnknownColumns`, `UnreadableFile`, and what
    asking the store does.
    """
    found = Survey.of(bound, OpenFiles())
    if listing.note:
        found.notes.append(listing.note)
        found.at_rest = False
    follow(pattern, listing, rules, found)
    strangers = _recognise(listing, rules, found)
    _look_for_missing(rules, found)
    for key in sorted(found.here, key=found.here.__getitem__):
        facts = FileFacts.of(found.known[key])
        if facts.size > found.positions.get(key, 0):
            _grow(key, facts, rules, found)
    for each in strangers:
        _enter(each, rules, found)
    give_up(unread(found), rules, found)
    found.gone = {key: position for key, position in bound.frontier.items() if key not in found.here}
    return found


def _recognise(listing: ObjectListing, rules: Rules, found: Survey) -> list[Listed]:
    """Note which known objects are here; return the others, which are new."""
    known = _by_path(found)
    strangers: list[Listed] = []
    for each in listing.objects:
        etags = known.get(each.path, {})
        if (key := etags.get(each.etag)) is not None:
            found.here[key] = each.path
            continue
        if etags and rules.stop:
            etag, key = next(reversed(etags.items()))
            position = found.positions.get(key, 0)
            raise ObjectOverwritten(path=each.path, bound=position, expected=etag, found=each.etag)
        strangers.append(each)
    return strangers


def _by_path(found: Survey) -> Mapping[str, dict[str, str]]:
    """Return the keys of the known objects, by their paths and their ETags."""
    known: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for key, detail in found.known.items():
        if etag := detail.get("etag"):
            known[str(detail["path"])][str(etag)] = key
    return known


@dataclass(frozen=True, slots=True)
class _There:
    """Asks whether a known object is there, though it was not listed."""

    found: Survey
    stop: bool

    def __call__(self, key: str) -> bool:
        facts = self.found.facts(key)
        if not facts.etag:
            return False
        try:
            require(facts, lower=self.found.positions.get(key, 0), upper=facts.size)
        except FileGone:
            return False
        except ObjectOverwritten:
            if self.stop:
                raise
            return False
        return True


def _look_for_missing(rules: Rules, found: Survey) -> None:
    """Ask for the objects that are not read to their end and were not listed: the pattern may name them no more."""
    missing = list(unread(found))
    for key, there in zip(missing, at_once(_There(found, rules.stop), missing), strict=True):
        found.at_rest = False
        if there:
            found.here[key] = str(found.known[key]["path"])


def _grow(key: str, facts: FileFacts, rules: Rules, found: Survey) -> None:
    """Admit the rest of a known object."""
    found.at_rest = False
    found.ends[key] = facts.size
    _admit(key, facts, rules, found)


def _enter(each: Listed, rules: Rules, found: Survey) -> None:
    """Take in an object that is not known, and admit it as far as the epoch has room."""
    found.at_rest = False
    facts = object_facts(each, whole=is_whole(rules.format, each.path))
    identity = f"{facts.path}:{facts.etag}"
    key = partition_key(_seen(facts), identity, taken=lambda key: key in found.known or key in found.details)
    found.tell(key, facts.detail())
    found.ends[key] = facts.size
    found.here[key] = facts.path
    _admit(key, facts, rules, found)


def _admit(key: str, facts: FileFacts, rules: Rules, found: Survey) -> None:
    lower = found.positions.get(key, 0)
    upper = _reached(facts, lower, rules, found)
    if upper > lower and rules.need_columns and found.columns is None:
        with open_object(facts) as stream:
            if not columns_known(stream, _seen(facts), upper, rules, found, final=upper == facts.size):
                return
    if upper > lower:
        found.positions[key] = upper
        found.taken += upper - lower


def _reached(facts: FileFacts, lower: int, rules: Rules, found: Survey) -> int:
    """Return how far an object is read within the rest of the epoch."""
    fits = facts.size - lower <= rules.limit - found.taken
    whole = bool(facts.whole or facts.packed)
    if not found.full and (fits or (whole and not found.taken)):
        return facts.size
    if found.full or whole or rules.line is None:
        found.full = found.more = True
        return lower
    with open_object(facts, lower=lower) as stream:
        return admit_lines(stream, rules.line, _seen(facts), lower, rules, found, final=True)


def _seen(facts: FileFacts) -> Seen:
    return Seen(path=facts.path, dev=0, ino=0, born=0, size=facts.size, modified=facts.modified)
