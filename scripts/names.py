"""Check that no two classes in `src` share a name: one word, one thing. Private and nested classes count too.

`DOUBLE` lists the names that still have several classes, and how many. It may only shrink: the check refuses a new
name, one more class of a listed name, and an entry that has become too high.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOUBLE = {
    "Probe": 2,
}
Places = Mapping[str, list[str]]


def classes(folder: Path) -> Places:
    """Return where each class name is defined below a folder, as `file:line`."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def complaints(found: Places, allowed: Mapping[str, int]) -> Iterator[str]:
    """Yield what is wrong with the names found, given how many classes each may have."""
    for name, places in sorted(found.items()):
        if len(places) > allowed.get(name, 1):
            yield f"{len(places)} classes are named {name}, rename yours: {', '.join(places)}"
    for name, times in sorted(allowed.items()):
        if len(found.get(name, [])) < times:
            yield f"fewer than {times} classes are named {name} now: update its entry in scripts/names.py"


def main() -> int:
    """Check the names."""
    wrong = list(complaints(classes(ROOT / "src"), DOUBLE))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
