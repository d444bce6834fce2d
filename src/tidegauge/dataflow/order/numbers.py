"""The total orders of numbers, and that of a single time.

Invariant: a summary is an amount from 1 up (0 is the identity, None), so whatever crosses a path comes out later.

>>> INT.results_in(3, 5), INT.normal(0), UNIT.minimum
(8, None, ())
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidegauge.dataflow.order.protocol import Order, Summary
from tidegauge.errors.dataflow import InvalidSummary

__all__ = ["INT", "UNIT", "Bounded", "Integers", "Unit", "amount"]


@dataclass(frozen=True, slots=True)
class Unit:
    """The order of one time, `()`: for data that is complete all at once. It has no summary but the identity.

    >>> UNIT.minimum, UNIT.less_equal((), ())
    ((), True)
    """

    minimum: tuple[()] = field(default=(), init=False, repr=False)
    maximum: tuple[()] = field(default=(), init=False, repr=False)
    total: bool = field(default=True, init=False, repr=False)

    def has(self, value: object, /) -> bool:
        """Whether a value is the one time."""
        return value == ()

    def less_equal(self, a: tuple[()], b: tuple[()], /) -> bool:  # noqa: ARG002
        """There is but one time."""
        return True

    def sort_key(self, time: tuple[()], /) -> tuple[()]:
        """Return the time itself."""
        return time

    def join(self, a: tuple[()], b: tuple[()], /) -> tuple[()]:  # noqa: ARG002
        """Return the one time."""
        return ()

    def meet(self, a: tuple[()], b: tuple[()], /) -> tuple[()]:  # noqa: ARG002
        """Return the one time."""
        return ()


@dataclass(frozen=True, slots=True)
class Integers:
    """The integers from 0 up; a summary is an amount to add.

    >>> INT.results_in(3, 5), INT.followed_by(5, 15)
    (8, 20)
    """

    minimum: int = field(default=0, init=False, repr=False)
    maximum: int | None = field(default=None, init=False, repr=False)
    total: bool = field(default=True, init=False, repr=False)
    steady: bool = field(default=True, init=False, repr=False)

    def has(self, value: object, /) -> bool:
        """Whether a value is an integer from 0 up."""
        return isinstance(value, int) and value >= 0 and not isinstance(value, bool)

    def less_equal(self, a: int, b: int, /) -> bool:
        """The order of numbers."""
        return a <= b

    def sort_key(self, time: int, /) -> int:
        """Return the time itself."""
        return time

    def normal(self, summary: Summary, /) -> Summary:
        """Return the amount, None for 0. Raises InvalidSummary unless it is an integer from 0 up."""
        return amount(self, summary)

    def results_in(self, time: int, summary: int, /) -> int | None:
        """Return the sum."""
        return time + summary

    def followed_by(self, first: int, second: int, /) -> int | None:
        """Return the sum."""
        return first + second

    def summary_less_equal(self, a: int, b: int, /) -> bool:
        """The order of numbers."""
        return a <= b

    def join(self, a: int, b: int, /) -> int:
        """Return the larger."""
        return max(a, b)

    def meet(self, a: int, b: int, /) -> int:
        """Return the smaller."""
        return min(a, b)


@dataclass(frozen=True, slots=True)
class Bounded:
    """The integers from 0 to `limit`: a path that leads beyond cannot be crossed, so a loop over them ends.

    >>> Bounded(255).results_in(250, 5), Bounded(255).results_in(250, 10)
    (255, None)
    """

    limit: int
    minimum: int = field(default=0, init=False, repr=False)
    total: bool = field(default=True, init=False, repr=False)

    @property
    def maximum(self) -> int:
        """The limit."""
        return self.limit

    def has(self, value: object, /) -> bool:
        """Whether a value is an integer from 0 to the limit."""
        return INT.has(value) and self.less_equal(value, self.limit)  # type: ignore[arg-type]

    def less_equal(self, a: int, b: int, /) -> bool:
        """The order of numbers."""
        return a <= b

    def sort_key(self, time: int, /) -> int:
        """Return the time itself."""
        return time

    def normal(self, summary: Summary, /) -> Summary:
        """Return the amount, None for 0. Raises InvalidSummary unless it is an integer from 0 up."""
        return amount(self, summary)

    def results_in(self, time: int, summary: int, /) -> int | None:
        """Return the sum, None beyond the limit."""
        return time + summary if time + summary <= self.limit else None

    def followed_by(self, first: int, second: int, /) -> int | None:
        """Return the sum, None beyond the limit: not even the minimum can cross such a path."""
        return first + second if first + second <= self.limit else None

    def summary_less_equal(self, a: int, b: int, /) -> bool:
        """The order of numbers."""
        return a <= b

    def join(self, a: int, b: int, /) -> int:
        """Return the larger."""
        return max(a, b)

    def meet(self, a: int, b: int, /) -> int:
        """Return the smaller."""
        return min(a, b)


def amount(order: Order[int], summary: Summary) -> Summary:
    """Return an amount in normal form, None for 0. Raises InvalidSummary unless it is an integer from 0 up.

    >>> amount(INT, 0), amount(INT, 2)
    (None, 2)
    """
    if summary is None or (isinstance(summary, int) and not isinstance(summary, bool) and summary >= 0):
        return summary or None
    raise InvalidSummary(summary=repr(summary), order=repr(order), problem="it is not an integer from 0 up")


UNIT: Final = Unit()
INT: Final = Integers()
