"""Law: a flow has the same rows in the same epochs, columns and errors on the local engine, on Spark, and on Sail.

What only Spark runs, the others refuse before anything is there. And what runs without Spark has the rows that Spark
gives when the steps are left to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from tests.depth import commits
from tests.engine.drawn.agreeing import differing
from tests.engine.drawn.described import Described
from tests.engine.drawn.drawing import WORDS, described
from tests.engine.drawn.on_sail import Beside, beside
from tests.engine.plain.texts import SLOW

pytestmark = pytest.mark.spark

DRAWN = settings(deadline=None, suppress_health_check=SLOW)
SEED = "TIDEGAUGE_FLOWS_SEED"


@pytest.fixture(scope="module")
def sail() -> Iterator[Beside | None]:
    """Sail in a process of its own, where it is installed."""
    if find_spec("pysail") is None:
        yield None
        return
    with beside() as found:
        yield found


def rich(flow: Described) -> bool:
    """Whether a flow has most kinds of steps."""
    return len({word for output in flow.outputs for word, *_ in output.steps}) >= len(WORDS) - 2


@settings(max_examples=2, derandomize=True, deadline=None, phases=[Phase.generate], suppress_health_check=SLOW)
@given(flow=described(least=5, most=6).filter(rich))
def test_a_flow_of_many_steps_has_the_same_tables_everywhere(
    classic: Any, sail: Beside | None, flow: Described
) -> None:
    assert differing(flow, classic, sail) == []


@pytest.mark.long
def test_any_flow_has_the_same_tables_everywhere(classic: Any, sail: Beside | None) -> None:
    """Each commit tries flows of its own."""
    chosen = int(os.environ.get(SEED) or commits())
    print(f"once more: {SEED}={chosen}", file=sys.stderr)

    @seed(chosen)
    @settings(DRAWN, max_examples=12, database=None)
    @given(flow=described())
    def agrees(flow: Described) -> None:
        assert differing(flow, classic, sail) == []

    agrees()
