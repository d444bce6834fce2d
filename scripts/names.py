"""Check that no two classes in `src` share a name: one word, one thing. Private and nested classes count too."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
Places = Mapping[str, list[str]]


def classes(folder: Path) -> Places:
    """Return where each class name is defined below a folder, as `file:line`."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def complaints(found: Places) -> Iterator[str]:
    """Yield the names that several classes have."""
    for name, places in sorted(found.items()):
        if len(places) > 1:
            yield f"{len(places)} classes are named {name}, rename yours: {', '.join(places)}"


def main() -> int:
    """Check the names."""
    wrong = list(complaints(classes(ROOT / "src")))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
