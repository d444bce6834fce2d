"""Count the turns of phrase that we are getting rid of; with `--check`, say whether `prose.txt` has today's counts.

The prose is in the README, in `docs`, and in the docstrings and error texts of `src`. `prose.txt` lists how many of
the turns each file has. The total may only shrink: without `--check`, the script updates the list, unless that would
raise it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("prose.txt")
GENERATED = ROOT / "docs" / "reference" / "errors.md"
TURNS = {
    r"what (?:is|are|was|were|has|had)": "name the thing: 'the data', 'an expired message'",
    r"whoever|who (?:asks|looks|reads|runs|wants|writes)": "say 'you', or name the part that does it",
    r"so (?:many|much)": "give the number, or say 'that many'",
    r"as (?:it stands|they stand|it is|they are)": "'unchanged', 'literally', 'verbatim'",
    r"that d(?:id|oes) nothing else": "'an otherwise idle machine'",
    r"(?:by|in|of) which": "make it two sentences",
    r"(?:is|are|was|were) said": "say who reports it",
    r"of one's own": "'your own'",
    r"unless told": "'by default'",
    r"(?:is|are|was|were) passed over": "'skipped', 'ignored'",
    r"made anew": "'recreated', 'replaced', 'made again'",
}
PATTERNS = {re.compile(r"\b(?:" + turn.replace(" ", r"\s+") + r")\b", re.IGNORECASE): turn for turn in TURNS}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the prose of a file, each piece with the line on which it begins."""
    text = path.read_text()
    if path.suffix == ".md":
        yield 1, FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)
        return
    for node in ast.walk(ast.parse(text)):
        said = node.value if isinstance(node, ast.Expr) else None
        if isinstance(node, ast.Assign | ast.AnnAssign) and "errors" in path.parts:
            said = node.value
        if isinstance(said, ast.Constant) and isinstance(said.value, str):
            yield said.lineno, said.value


def found(path: Path) -> list[str]:
    """Return each turn in a file: where it is, how it reads, and what to write instead."""
    turns = []
    for first, text in paragraphs(path):
        for pattern, turn in PATTERNS.items():
            for hit in pattern.finditer(text):
                line = first + text.count("\n", 0, hit.start())
                turns.append(f"{path.relative_to(ROOT)}:{line}: '{' '.join(hit[0].split())}': {TURNS[turn]}")
    return turns


def main() -> int:
    """Write or check the counts."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    turns = {str(path.relative_to(ROOT)): found(path) for path in sorted(files) if path != GENERATED}
    counts = {path: len(lines) for path, lines in turns.items() if lines}
    listed = {path: int(count) for count, path in (line.split() for line in LIST.read_text().splitlines())}
    if counts == listed:
        return 0
    more = [path for path in counts if counts[path] > listed.get(path, 0)]
    grown = sum(counts.values()) - sum(listed.values())
    if grown > 0:
        print(*(line for path in more for line in turns[path]), sep="\n", file=sys.stderr)
        print(f"{grown} more of the turns in scripts/prose.py than scripts/prose.txt allows", file=sys.stderr)
        return 1
    if "--check" in sys.argv[1:]:
        print("scripts/prose.txt is not up to date: run 'make docs'", file=sys.stderr)
        return 1
    LIST.write_text("".join(f"{count} {path}\n" for path, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
