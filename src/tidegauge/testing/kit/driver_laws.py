"""The laws of several drivers at one table: two at once, one that died, one of another life, a table that is gone.

Invariant: whatever two drivers do, each epoch is in the table once, in whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidegauge.errors.base import Definite, TidegaugeError, brief
from tidegauge.sinks.protocol import Sweeping, Table
from tidegauge.testing.kit.dying import Deaths
from tidegauge.testing.kit.place import OTHER_LIFE, SinkOnTrial, job, rows
from tidegauge.testing.kit.sink_bench import ROWS, Removes
from tidegauge.testing.kit.trial import Law, LawBroken, NotTried, beside, expect, raises

__all__ = ["DRIVER_LAWS", "a_crash_leaves_all_or_nothing"]

SPARED: Final = 1_000_000
"""An instant that no commit comes to."""


def of_two_writers_one_wins(place: SinkOnTrial) -> None:
    """Of two drivers that commit the same epochs one wins, whenever each opened the table, and the other learns it.

    Compare and append in one transaction, or by one step that the other side lets only one take, such as creating a
    file that must not be there yet. The loser raises `TableUpperMismatch`.
    """
    for at in (0, 1):  # the first of them wins, then the second
        tables = [place.open(), place.open()]
        staged = [place.stage([at], "first"), place.stage([at], "second")]
        tables[at].commit(at, at + 1, ROWS, staged[at], write=job())
        late = _attempt(tables[1 - at], at, staged[1 - at])
        expect(late(), f"a commit of epoch {at}, which another driver had just committed, raised nothing")
    place.shows([*rows([0], "first"), *rows([1], "second")], 2, "two drivers committed epochs 0 and 1")


def of_two_commits_at_once_one_wins(place: SinkOnTrial) -> None:
    """Two commits of one epoch at the same instant: the rows of one of them are there, and the other raises.

    A look at the upper before the commit is not enough; the other may commit between the two.
    """
    for epoch in range(3):
        tables = [place.open(), place.open()]
        staged = [place.stage([epoch], "first"), place.stage([epoch], "second")]
        jobs = [_attempt(table, epoch, files) for table, files in zip(tables, staged, strict=True)]
        won = [user for user, raised in zip(("first", "second"), beside(*jobs), strict=True) if not raised]
        expect(len(won) == 1, f"of two commits of epoch {epoch} at once {len(won)} came back without an error")
        seen = [row for row in place.bench.rows() if row["_epoch"] == epoch]
        same = [row["user"] for row in seen] == won
        expect(same, f"of two commits of epoch {epoch} at once {won[0]!r} won, and the rows are {seen}")
        expect(place.open().upper == epoch + 1, f"after epoch {epoch} the upper is {place.open().upper}")


def _attempt(table: Table, epoch: int, files: Any) -> Callable[[], bool]:
    def run() -> bool:
        try:
            table.commit(epoch, epoch + 1, ROWS, files, write=job())
        except (TidegaugeError, OSError):
            return True
        return False

    return run


def a_commit_whose_answer_was_lost_is_not_made_twice(place: SinkOnTrial) -> None:
    """A commit that is tried again under the same name, because its answer was lost, adds nothing.

    Keep the name of the last commit (`write`) with the upper: if it is this one, all is done. To raise
    `TableUpperMismatch` is right as well.
    """
    table, other = place.open(), place.open()
    files, write = place.stage([0]), job()
    table.commit(0, 1, ROWS, files, write=write)
    for again in (table, other, place.open()):
        try:
            again.commit(0, 1, ROWS, files, write=write)
        except (TidegaugeError, OSError):
            pass
        except Exception as error:
            raise LawBroken(f"a commit that was made already, tried again, raised {brief(error)}") from error
        place.shows(rows([0]), 1, "a commit was tried again under its name")
    place.commit(place.driven(), 1, 2)
    place.shows(rows([0, 1]), 2, "a commit was tried again under its name, then the next driver went on")


def a_crash_leaves_all_or_nothing(place: SinkOnTrial, crashes: int, within: float) -> None:
    """A driver that dies at any instant of a commit leaves all of it or nothing, and the next one goes on.

    Let one step make the rows and the upper visible: a transaction, a rename, a link. Do before it all that may fail,
    and after it only tidying.
    """
    if not crashes:
        raise NotTried("it was told to let no driver die (crashes=0)")
    with Deaths(within=within) as deaths:
        deaths.commit(place.another(), SPARED, "spared")  # it imports modules, which the later ones have
        first = deaths.commit(place, SPARED, "spared")
        place.shows(rows([0], "spared"), 1, "a driver in a process of its own committed epoch 0")
        for instant in _spread(first, (crashes + 1) // 2):  # the commit that makes the table
            other = place.another()
            _dies(deaths, other, instant, [])
        kept = rows([0], "spared")
        later = deaths.commit(place, SPARED, "spared")
        kept += rows([1], "spared")
        for instant in _spread(later, crashes):
            kept = _dies(deaths, place, instant, kept)


def _spread(count: int, crashes: int) -> list[int]:
    """Return some of the instants from 1 to `count`, the last among them."""
    some = min(count, crashes)
    return sorted({count - (count * n) // some for n in range(some)})


def _dies(deaths: Deaths, place: SinkOnTrial, instant: int, kept: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let a driver die and the next one go on; return the rows that there are then."""
    epoch = place.driven().upper
    deaths.commit(place, instant, "dying")
    told = f"the driver died in the commit of epoch {epoch}, before {deaths.before}"
    try:
        table = place.driven()
        expect(table.upper in (epoch, epoch + 1), f"{told}: the upper is {table.upper}")
        kept = [*kept, *rows(range(epoch, table.upper), "dying")]
        place.shows(kept, table.upper, told)
        epoch = table.upper
        place.commit(table, epoch, epoch + 1, "next")
    except LawBroken:
        raise
    except Exception as error:
        raise LawBroken(f"{told}: the next one raised {brief(error)}") from error
    kept = [*kept, *rows([epoch], "next")]
    place.shows(kept, epoch + 1, f"{told}, and the next one committed epoch {epoch}")
    return kept


