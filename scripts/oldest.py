"""Runs the main job in an environment of the oldest versions that `pyproject.toml` declares of each main dependency.

The environment is made once, by pip, in the cache of this user and not in the tree; another declaration makes another
one. What those versions depend on in turn is the newest that they allow, as it would be for a user.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tidegauge.testing.jars import cache

ROOT = Path(__file__).parents[1]
EXTRAS = ("kafka",)


def oldest(requirement: str) -> str:
    """Return the oldest version that a requirement allows, as a requirement.

    >>> oldest("pandas>=2.2,<3"), oldest("psycopg[binary]>=3.2")
    ('pandas==2.2', 'psycopg[binary]==3.2')
    """
    found = re.fullmatch(r"([\w.\[\]-]+)>=([\d.]+)(?:,.*)?", requirement.replace(" ", ""))
    if found is None:
        raise ValueError(f"{requirement!r} does not say which version is the oldest")
    return f"{found[1]}=={found[2]}"


def wanted() -> list[str]:
    """Return the oldest version of each main dependency, and of those of some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [requirement for extra in EXTRAS for requirement in project["optional-dependencies"][extra]]
    return [oldest(requirement) for requirement in [*project["dependencies"], *extras]]


def environment(requirements: list[str]) -> Path:
    """Return the Python of an environment with just these, which is made unless it is there."""
    what = "\n".join([sys.version, *requirements])
    folder = cache(os.environ, "oldest-" + hashlib.sha256(what.encode()).hexdigest()[:12])
    python, made = folder / "bin" / "python", folder / ".made"
    if not made.exists():
        for older in folder.parent.glob("oldest-*"):
            shutil.rmtree(older)  # half a gigabyte each
        print("Installing the oldest versions (once):", *requirements, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *requirements], check=True)
        made.touch()
    return python


def main() -> None:
    python = environment(wanted())
    paths = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    sys.exit(subprocess.run([python, ROOT / "scripts" / "smoke.py"], env=paths, check=False).returncode)


if __name__ == "__main__":
    main()
