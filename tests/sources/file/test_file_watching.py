"""Sources that are asked together list a folder once, and say what each would say alone."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.sources.file.conftest import LATER, Driver

import tidegauge as tg
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.findings import Findings
from tidegauge.sources.file.disk import DISK, LocalDisk
from tidegauge.sources.file.listing import listed
from tidegauge.sources.file.watching import Watch

NAMES = ("a.jsonl", "b.jsonl", "a.jsonl.1", "_a.jsonl", "eu/a.jsonl", "eu/x/b.jsonl", ".eu/a.jsonl", "us.jsonl/b")
PATTERNS = (
    "*.jsonl",
    "a*",
    "**/*.jsonl",
    "**",
    "eu/*",
    "e*/**/*.jsonl",
    "a.jsonl",
    "[ab].jsonl*",
    "*/*",
    "_*",
    "?.*",
)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count what a disk is asked."""
    asked: Counter[str] = Counter()
    plain = {name: getattr(LocalDisk, name) for name in ("scandir", "stat")}

    def scandir(disk: LocalDisk, folder: str) -> Any:
        asked[f"list {folder}"] += 1
        return plain["scandir"](disk, folder)

    def stat(path: str) -> Any:
        asked[f"stat {path}"] += 1
        return plain["stat"](path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalDisk, "scandir", scandir)
        patch.setattr(LocalDisk, "stat", staticmethod(stat))
        yield asked


def lay(folder: Path, names: Any) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"n": 1}\n')


