"""Write the tests of each case into `docs/reference/cases.md`; with `--check`, say whether the page is up to date.

A test's name may begin with the numbers of cases: `test_t05_t06_...`. The page has one line for each number, written
by hand; this script lists the tests below it. It refuses a number without a line, and a line without a test.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "cases.md"
NAME = re.compile(r"^ *def (?P<test>test(?P<numbers>(?:_(?:[abcfkoprstx]\d+|p[a-g]))+)_\w+)", re.MULTILINE)
CASE = re.compile(r"- \*\*(\w+)\*\* ")
TEST = "  - `tests/"
Tests = Mapping[str, list[str]]


def numbered(folder: Path) -> Tests:
    """Return the tests of each number, as pytest calls them."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        for named in NAME.finditer(path.read_text()):
            for number in named["numbers"].split("_")[1:]:
                found[number].append(f"{path.relative_to(ROOT)}::{named['test']}")
    return found


def rewritten(page: str, tests: Tests) -> str:
    """Return the page with the tests below their cases, and no others."""
    lines = []
    for line in page.splitlines():
        if line.startswith(TEST):
            continue
        lines.append(line)
        if case := CASE.match(line):
            lines.extend(f"  - `{test}`" for test in tests.get(case[1], []))
    return "\n".join(lines) + "\n"


def complaints(page: str, tests: Tests) -> Iterator[str]:
    """Yield what a person must put right."""
    described = CASE.findall(page)
    for number in sorted(tests.keys() - set(described)):
        yield f"{number} has no line, write one into {PAGE.relative_to(ROOT)}: {tests[number][0]}"
    for number in sorted(set(described) - tests.keys()):
        yield f"{number} has a line in {PAGE.relative_to(ROOT)} and no test"
    for number in sorted({number for number in described if described.count(number) > 1}):
        yield f"{number} has several lines in {PAGE.relative_to(ROOT)}"


def main() -> int:
    """Write or check the page."""
    page, tests = PAGE.read_text(), numbered(ROOT / "tests")
    wrong, wanted = list(complaints(page, tests)), rewritten(page, tests)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted)
    elif page != wanted:
        wrong.append("docs/reference/cases.md is not up to date: run 'make docs'")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
