"""Changes of a flow since it ran last: outputs that are new or gone, and those whose code is another one.

    its table holds     the store knows its code    it has now          then
    nothing             whatever                    whatever            it begins with what it has
    rows                no                          whatever            it is taken over, silently
    rows                yes                         the same            it goes on
    rows                yes                         another one         refused
    rows, and failed    yes                         another one         it goes on with that: it was corrected
    rows                yes                         another one, by     it goes on with that, as `schema=` says
                                                    which rows get
                                                    more columns

Code that cannot be compared, because another version of Python has compiled it, counts as the same. It is recorded
in place of the other.

Invariant: nothing is staged with code that is not recorded, nor with another one than its table's rows were made by
unless somebody has said so; each record says from which epoch on.

>>> from datetime import UTC
>>> from tidegauge.job.plan import Filter, OutputPlan
>>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
>>> def code(condition):
...     return code_of(OutputPlan("late", "orders", "rows", (Filter(condition),), sink=None))
>>> begun = standing((), code("n > 1"), upper=0, first=3, failed=False, at=noon)
>>> begun.word, [one.epoch for one in begun.records]
('new', [3])
>>> standing(begun.records, code("n > 1"), upper=7, first=3, failed=False, at=noon) == CodeStanding("", begun.records)
True
>>> refused = standing(begun.records, code("n > 2"), upper=7, first=3, failed=False, at=noon)
>>> refused.word, refused.changes, refused.records == begun.records
('refused', ('step 1 (filter) is another',), True)
>>> corrected = standing(begun.records, code("n > 2"), upper=7, first=3, failed=True, at=noon)
>>> corrected.word, [one.epoch for one in corrected.records]
('changed', [3, 7])

A table that is written anew has rows of several codes, too:

>>> made_by_other(corrected.records, code("n > 2"), [range(2, 9)])
OtherCode(epochs=(range(3, 7),), changes=('step 1 (filter) is another',))
>>> [one.epoch for one in rewritten(corrected.records, code("n > 2"), first=5, at=noon)]
[3, 5]
>>> [one.epoch for one in rewritten(corrected.records, code("n > 1"), first=5, at=noon)]
[3]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest
from typing import Literal

from tidegauge.errors.outputs import CodeChanged
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.code import OutputCode, changes, code_of, comparable, giving_columns
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store import CodeRecord, Lease, Loaded, Store

__all__ = ["CodeStanding", "OtherCode", "accepted", "made_by_other", "rewritten", "settled_codes", "standing"]


@dataclass(frozen=True, slots=True)
class CodeStanding:
    """How an output's code stands to that of its rows: in a word, "" for unchanged, and the records to keep."""

    word: Literal["", "new", "changed", "refused"]
    records: tuple[CodeRecord, ...]
    changes: tuple[str, ...] = ()


def standing(
    known: Sequence[CodeRecord],
    now: OutputCode,
    *,
    upper: int,
    first: int,
    failed: bool,
    at: datetime,
    adding: bool = False,
) -> CodeStanding:
    """Return how an output's code stands to that of its rows.

    known: the records so far. now: its code. upper: its table's. first: the first epoch that it is given. failed:
    whether it has failed for a reason of its own, and lacks the epoch at which it did. adding: whether its rows have
    columns that its table lacks, and may get.
    """
    before = OutputCode.decode(known[-1].code) if known else None
    found = changes(before, now) if before is not None else ()
    if not upper:
        if before == now and [one.epoch for one in known] == [first]:
            return CodeStanding("", tuple(known))
        anew = (CodeRecord(first, now.encode(), at),)
        return CodeStanding("changed" if found else "" if known else "new", anew, found)
    earlier = tuple(one for one in known if one.epoch < upper)
    if before is None:
        return CodeStanding("", (*earlier, CodeRecord(upper, now.encode(), at)))
    if found:
        goes_on = failed or (adding and giving_columns(before, now))
        return accepted(known, now, upper=upper, at=at) if goes_on else CodeStanding("refused", tuple(known), found)
    last = known[-1] if comparable(before, now) else replace(known[-1], code=now.encode())
    return CodeStanding("", (*known[:-1], last) if last.epoch <= upper else (*earlier, replace(last, epoch=upper)))


