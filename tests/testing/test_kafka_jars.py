"""Kafka's programs are fetched whole, once, as pinned, or not at all."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.kafka import present

from tidegauge.errors.engine import JavaMissing
from tidegauge.errors.testing import JarsNotFetched, WrongJar
from tidegauge.testing.jars import CONNECTOR, cache, class_path, pins

SMALL = ("jspecify-1.0.0.jar", "kafka-tools-api-4.1.1.jar", "slf4j-api-1.7.36.jar")
"""What the tests fetch."""


@pytest.fixture(scope="module")
def whole() -> Path:
    """The cache of this machine, with everything in it."""
    present()
    return cache(os.environ)


@pytest.fixture
def mirror(tmp_path: Path, whole: Path) -> Path:
    """A Maven repository in a folder, with the small ones."""
    for name in SMALL:
        place = tmp_path / "mirror" / pins()[name].path
        place.parent.mkdir(parents=True)
        place.write_bytes((whole / name).read_bytes())
    return tmp_path / "mirror"


@pytest.fixture
def environ(tmp_path: Path, whole: Path, mirror: Path) -> Mapping[str, str]:
    """The environment of a user whose cache has everything but the small ones."""
    home = {"HOME": str(tmp_path), "TIDEGAUGE_CACHE": str(tmp_path / "cache"), "TIDEGAUGE_MAVEN": mirror.as_uri()}
    given = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    folder = cache(home)
    folder.mkdir(parents=True)
    for name in pins().keys() - set(SMALL):
        (folder / name).symlink_to(whole / name)
    return {**given, **home}


@pytest.fixture
def served(mirror: Path) -> Iterator[tuple[str, Counter[str]]]:
    """The mirror on a port of its own, and what was asked of it."""
    asked: Counter[str] = Counter()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path.rsplit("/", 1)[1]] += 1
            super().do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(mirror))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()
        thread.join()


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()} - {".lock"}


def test_what_an_interrupted_fetch_left_is_not_used_and_what_it_lacks_is_fetched(environ: Mapping[str, str]) -> None:
    left = cache(environ) / ".fetch-xyz"
    left.mkdir()
    (left / SMALL[0]).write_bytes(b"half of it")
    before = sorted(Path.home().glob(".ivy*"))
    found = class_path(environ=environ).split(os.pathsep)
    assert [Path(jar).name for jar in found] == list(pins())
    assert names(cache(environ)) == set(pins())
    assert sorted(Path.home().glob(".ivy*")) == before
    assert not list(Path(environ["HOME"]).glob(".ivy*"))


def test_two_at_once_fetch_once(environ: Mapping[str, str], served: tuple[str, Counter[str]]) -> None:
    address, asked = served
    both: list[str] = []
    user = {**environ, "TIDEGAUGE_MAVEN": address}
    threads = [threading.Thread(target=lambda: both.append(class_path(environ=user))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(both) == 2
    assert asked == dict.fromkeys(SMALL, 1)


def test_a_full_cache_needs_no_network(environ: Mapping[str, str], mirror: Path) -> None:
    for name in SMALL:
        (cache(environ) / name).write_bytes((mirror / pins()[name].path).read_bytes())
    assert class_path(environ={**environ, "TIDEGAUGE_MAVEN": "http://mirror.invalid/", "PATH": ""})


def test_a_jar_that_was_changed_in_the_cache_is_refused(environ: Mapping[str, str]) -> None:
    class_path(environ=environ)
    (cache(environ) / SMALL[1]).write_bytes(b"other programs")
    with pytest.raises(WrongJar, match=re.escape(f"TG-0882: {SMALL[1]} from {cache(environ)} is not the one")):
        class_path(environ=environ)


def test_a_jar_that_was_changed_on_the_mirror_never_gets_into_the_cache(
    environ: Mapping[str, str], mirror: Path
) -> None:
    (mirror / pins()[SMALL[1]].path).write_bytes(b"other programs")
    with pytest.raises(WrongJar, match=re.escape(f"TG-0882: {SMALL[1]} from {mirror.as_uri()}")):
        class_path(environ=environ)
    assert names(cache(environ)) == pins().keys() - set(SMALL)


def test_a_mirror_that_lacks_a_jar_is_named(environ: Mapping[str, str], mirror: Path) -> None:
    (mirror / pins()[SMALL[2]].path).unlink()
    with pytest.raises(JarsNotFetched, match=re.escape(mirror.as_uri())) as raised:
        class_path(environ=environ)
    assert "module not found: org.slf4j#slf4j-api;1.7.36" in raised.value.summary
    assert "HTTPS_PROXY" in str(raised.value)


def test_an_address_where_nobody_answers_is_an_error_that_says_what_to_do(environ: Mapping[str, str]) -> None:
    with pytest.raises(JarsNotFetched, match=r"TG-0881: .*Connection refused") as raised:
        class_path(environ={**environ, "TIDEGAUGE_MAVEN": "http://127.0.0.1:9/?a=1&b=<x>"})
    assert "copy the folder from a machine that has it" in str(raised.value)


def test_the_connector_is_a_set_of_its_own_with_a_folder_of_its_own(environ: Mapping[str, str]) -> None:
    with pytest.raises(JarsNotFetched, match=re.escape("spark-kafka-4.2.0")) as raised:  # the mirror has none of it
        class_path(CONNECTOR, environ=environ)
    assert "spark-sql-kafka-0-10_2.13;4.2.0" in raised.value.summary
    assert names(cache(environ, CONNECTOR)) == set()
    assert names(cache(environ)) == pins().keys() - set(SMALL)


def test_a_cache_that_cannot_be_made_is_an_error_that_names_it(environ: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JarsNotFetched, match="Not a directory"):
        class_path(environ={**environ, "TIDEGAUGE_CACHE": str(tmp_path / "file")})


def test_without_java_the_error_says_so(environ: Mapping[str, str]) -> None:
    with pytest.raises(JavaMissing, match="no Java on the PATH; fetching JARs needs Java 17"):
        class_path(environ={**environ, "PATH": "", "JAVA_HOME": ""})


def test_every_pin_is_a_sum_and_a_place() -> None:
    assert len(pins()) == 47
    assert len({pin.sha256 for pin in pins().values()}) == 47
    for pin in pins().values():
        *group, name, version, file = pin.path.split("/")
        assert re.fullmatch("[0-9a-f]{64}", pin.sha256)
        assert group
        assert file == f"{name}-{version}.jar"
