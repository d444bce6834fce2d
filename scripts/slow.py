"""Write `tests/slow.txt`: the tests whose cells together took two seconds or more in a run of the quick ones.

Invariant: a line is a test without its parameters, and the lines are sorted. No line is taken out: of most slow tests
a run has a third alone. Empty the file first, and run with `TIDEGAUGE_TURNS=all` and without `-m`, to begin anew.

    .venv/bin/pytest -n 3 --dist loadgroup -m "not long" --junitxml=took.xml
    python scripts/slow.py took.xml
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SLOW: Final = Path(__file__).parents[1] / "tests" / "slow.txt"
SECONDS: Final = 2.0


def slow(took: Iterable[tuple[str, str, float]]) -> list[str]:
    """Return the slow ones of tests: each a module, a name with its parameters, and seconds."""
    sums: defaultdict[str, float] = defaultdict(float)
    for module, name, seconds in took:
        if module.startswith("tests."):
            sums[f"{module.replace('.', '/')}.py::{name.partition('[')[0].partition('@')[0]}"] += seconds
    return sorted(test for test, seconds in sums.items() if seconds >= SECONDS)


def main(report: str) -> None:
    cases = ET.parse(report).iter("testcase")
    found = slow((case.get("classname", ""), case.get("name", ""), float(case.get("time", "0"))) for case in cases)
    # Those whose turn it was not are slow as before.
    known = SLOW.read_text().split()
    SLOW.write_text("".join(f"{test}\n" for test in sorted({*found, *known})))


if __name__ == "__main__":
    main(sys.argv[1])
