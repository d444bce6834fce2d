"""What strategies refuse, when, and how; and that nobody needs Hypothesis who does not ask for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tidegauge.dataflow import INT, PARTITIONED, Product
from tidegauge.errors.testing import InvalidStrategy, NoStrategyKnown
from tidegauge.testing.strategies import (
    advancing_frontiers,
    antichains,
    arrivals,
    clock_frontiers,
    cut_twice,
    cuts,
    frontiers,
    intervals,
    record_streams,
    remap_histories,
    rows,
    schemas,
    shared_histories,
    summaries,
    times,
    values,
)


class Words:
    """An order of the user's own."""

    minimum, total = "", False

    def less_equal(self, a: str, b: str, /) -> bool:
        return b.startswith(a)

    def sort_key(self, word: str, /) -> str:
        return word


@pytest.mark.parametrize(
    ("ask", "parameter"),
    [
        (lambda: times(INT, max_value=-1), "max_value"),
        (lambda: times(PARTITIONED, keys=[1, 2]), "keys"),  # type: ignore[arg-type]
        (lambda: summaries(INT, max_value=True), "max_value"),
        (lambda: intervals(keys="ab"), "keys"),  # type: ignore[arg-type]
        (lambda: antichains(INT, max_size=2.0), "max_size"),  # type: ignore[arg-type]
        (lambda: antichains(INT, min_size=3, max_size=2), "min_size"),
        (lambda: antichains(Words(), times=["a"]), "times"),  # type: ignore[arg-type]
        (lambda: antichains(7, times=st.integers()), "order"),  # type: ignore[arg-type]
        (lambda: frontiers(partitions=["p0"]), "partitions"),  # type: ignore[arg-type]
        (lambda: frontiers(max_size=-1), "max_size"),
        (lambda: advancing_frontiers(steps=1), "steps"),  # type: ignore[arg-type]
        (lambda: advancing_frontiers(min_size=9), "min_size"),
        (lambda: remap_histories(max_gap=-1), "max_gap"),
        (lambda: shared_histories([]), "sources"),
        (lambda: shared_histories("ab"), "sources"),
        (lambda: shared_histories(["a", "a"]), "sources"),
        (lambda: record_streams(max_hole=None), "max_hole"),  # type: ignore[arg-type]
        (lambda: record_streams(values=3), "values"),  # type: ignore[arg-type]
        (lambda: cuts(7), "whole"),
        (lambda: cuts({1, 2}), "whole"),
        (lambda: arrivals([("p0", 1)]), "stream"),  # type: ignore[list-item]
        (lambda: cut_twice([b"ab"], cuts), "wholes"),  # type: ignore[arg-type]
        (lambda: cut_twice(st.just(b"ab"), 3), "cut"),  # type: ignore[arg-type]
        (lambda: schemas(min_size=0), "min_size"),
        (lambda: schemas(types=[pa.int8()]), "types"),  # type: ignore[arg-type]
        (lambda: rows(min_size=2, max_size=1), "min_size"),
    ],
)
def test_a_bad_argument_is_refused_when_it_is_given(ask: Callable[[], object], parameter: str) -> None:
    with pytest.raises(InvalidStrategy) as caught:
        ask()
    assert caught.value.evidence["parameter"] == parameter


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda: times(Words()), "Words"),
        (lambda: times(Product(INT, Words())), "Words"),
        (lambda: summaries(Words()), "Words"),
        (lambda: antichains(Words()), "Words"),
        (lambda: times(7), "7"),  # type: ignore[arg-type]
        (lambda: clock_frontiers("lsn"), "lsn"),  # type: ignore[arg-type]
        (lambda: values(pa.timestamp("ns")), "ns"),
        (lambda: values(pa.list_(pa.duration("s"))), "duration"),
        (lambda: values(pa.struct([])), "struct"),
        (lambda: values(pa.map_(pa.list_(pa.int8()), pa.int8())), "map"),
    ],
)
def test_what_has_no_values_here_is_said_with_the_next_thing_to_do(ask: Callable[[], object], named: str) -> None:
    with pytest.raises(NoStrategyKnown) as caught:
        ask()
    assert named in caught.value.evidence["thing"]
    assert caught.value.next_step


def test_the_strategies_load_hypothesis_and_the_package_around_them_does_not() -> None:
    tell = "import sys, tidegauge.testing; print('hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_hypothesis_the_error_says_what_to_install() -> None:
    hide = "import sys; sys.modules['hypothesis'] = None; import tidegauge.testing.strategies"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True)
    assert "TG-0940" in done.stderr
    assert "pip install 'tidegauge[testing]'" in done.stderr