def another_life_of_the_flow_is_refused(place: SinkOnTrial) -> None:
    """A table that another life of the flow wrote is refused: when it is opened, and when it came in between.

    Keep the incarnation with the upper, and compare it in `open` and in each commit. Raise
    `TableOfAnotherIncarnation`.
    """
    late = place.open(OTHER_LIFE)
    staged = place.stage([0], "late", output=OTHER_LIFE)
    place.commit(place.open(), 0, 2)
    told = "a table opened before the first commit, which another life then made: its commit"
    raises(Definite, told, lambda: late.commit(0, 1, ROWS, staged, write=job(OTHER_LIFE)))
    raises(Definite, "opening the table of another life", lambda: place.open(OTHER_LIFE))
    place.shows(rows([0, 1]), 2, "another life of the flow was refused")


def a_table_that_is_gone_is_noticed(place: SinkOnTrial) -> None:
    """A commit to a table that was removed or recreated raises; a table opened now is the present one.

    A driver that has committed up to 3 must not begin a new table at 3. Compare with the present table.
    """
    if not isinstance(place.bench, Removes):
        raise NotTried("the bench has no `remove`")
    table = place.open()
    place.commit(table, 0, 3)
    place.bench.remove()
    raises(TidegaugeError, "a commit of [3, 4) to a table that was removed", lambda: place.commit(table, 3, 4))
    place.shows([], 0, "the table was removed, and a commit refused")
    place.commit(place.driven(), 0, 1, "anew")
    raises(TidegaugeError, "a commit of [3, 4) to a table that was recreated", lambda: place.commit(table, 3, 4))
    place.shows(rows([0], "anew"), 1, "the table was recreated, and a commit to the old one refused")


def sweeping_clears_the_litter_of_drivers_that_died(place: SinkOnTrial) -> None:
    """A sweep removes files staged in vain, no committed row, and nothing at all when the lease is lost.

    Call `confirm` before the first removal, and let its error pass (`sinks.attempt.sweep`).
    """
    table = place.open()
    if not isinstance(table, Sweeping):
        raise NotTried("it has no `sweep`")
    place.commit(table, 0, 1)
    before = place.names()
    place.stage([1], "litter")
    again = place.open()

    def lost() -> None:
        raise _LeaseLost

    if isinstance(again, Sweeping):
        raises(_LeaseLost, "a sweep whose lease is lost", lambda: again.sweep(lost))
    place.shows(rows([0]), 1, "a sweep was given up, because the lease was lost")
    place.driven()
    left = place.names() - before
    expect(not left, f"after a sweep there is still {sorted(left)}")
    place.shows(rows([0]), 1, "litter was swept away")


class _LeaseLost(Exception):
    pass


DRIVER_LAWS: Final[tuple[Law[SinkOnTrial], ...]] = (
    of_two_writers_one_wins,
    of_two_commits_at_once_one_wins,
    a_commit_whose_answer_was_lost_is_not_made_twice,
    another_life_of_the_flow_is_refused,
    a_table_that_is_gone_is_noticed,
    sweeping_clears_the_litter_of_drivers_that_died,
)
"""What several drivers do, but for dying."""
