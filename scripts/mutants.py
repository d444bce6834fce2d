"""Plants bugs, one at a time, each in a copy of the sources of its own, and demands that every one is found.

A mutant is a patch in `tests/mutants/`. Its head says what it plants, what that breaks and where the idea comes from;
each line `found-by:` names tests, or the simulation: of the reference flow, or of the one of a module,
`simulation of tests.simulation.pushed`, `from 1000` if it is to begin at that seed. The tests run on the copy with
the same examples each time (`mutants` in `tests/conftest.py`), and one of them has to fail; the simulation tries one
seed after another, and one of them has to break a law. A mutant that names both has to be found by both.

Invariants. Nothing is changed but the copies. A mutant that nothing finds fails the command, and so do a patch that
no longer applies and a finder that fails on the sources as they are, or that cannot say: an error in a finder is no
find. A mutant whose tests are skipped, for want of a server, is said to be untried.

    python scripts/mutants.py            all of them, two at a time
    python scripts/mutants.py 08 zombie  those whose names have one of these words in them
    python scripts/mutants.py --fourth   every fourth one; four commits in a row have all of them
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MUTANTS: Final = ROOT / "tests" / "mutants"
AT_ONCE: Final = 2
PATIENCE: Final = 120
"""Seconds for one test. A mutant may wait for what never comes; a test that fails by it has found it."""
LIMIT: Final = 600
"""Seconds for all tests of a mutant, or for half of all tests where nothing is planted."""

UNTRIED: Final = "its tests are skipped on this machine"
PROPERTIES: Final = "properties"
SIMULATION: Final = "simulation"
SEEDS: Final = 60
"""How many lives are simulated at most."""

_FOUND_BY: Final = re.compile(r"^found-by: (.+)$", re.MULTILINE)
_BODY: Final = re.compile(r"^--- a/", re.MULTILINE)
_PASSED: Final = re.compile(r"\b\d+ passed\b")
_FAILED: Final = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)


class Unusable(Exception):
    """Something is wrong with a mutant or a finder, so that nothing can be said."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch, and who should see it: tests, or the simulation."""

    name: str
    path: Path
    found_by: tuple[str, ...]

    @staticmethod
    def read(path: Path) -> Mutant:
        """Return the mutant of a patch. Raises `Unusable`."""
        head, *body = _BODY.split(path.read_text(), maxsplit=1)
        found_by = tuple(_FOUND_BY.findall(head))
        missing = [word for word in ("Planted:", "Breaks:", "Idea:") if word not in head]
        if not body or not found_by or missing:
            lacks = ", ".join([*missing, *["found-by:"] * (not found_by), *["a diff"] * (not body)])
            raise Unusable(f"{path.relative_to(ROOT)} lacks {lacks}")
        return Mutant(path.stem, path, found_by)


