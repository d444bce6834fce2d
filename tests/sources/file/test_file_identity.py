"""When a file is the one that was known."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from tidegauge.sources.file.disk import DISK
from tidegauge.sources.file.identity import FileFacts, Match, Seen, fingerprint, judge, partition_key

KNOWN = FileFacts(path="/a", first="/a", dev=1, ino=7, born=5, modified=9, head=10, digest="same", whole=0)


def seen(*, path: str, dev: int, born: int) -> Seen:
    return Seen(path=path, dev=dev, ino=7, born=born, size=20, modified=9)


@pytest.mark.parametrize(
    ("path", "dev", "born", "digest"), list(product(["/a", "/b"], [1, 2], [5, 6, 0], ["same", "new"]))
)
def test_the_verdict_is_the_table_of_the_module(path: str, dev: int, born: int, digest: str) -> None:
    verdict = judge(KNOWN, seen(path=path, dev=dev, born=born), digest)
    if born == 6:
        assert verdict is Match.OTHER
    elif digest == "same":
        assert (verdict is Match.SAME) == (born == 5 or dev == 1 or path == "/a")
    else:
        assert (verdict is Match.REWRITTEN) == (born == 5 or path == "/a")


def test_facts_survive_being_stored() -> None:
    assert FileFacts.of(KNOWN.detail()) == KNOWN


def test_birth_survives_truncation_and_renaming(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    with path.open("rb") as stream:
        first = DISK.birth(stream.fileno())
    path.write_text("2")
    with path.rename(tmp_path / "b").open("rb") as stream:
        assert DISK.birth(stream.fileno()) == first


def test_a_key_is_not_given_twice(tmp_path: Path) -> None:
    file = seen(path="/a", dev=1, born=0)
    first = partition_key(file, "d", taken=lambda _key: False)
    second = partition_key(file, "d", taken=lambda key: key == first)
    assert first != second
    assert len(first) == len(second) == 16


def test_the_fingerprint_of_a_whole_file_shows_a_change_of_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    found = []
    for last in (b"x", b"y"):
        path.write_bytes(b"h" * 10_000 + last)
        fd = os.open(path, os.O_RDONLY)
        found.append((fingerprint(fd, 4096, whole=False), fingerprint(fd, 4096, whole=True)))
        os.close(fd)
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
