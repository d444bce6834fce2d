"""Arguments of strategies, looked at when the strategy is asked for and not when the first example is drawn.

Invariant: a strategy that was returned can draw; what it cannot have is `InvalidStrategy`, which names it.

>>> between("cuts", "max_size", -1)
Traceback (most recent call last):
tidegauge.errors.testing.InvalidStrategy: TG-0941: cuts: max_size is -1, expected an integer from 0 up
...
"""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from tidegauge.errors.testing import InvalidStrategy

__all__ = ["between", "sizes", "strategies"]


def between(strategy: str, parameter: str, value: object, *, least: int = 0, most: int | None = None) -> None:
    """Raise `InvalidStrategy` unless a value is an integer within bounds."""
    if type(value) is not int or value < least or (most is not None and value > most):
        bounds = f"from {least} up" if most is None else f"from {least} to {most}"
        raise InvalidStrategy(
            strategy=strategy, parameter=parameter, value=repr(value), expected=f"an integer {bounds}"
        )


def sizes(strategy: str, min_size: object, max_size: object, *, least: int = 0) -> None:
    """Raise `InvalidStrategy` unless two sizes are integers, the first no larger than the second."""
    between(strategy, "min_size", min_size, least=least)
    between(strategy, "max_size", max_size, least=least)
    if min_size > max_size:  # type: ignore[operator]
        raise InvalidStrategy(
            strategy=strategy, parameter="min_size", value=repr(min_size), expected=f"at most max_size, {max_size}"
        )


def strategies(strategy: str, **given: object) -> None:
    """Raise `InvalidStrategy` for a parameter that is no strategy, such as a list of what it should draw from.

    >>> strategies("frontiers", partitions=["p0"])
    Traceback (most recent call last):
    tidegauge.errors.testing.InvalidStrategy: TG-0941: frontiers: partitions is ['p0'], expected a Hypothesis strategy
    ...
    """
    for parameter, value in given.items():
        if not isinstance(value, SearchStrategy):
            raise InvalidStrategy(
                strategy=strategy, parameter=parameter, value=repr(value), expected="a Hypothesis strategy"
            )
