"""Fetching files from a Maven repository with Apache Ivy, which comes with PySpark.

Invariant: all that it writes is in the folder that it is given. It is told each file by its exact name, so that it
resolves nothing, and it reads no settings of the user's.

>>> proxies({"https_proxy": "http://proxy.example:3128", "NO_PROXY": "localhost,.example"})
['-Dhttps.proxyHost=proxy.example', '-Dhttps.proxyPort=3128', '-Dhttp.nonProxyHosts=localhost|*.example']
>>> trouble("downloading a.jar\\n  module not found: a#b;1\\n:: ERRORS\\n  Server access error (Connection refused)")
'Server access error (Connection refused); module not found: a#b;1'
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from tidegauge.engine.spark.session import check_java

__all__ = ["IvyFailed", "fetch", "proxies", "trouble"]

_WITHIN: Final = 600.0
"""Seconds that a fetch may take."""
_SIGNS: Final = [
    re.compile(sign) for sign in ("access error|Exception|No space", "^Host .* not|FAILED", "not found:")
]
"""What Ivy says of a trouble, the most telling first."""


class IvyFailed(Exception):
    """Not all that was asked for is there; the text says why."""


def fetch(paths: Iterable[str], mirror: str, folder: Path, environ: Mapping[str, str]) -> None:
    """Put the files at these paths of a Maven repository into the folder. Raises `IvyFailed` and `JavaMissing`."""
    paths = list(paths)
    source = f'<ibiblio name="maven" m2compatible="true" usepoms="false" checksums="" root={quoteattr(mirror)}/>'
    (folder / "settings.xml").write_text(
        f'<ivysettings><settings defaultResolver="maven"/><resolvers>{source}</resolvers></ivysettings>'
    )
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="tidegauge" module="fetched"/>'
        f"<dependencies>{''.join(map(_dependency, paths))}</dependencies></ivy-module>"
    )
    java = [check_java(environ, who="fetching JARs"), "-Xmx256m", "-XX:TieredStopAtLevel=1", *proxies(environ)]
    ivy = [f"-Divy.default.ivy.user.dir={folder}/user", "-jar", str(_program(environ))]
    where = ["-settings", f"{folder}/settings.xml", "-ivy", f"{folder}/ivy.xml", "-cache", f"{folder}/cache"]
    to = ["-confs", "default", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(  # noqa: S603
            [*java, *ivy, *where, *to],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise IvyFailed(f"it took longer than {_WITHIN:.0f} seconds") from error
    if done.returncode != 0 or not all((folder / path.rsplit("/", 1)[1]).exists() for path in paths):
        raise IvyFailed(trouble(done.stdout + done.stderr))


def _dependency(path: str) -> str:
    """Return a file as a line of an Ivy file: the path names the group, the module and its version."""
    *group, name, version, _file = path.split("/")
    return f'<dependency org="{".".join(group)}" name="{name}" rev="{version}" transitive="false"/>'


def _program(environ: Mapping[str, str]) -> Path:
    spark = find_spec("pyspark")
    places = [*(spark.submodule_search_locations or ())] if spark else []
    places += [environ["SPARK_HOME"]] if environ.get("SPARK_HOME") else []
    found = [jar for place in places for jar in sorted(Path(place, "jars").glob("ivy-*.jar"))]
    if not found:
        raise IvyFailed(
            f"there is no Ivy in the folder 'jars' of PySpark ({os.pathsep.join(places) or 'not installed'})"
        )
    return found[-1]


def proxies(environ: Mapping[str, str]) -> list[str]:
    """Return what Java is to be told of the proxies that this user's environment names."""
    options: list[str] = []
    for scheme in ("http", "https"):
        named = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if not named:
            continue
        proxy = urlsplit(named if "//" in named else f"//{named}")
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    exempt = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(",")
    hosts = [f"*{host.strip()}" if host.strip().startswith(".") else host.strip() for host in exempt if host.strip()]
    return options + ([f"-Dhttp.nonProxyHosts={'|'.join(hosts)}"] if options and hosts else [])


def trouble(said: str) -> str:
    """Return what went wrong in what Ivy printed: three lines at most, causes before what they led to."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    found = [line for sign in _SIGNS for line in lines if sign.search(line)]
    return "; ".join(list(dict.fromkeys(found))[:3] or lines[-3:])