def accepted(known: Sequence[CodeRecord], now: OutputCode, *, upper: int, at: datetime) -> CodeStanding:
    """Return how an output goes on with the code that it has now, from its table's upper on."""
    earlier = tuple(one for one in known if one.epoch < upper)
    before = OutputCode.decode(known[-1].code) if known else None
    found = () if before is None else changes(before, now)
    return CodeStanding("changed", (*earlier, CodeRecord(upper, now.encode(), at)), found)


@dataclass(frozen=True, slots=True)
class OtherCode:
    """Epochs of an output that its present code has not made, and how the code of the first of them differs."""

    epochs: tuple[range, ...]
    changes: tuple[str, ...]


def made_by_other(known: Sequence[CodeRecord], now: OutputCode, epochs: Iterable[range]) -> OtherCode | None:
    """Return those of some epochs that other code has made than an output has now; None if there are none.

    Epochs before the first record were written by a version that kept none, and count as the present code's.
    """
    found: list[range] = []
    differing: list[tuple[str, ...]] = []
    for one in epochs:
        for record, later in zip_longest(known, known[1:]):
            made = range(max(one.start, record.epoch), one.stop if later is None else min(one.stop, later.epoch))
            before = OutputCode.decode(record.code)
            if made and before is not None and (changed := changes(before, now)):
                found.append(made)
                differing.append(changed)
    return OtherCode(tuple(found), differing[0]) if found else None


def rewritten(known: Sequence[CodeRecord], now: OutputCode, *, first: int, at: datetime) -> tuple[CodeRecord, ...]:
    """Return which code has made an output's rows once all from an epoch on are made by its present one."""
    earlier = tuple(one for one in known if one.epoch < first)
    before = OutputCode.decode(earlier[-1].code) if earlier else None
    same = before is not None and not changes(before, now)
    return earlier if same else (*earlier, CodeRecord(first, now.encode(), at))


def settled_codes(
    flow: FlowSpec,
    loaded: Loaded,
    store: Store,
    lease: Lease,
    uppers: Mapping[str, int],
    *,
    starts: Mapping[str, StartRecord],
    at: datetime,
    replacing: Collection[str] = (),
    adding: Collection[str] = (),
    fence: Callable[[str], None] = lambda _output: None,
) -> tuple[str, ...]:
    """Make durable which code makes the outputs' rows, and return in words which are new, changed and gone.

    replacing: those whose rows are to change places with others: their code is recorded with that. uppers:
    those of the tables that are open. starts: where they begin, if not with their source. An output whose table is
    away is compared if that held rows. adding: outputs whose rows have columns that their tables lack, and may get.
    fence: keeps drivers with the old code from such a table. Raises `CodeChanged`.
    """
    found: dict[str, CodeStanding] = {}
    for name, plan in flow.outputs.items():
        known = loaded.outputs[name]
        if name in replacing:
            continue
        upper = uppers.get(name, known.held)
        failed = known.outstanding(upper) is not None
        if name in uppers or upper:
            first = starts[name].epoch if name in starts else 0
            found[name] = standing(
                known.codes, code_of(plan), upper=upper, first=first, failed=failed, at=at, adding=name in adding
            )
    refused = [name for name, one in found.items() if one.word == "refused"]
    if refused:
        name, *others = refused
        raise CodeChanged(
            output=name,
            since=loaded.outputs[name].codes[-1].epoch,
            epoch=uppers.get(name, loaded.outputs[name].held),
            changes="; ".join(found[name].changes),
            others=f"; the code of {', '.join(map(repr, others))} has changed, too" if others else "",
        )
    new = {
        name: found[name].records
        for name in uppers.keys() & found.keys()
        if found[name].records != loaded.outputs[name].codes
    }
    for name in new.keys() & set(adding):
        if found[name].word == "changed":
            fence(name)  # before the store knows of it: an older driver may be about to commit rows of the old code
    if new:
        store.record_codes(lease, new)
    words = [f"output {name} is being replaced; its table stays as it is until then" for name in replacing]
    return (*words, *_words(flow, loaded, found)) if loaded.flow.upper else ()


def _words(flow: FlowSpec, loaded: Loaded, found: Mapping[str, CodeStanding]) -> list[str]:
    said = [f"output {name} is new" for name, one in found.items() if one.word == "new"]
    said += [
        f"output {name} has changed, from epoch {one.records[-1].epoch} on: {'; '.join(one.changes)}"
        for name, one in found.items()
        if one.word == "changed"
    ]
    gone = [name for name in loaded.outputs if name not in flow.outputs]
    return said + [f"output {name} is gone from the flow; its table stays as it is" for name in gone]
