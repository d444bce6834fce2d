"""Kafka's programs, and what Spark takes for Kafka, Delta and PostgreSQL, from Maven Central into a cache, pinned.

Invariant: a JAR is in the cache whole and as pinned, or its name is not there: it is fetched beside the cache,
checked, and renamed into it. Cached JARs are checked again before each use, so neither a poisoned mirror nor a
poisoned cache gets to run anything.

>>> len(pins()), pins()["kafka-clients-4.1.1.jar"].path
(47, 'org/apache/kafka/kafka-clients/4.1.1/kafka-clients-4.1.1.jar')
>>> [name.rsplit("-", 1)[0] for name in pins(CONNECTOR)]
['commons-pool2', 'kafka-clients', 'spark-sql-kafka-0-10_2.13', 'spark-token-provider-kafka-0-10_2.13']
>>> cache({"HOME": "/home/ada"}).as_posix(), cache({"TIDEGAUGE_CACHE": "/var/cache/ada"}).as_posix()
('/home/ada/.cache/tidegauge/kafka-4.1.1', '/var/cache/ada/kafka-4.1.1')
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Final

from tidegauge.errors.redaction import Redaction
from tidegauge.errors.testing import JarsNotFetched, WrongJar
from tidegauge.testing import ivy

__all__ = ["CENTRAL", "CONNECTOR", "DELTA", "ICEBERG", "KAFKA", "POSTGRES", "Pin", "cache", "class_path", "pins"]

KAFKA: Final = "kafka-4.1.1"
"""A broker and its tools."""
CONNECTOR: Final = "spark-kafka-4.2.0"
"""What Spark 4.2 takes in `spark.jars` to read Kafka by itself, with the client that it is made for."""
DELTA: Final = "spark-delta-4.4.0"
"""What Spark 4.2 takes in `spark.jars` to read and write Delta tables by itself."""
ICEBERG: Final = "spark-iceberg-1.12.0"
"""What Spark 4.1 takes in `spark.jars` to read and write tables of Iceberg by itself, and the driver for SQLite."""
POSTGRES: Final = "spark-postgres-42.7.8"
"""What Spark takes in `spark.jars` to read tables of PostgreSQL by itself: its JDBC driver."""
CENTRAL: Final = "https://repo1.maven.org/maven2/"
_HIDE: Final = Redaction()


@dataclass(frozen=True, slots=True)
class Pin:
    """One JAR: where it is in a Maven repository, and the SHA-256 of its bytes."""

    path: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.rsplit("/", 1)[1]


@once
def pins(wanted: str = KAFKA) -> Mapping[str, Pin]:
    """Return every JAR of a set by its name, as the set's file lists them in the form of `sha256sum`."""
    listed = (Path(__file__).parent / f"{wanted}.sha256").read_text().splitlines()
    found = [Pin(path, sha256) for sha256, path in (line.split() for line in listed)]
    return {pin.name: pin for pin in found}


def cache(environ: Mapping[str, str], wanted: str = KAFKA) -> Path:
    """Return the cache folder of a set: in `TIDEGAUGE_CACHE`, or where this user keeps caches."""
    caches = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or Path.home(), ".cache")
    return Path(environ.get("TIDEGAUGE_CACHE") or os.path.join(caches, "tidegauge")).absolute() / wanted


def class_path(wanted: str = KAFKA, *, environ: Mapping[str, str] | None = None) -> str:
    """Return the class path of a set, fetching what the cache lacks.

    `TIDEGAUGE_MAVEN` names a mirror to be asked in place of Maven Central. Raises `JavaMissing`, `JarsNotFetched`,
    and `WrongJar` for a JAR that is not what it should be.
    """
    environ = os.environ if environ is None else environ
    folder = cache(environ, wanted)
    if _missing(folder, wanted):
        mirror = environ.get("TIDEGAUGE_MAVEN") or CENTRAL
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / ".lock"):
                _fill(folder, wanted, mirror, environ)
        except (OSError, ivy.IvyFailed) as error:
            shown = {"mirror": _HIDE.text(mirror), "detail": _HIDE.text(str(error))}
            raise JarsNotFetched(folder=folder, **shown) from None
    for pin in pins(wanted).values():
        _check(folder / pin.name, pin, str(folder))
    return os.pathsep.join(str(folder / name) for name in pins(wanted))


def _missing(folder: Path, wanted: str) -> list[Pin]:
    return [pin for pin in pins(wanted).values() if not (folder / pin.name).exists()]


def _check(file: Path, pin: Pin, origin: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != pin.sha256:
        raise WrongJar(jar=pin.name, origin=_HIDE.text(origin), found=found, wanted=pin.sha256)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock that other processes respect, and that goes with this one."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(folder: Path, wanted: str, mirror: str, environ: Mapping[str, str]) -> None:
    """Fetch what the folder lacks. Its lock is held, so what an interrupted fetch left is nobody's."""
    for left in folder.glob(".fetch-*"):
        shutil.rmtree(left, ignore_errors=True)
    missing = _missing(folder, wanted)
    if not missing:
        return
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    try:
        ivy.fetch([pin.path for pin in missing], mirror, work, environ)
        for pin in missing:
            _check(work / pin.name, pin, mirror)
        for pin in missing:
            (work / pin.name).replace(folder / pin.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
