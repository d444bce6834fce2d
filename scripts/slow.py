"""Write `tests/slow.txt`: the tests whose cells together took a while in a run, 0.7 seconds or as many as you say.

Invariant: a line is a test without its parameters, and the lines are sorted. No line is taken out: of most slow tests
a run has a fourth alone. Empty the file first, and run with `TIDEGAUGE_TURNS=all` and without `-m`, to begin anew.

    .venv/bin/pytest -n 3 --dist loadgroup -m "not long" --junitxml=quick.xml
    python scripts/slow.py quick.xml
    TIDEGAUGE_DEEP=1 .venv/bin/pytest -n 2 --dist loadgroup -m "(long or deep) and not later" --junitxml=long.xml
    python scripts/slow.py long.xml 10
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SLOW: Final = Path(__file__).parents[1] / "tests" / "slow.txt"
SECONDS: Final = 0.7


def slow(took: Iterable[tuple[str, str, float]], least: float = SECONDS) -> list[str]:
    """Return the slow ones of tests: each a module, a name with its parameters, and seconds.

    least: how many seconds all cells of a test together take for it to be slow.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    for module, name, seconds in took:
        if module.startswith("tests."):
            sums[f"{module.replace('.', '/')}.py::{name.partition('[')[0].partition('@')[0]}"] += seconds
    return sorted(test for test, seconds in sums.items() if seconds >= least)


def main(report: str, least: str = str(SECONDS)) -> None:
    cases = ET.parse(report).iter("testcase")
    took = ((case.get("classname", ""), case.get("name", ""), float(case.get("time", "0"))) for case in cases)
    found = slow(took, float(least))
    # Those whose turn it was not are slow as before.
    known = SLOW.read_text().split()
    SLOW.write_text("".join(f"{test}\n" for test in sorted({*found, *known})))


if __name__ == "__main__":
    main(*sys.argv[1:])
