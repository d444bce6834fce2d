"""What a new run knows of files without reading every manifest: as much as before, or it reads them all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.s3 import Lake
from tests.sources.listings.listing import Listings, listing, put

from tidegauge.disk import write_durably
from tidegauge.sources.listings import lister
from tidegauge.sources.listings.entries import Known
from tidegauge.sources.listings.remembered import recalled, remember
from tidegauge.sources.listings.staged import manifest_rows
from tidegauge.sources.polls.log import PollLog, PollManifest
from tidegauge.sources.staging import path_of, replace_whole


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the manifests whose files are read."""
    monkeypatch.setattr(lister, "EVERY", 3)
    numbers, real = list[int](), manifest_rows

    def counted(log: PollLog, manifest: PollManifest) -> Any:
        numbers.append(manifest.poll)
        return real(log, manifest)

    monkeypatch.setattr(lister, "manifest_rows", counted)
    return numbers


def seven(it: Listings, root: Path) -> None:
    """List seven files, each by itself."""
    for n in range(7):
        put(root / "in" / f"{n}.jsonl", n)
        it.look_through()
    assert it.epochs == list(range(1, 8))


@pytest.mark.parametrize("where", ["disk", "store"])
def test_a_new_run_reads_the_manifests_of_late(
    tmp_path: Path, read: list[int], where: str, request: pytest.FixtureRequest
) -> None:
    given: dict[str, Any] = {}
    if where == "store":
        lake: Lake = request.getfixturevalue("lake")
        given = {"staging": lake.at("listings")}
    it = listing(tmp_path, on_change="again", **given)
    seven(it, tmp_path)
    read.clear()
    put(tmp_path / "in" / "0.jsonl", 10, 11)
    it.begin()
    it.look_through()
    assert read == [6]
    assert it.epochs[7:] == [8]
    it.begin()
    it.look_through()
    assert it.epochs[7:] == [8]


def emptied(path: Any) -> None:
    replace_whole(path, b"")


def cut(path: Any) -> None:
    replace_whole(path, path.read_bytes()[:-20])


def removed(path: Any) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [emptied, cut, removed])
def test_without_it_all_manifests_are_read(tmp_path: Path, read: list[int], harm: Callable[[Any], None]) -> None:
    it = listing(tmp_path)
    seven(it, tmp_path)
    [kept] = (tmp_path / "listings").rglob("_known")
    harm(path_of(str(kept)))
    read.clear()
    it.begin()
    it.look_through()
    assert read == list(range(7))
    assert it.epochs == list(range(1, 8))


def test_one_of_another_log_is_not_believed(tmp_path: Path, read: list[int]) -> None:
    it = listing(tmp_path)
    seven(it, tmp_path)
    [kept] = (tmp_path / "listings").rglob("_known")
    other = listing(tmp_path / "other", str(tmp_path / "in" / "*.jsonl"), staging=tmp_path / "listings2")
    other.clock = 60
    other.look_through()
    write_durably(tmp_path / "listings2" / "0" / "_known", kept.read_bytes())
    read.clear()
    other.begin()
    other.look_through()
    assert read == [0]
    assert other.epochs == [7]


def test_no_flipped_bit_makes_a_known_file_new(tmp_path: Path, read: list[int]) -> None:
    it = listing(tmp_path)
    seven(it, tmp_path)
    assert read
    [kept] = (tmp_path / "listings").rglob("_known")
    log = PollLog(kept.parent, by_rows=True)
    data, sound = kept.read_bytes(), 0
    first = recalled(log, upto=7)
    assert first is not None
    assert recalled(log, upto=5) is None, "it knows more than is bound"
    for at in range(len(data)):
        kept.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        if (found := recalled(log, upto=7)) is not None:
            sound += 1
            assert found[1] == first[1]
            assert [one.tobytes() for one in found[0].sorted()] == [one.tobytes() for one in first[0].sorted()]
    assert sound < len(data) / 2


def test_digests_that_end_with_zeros_are_kept(tmp_path: Path) -> None:
    known = Known()
    keys = np.array([b"k" * 15 + b"\0", b"j" * 16], dtype="S16")
    known.add(keys, np.array([b"v" + bytes(7), b"w" * 8], dtype="S8"))
    log = PollLog(tmp_path, by_rows=True)
    last, _ = log.publish(0, before="", state="", rows=pa.table({"n": [1, 2]}))
    remember(log, known, last)
    found = recalled(log, upto=2)
    assert found is not None
    assert [one.tobytes() for one in found[0].sorted()] == [
        b"j" * 16 + b"k" * 15 + b"\0",
        b"w" * 8 + b"v" + bytes(7),
    ]