def properties(source: Path, names: Sequence[str]) -> str | None:
    """Run tests on a copy of the sources. Return the first that fails, None where all pass, `UNTRIED` where all are
    skipped. Raises `Unusable`."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants", f"--timeout={PATIENCE}"]
    command = [sys.executable, "-m", "pytest", *options, *names]
    code, said = run(command, source)
    if code == 0:
        return None if _PASSED.search(said) else UNTRIED
    failed = _FAILED.search(said)
    if code != 1 or failed is None:
        raise Unusable(f"pytest ended with {code}:\n{said[-2000:]}")
    return failed[1]


def simulation(source: Path, names: Sequence[str]) -> str | None:
    """Simulate lives on a copy of the sources. Return in how many seeds a law broke, and which. Raises `Unusable`."""
    found = (_simulated(source, name.removeprefix(SIMULATION).removeprefix(" of ")) for name in sorted({*names}))
    return next((broken for broken in found if broken is not None), None)


def _simulated(source: Path, flow: str) -> str | None:
    flow, _, first = flow.partition(" from ")
    of = [*(["--flow", flow] if flow else []), *(["--first", first] if first else [])]
    code, said = run([sys.executable, "-m", "tests.simulation.search", "--most", str(SEEDS), *of], source)
    try:
        found = json.loads(said.splitlines()[-1])
        return None if found["failed"] is None else f"{found['seeds']} seeds, {found['what']}"
    except (IndexError, KeyError, TypeError, ValueError):
        raise Unusable(f"the simulation ended with {code}:\n{said[-2000:]}") from None


Finder = Callable[[Path, Sequence[str]], str | None]
FINDERS: Final[Mapping[str, Finder]] = {PROPERTIES: properties, SIMULATION: simulation}
"""Who looks for mutants, given what `found-by:` names of it. It returns what it found, or None."""


def told(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the finders that `found-by:` names, each with what it looks with."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(SIMULATION if name.startswith(SIMULATION) else PROPERTIES, []).append(name)
    return found


def run(command: Sequence[str], source: Path) -> tuple[int, str]:
    """Run a command that imports from a copy of the sources; return how it ended and what it said."""
    env = {**os.environ, "PYTHONPATH": str(source)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    out, err = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(
        command, cwd=ROOT, env=env, text=True, stdout=out, stderr=err, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Unusable(f"{' '.join(command)} took more than {LIMIT} seconds") from None
        return process.returncode, said


def apply(mutant: Mutant, folder: Path, *options: str) -> None:
    """Plant a bug in the copy of the sources in a folder. Raises `Unusable` where the patch does not apply."""
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", "--whitespace=nowarn", *options, str(mutant.path)]
    done = subprocess.run(command, cwd=folder, env=env, text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise Unusable(f"{mutant.path.relative_to(ROOT)} no longer applies: mend it or drop it\n{done.stderr}")


def look(mutant: Mutant, clean: Path) -> tuple[dict[str, str | None], float]:
    """Return what each finder found of a mutant, and in how many seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as folder:
        shutil.copytree(clean, source := Path(folder) / "src")  # with what is compiled of it: times are kept
        apply(mutant, Path(folder))
        found = {name: FINDERS[name](source, names) for name, names in told(mutant.found_by).items()}
    return found, time.monotonic() - began


def sound(clean: Path, mutants: Sequence[Mutant]) -> None:
    """Raise `Unusable` where a patch does not apply, or a finder finds something in the sources as they are."""
    for mutant in mutants:
        apply(mutant, clean.parent, "--check")
    asked = told(sorted(set(chain.from_iterable(mutant.found_by for mutant in mutants))))
    tests, flows = (asked.get(finder, []) for finder in (PROPERTIES, SIMULATION))
    parts = [(PROPERTIES, part) for part in (tests[first::AT_ONCE] for first in range(AT_ONCE)) if part]
    parts += [(SIMULATION, [flow]) for flow in flows]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        looks = [(name, pool.submit(FINDERS[name], clean, part)) for name, part in parts]
    for name, done in looks:
        if (found := done.result()) not in (None, UNTRIED):
            raise Unusable(f"{name} find something where nothing is planted: {found}")


def chosen(words: Sequence[str]) -> list[Path]:
    """Return the patches that the words of the command name."""
    paths = sorted(MUTANTS.glob("*.patch"))
    if list(words) == ["--fourth"]:
        count = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        return paths[int(count.stdout or 0) % 4 :: 4]
    return [path for path in paths if not words or any(word in path.stem for word in words)]


def main(words: Sequence[str]) -> int:
    paths = chosen(words)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        clean = Path(folder) / "src"
        shutil.copytree(ROOT / "src", clean, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(clean, quiet=1)
        try:
            mutants = [Mutant.read(path) for path in paths]
            sound(clean, mutants)
            print(f"{len(mutants)} mutants; nothing is found where none is planted", flush=True)
            missed = untried = 0
            with ThreadPoolExecutor(AT_ONCE) as pool:
                for mutant, (found, seconds) in zip(
                    mutants, pool.map(partial(look, clean=clean), mutants), strict=True
                ):
                    missed += None in found.values()
                    untried += UNTRIED in found.values()
                    said = "; ".join(f"{name}: {it or 'NOT FOUND'}" for name, it in found.items())
                    print(f"{mutant.name:52} {seconds:5.1f} s  {said}", flush=True)
        except Unusable as error:
            print(error, file=sys.stderr)
            return 2
    tried = len(mutants) - untried
    print(f"{tried - missed} of {tried} were found" + f", and {untried} could not be tried" * bool(untried))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