@given(st.sets(st.sampled_from(NAMES)), st.lists(st.sampled_from(PATTERNS), min_size=2, max_size=6), st.booleans())
def test_patterns_name_together_what_each_names_alone_and_nothing_is_asked_twice(
    names: set[str], patterns: list[str], dangling: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        lay(Path(root), names)
        if dangling:
            Path(root, "a.gone").symlink_to("nowhere")
            Path(root, "e").symlink_to("eu")
        alone = [listed(f"{root}/{pattern}") for pattern in patterns]
        findings = Findings()
        with counted() as asked:
            shared = [listed(f"{root}/{pattern}", watch=Watch(DISK, findings.beside())) for pattern in patterns]
    assert set(asked.values()) <= {1}
    for one, other in zip(shared, alone, strict=True):
        assert [path for path, _ in one.files] == [path for path, _ in other.files]
        assert one.passed_over == other.passed_over
        assert all(status == there for (_, status), (_, there) in zip(one.files, other.files, strict=True))


steps = st.tuples(
    st.sampled_from(["append", "begin a line", "truncate", "remove", "move", "replace", "nothing"]),
    st.sampled_from(["a.log", "b.log", "a.log.1"]),
    st.sampled_from(["a.log", "b.log", "a.log.1", "b.log.1"]),
)


def change(folder: Path, kind: str, name: str, other: str) -> None:
    path = folder / name
    if kind in ("append", "begin a line"):
        with path.open("a") as file:
            file.write('{"n": 1}\n' if kind == "append" else '{"n"')
    elif kind == "replace":
        (folder / ".new").write_text('{"n": 2}\n')
        (folder / ".new").replace(path)
    elif kind != "nothing" and path.exists():
        if kind == "truncate":
            path.write_bytes(b"")
        elif kind == "remove":
            path.unlink()
        else:
            path.replace(folder / other)


@deep(50)
@given(st.lists(st.tuples(steps, st.booleans()), min_size=3, max_size=12))
def test_a_source_that_is_asked_beside_others_says_what_it_says_alone(
    plan: list[tuple[tuple[str, str, str], bool]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder, bound = Path(root), Bound()
        for step, binds in plan:
            change(folder, *step)
            now, findings, said = datetime.now(UTC), Findings(), list[Observation | type]()
            listed(f"{folder}/**", watch=Watch(DISK, findings))
            for found in (None, findings):
                source = tg.FileSource(f"{folder}/*.log", format=tg.Json("n long"), on_data_loss="gap")
                try:
                    said.append(source.probe(replace(bound, findings=found), now=now))
                except (tg.TidegaugeError, OSError) as error:
                    said.append(type(error))
            alone, together = said
            assert together == alone
            if isinstance(alone, Observation):
                bound = replace(bound, last=alone)
                if binds and alone.upper != bound.frontier:
                    details = {**bound.details, **alone.details}
                    bound = replace(bound, frontier=alone.upper, details=details, schema=bound.schema or alone.schema)


ONE, TWO = b'{"n": 1}\n', b'{"n": 2}\n'


@pytest.mark.parametrize("named", ["*.log", "app.log"])
def test_a_log_that_is_rotated_after_others_have_listed_its_folder_is_found_under_its_new_name(
    landing: Path, named: str
) -> None:
    log = landing / "app.log"
    log.write_bytes(ONE)
    driver = Driver(tg.FileSource(f"{landing}/{named}", format=tg.Json("n long")))
    driver.tick()
    driver.findings = Findings()
    listed(f"{landing}/*.gz", watch=Watch(DISK, driver.findings))
    log.rename(landing / "app.log.1")
    log.write_bytes(ONE + TWO)  # it begins as the other one did: only by that one's number is it another
    driver.tick()
    driver.tick()
    assert [row["n"] for row in driver.catch_up()] == [1, 1, 2]


def test_a_log_that_is_moved_to_another_folder_after_others_have_listed_both_is_found_there(landing: Path) -> None:
    lay(landing, ["eu/app.log", "us/other.log"])
    driver = Driver(tg.FileSource(f"{landing}/*/app.log*", format=tg.Json("n long")))
    driver.tick()
    driver.findings = Findings()
    listed(f"{landing}/*/*.gz", watch=Watch(DISK, driver.findings))
    (landing / "eu/app.log").rename(landing / "us/app.log.1")
    (landing / "eu/app.log").write_bytes(ONE + TWO)
    driver.tick()
    driver.tick()
    assert [row["n"] for row in driver.catch_up()] == [1, 1, 2]


def test_a_file_that_was_rotated_before_is_found_although_the_folder_has_changed_since_it_was_listed(
    landing: Path,
) -> None:
    log = landing / "app.log"
    log.write_bytes(ONE)
    driver = Driver(tg.FileSource(str(log), format=tg.Json("n long")))
    driver.tick()
    log.rename(landing / "app.log.1")
    log.write_bytes(TWO)
    driver.tick()
    driver.findings = Findings()
    listed(f"{landing}/*.gz", watch=Watch(DISK, driver.findings))
    (landing / "app.log.1").rename(landing / "app.log.2")
    log.rename(landing / "app.log.1")
    log.write_bytes(ONE)
    probe = driver.probe()
    assert not probe.lower  # none of the three is gone
    assert len(probe.upper) == 3


def test_a_file_that_came_after_the_look_had_begun_is_in_the_next_one(landing: Path) -> None:
    driver = Driver(tg.FileSource(f"{landing}/*.jsonl", format=tg.Json("n long")))
    driver.findings = Findings()
    listed(f"{landing}/*", watch=Watch(DISK, driver.findings))
    lay(landing, ["a.jsonl"])
    assert driver.tick(LATER) == []
    assert len(driver.tick(LATER)) == 1


def test_rotated_logs_of_many_sources_in_a_folder_take_one_listing(landing: Path) -> None:
    drivers = []
    for n in range(20):
        path = landing / f"app-{n}.log"
        path.write_bytes(ONE)
        drivers.append(Driver(tg.FileSource(str(path), format=tg.Json("n long"))))
        drivers[-1].tick()
        path.rename(f"{path}.1")
        path.write_bytes(TWO)
        drivers[-1].tick()
    findings = Findings()
    for driver in drivers:
        driver.findings = findings.beside()
    with counted() as asked:
        assert not any(driver.tick() for driver in drivers)
    assert asked == {f"list {landing}": 1, **{f"stat {landing}/app-{n}.log": 1 for n in range(20)}}


def test_nobody_waits_for_a_file_that_is_not_its_own(landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(landing, [f"{name}-{n}.jsonl" for name in ("ours", "theirs") for n in range(3)])
    hanging, go, plain = threading.Event(), threading.Event(), LocalDisk.stat

    def stat(path: str) -> Any:
        if path.endswith("theirs-1.jsonl"):  # a link to a mount that does not answer, say
            hanging.set()
            assert go.wait(60)
        return plain(path)

    monkeypatch.setattr(LocalDisk, "stat", staticmethod(stat))
    findings = Findings()
    with ThreadPoolExecutor(1) as thread:
        try:
            theirs = thread.submit(listed, f"{landing}/*", watch=Watch(DISK, findings))
            assert hanging.wait(60)
            found = listed(f"{landing}/ours*", watch=Watch(DISK, findings.beside()))
        finally:
            go.set()
        assert len(found.files) == 3
        assert len(theirs.result().files) == 6


def test_threads_that_name_the_same_files_ask_for_each_but_rarely_twice_and_get_them_all(landing: Path) -> None:
    lay(landing, [f"{n:03}.jsonl" for n in range(200)])
    findings = Findings()
    with counted() as asked, ThreadPoolExecutor(8) as threads:
        watches = [Watch(DISK, findings.beside()) for _ in range(8)]
        found = list(threads.map(lambda watch: listed(f"{landing}/*", watch=watch).files, watches))
    assert all(files == found[0] for files in found)
    assert len(found[0]) == 200
    assert asked.pop(f"list {landing}") == 1
    assert asked.total() <= 200 + 8 * 8  # what others are asking about right then is asked about again


def test_an_error_of_a_folder_is_one_for_each_who_lists_it(landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(landing, ["eu/a.jsonl", "us/a.jsonl"])
    plain, calls = LocalDisk.scandir, []

    def scandir(disk: LocalDisk, folder: str) -> Any:
        if folder.endswith("eu"):
            calls.append(folder)
            raise OSError(5, os.strerror(5), folder)
        return plain(disk, folder)

    monkeypatch.setattr(LocalDisk, "scandir", scandir)
    findings = Findings()
    for pattern in ("eu/*", "**", "e*/*"):
        with pytest.raises(OSError, match="eu"):
            listed(f"{landing}/{pattern}", watch=Watch(DISK, findings.beside()))
    assert len(listed(f"{landing}/us/*", watch=Watch(DISK, findings.beside())).files) == 1
    assert len(calls) == 1
