"""Check that no two classes in `src` share a name, and no type alias one with a class: one word, one thing.

Private and nested classes count too.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
Places = Mapping[str, list[str]]


def named(folder: Path) -> tuple[Places, Places]:
    """Return where each class is defined below a folder, and each type alias, as `file:line`."""
    classes, aliases = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ClassDef(name=name):
                    classes[name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
                case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                    aliases[name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return classes, aliases


def complaints(classes: Places, aliases: Places) -> Iterator[str]:
    """Yield the names of classes that something else has, too."""
    for name, places in sorted(classes.items()):
        if len(places) > 1:
            yield f"{len(places)} classes are named {name}, rename yours: {', '.join(places)}"
        if name in aliases:
            yield f"a class and a type alias are named {name}, rename yours: {', '.join((*places, *aliases[name]))}"


def main() -> int:
    """Check the names."""
    wrong = list(complaints(*named(ROOT / "src")))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
