"""Each mutant can still be planted. `make mutants` sees whether it is found, which takes minutes."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_each_mutant_still_fits_the_sources() -> None:
    planted = ["git", "apply", "--check", "--numstat"]
    misfits = {
        patch.name: tried.stderr
        for patch in sorted((ROOT / "tests/mutants").glob("*.patch"))
        if (tried := subprocess.run([*planted, patch], cwd=ROOT, capture_output=True, text=True)).returncode
    }
    assert misfits == {}


def test_each_mutant_says_what_it_is_and_who_finds_it() -> None:
    words = ("Planted:", "Breaks:", "Idea:", "found-by:")
    lacking = {
        patch.name: missing
        for patch in sorted((ROOT / "tests/mutants").glob("*.patch"))
        if (missing := [word for word in words if f"\n{word}" not in f"\n{patch.read_text()}"])
    }
    assert lacking == {}
