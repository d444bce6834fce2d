"""Faults of an object store under tables of Iceberg, between the clients and a real server: fault by step, counted.

Every cell makes three commits as a run does: what may pass is tried again with the same files, and a commit whose
answer was lost is found in the table. After them pyiceberg, which knows nothing of Tidegauge, sees each row once; the
table has one snapshot for each commit and names each file once; and what nothing names is litter that is known, and
goes once it is a day old.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.s3 import Lake
from tests.s3_proxy import FAULTS, Fault, Proxy
from tests.sinks.conftest import OUTPUT
from tests.sinks.iceberg.stored import StoredBench, configured
from tests.sinks.test_faults_of_stores import done

from tidegauge.errors.base import Transient, waited_out

STEPS = {
    "staged file": ("PUT", "data/part-"),
    "status of a file": ("HEAD", "data/part-"),
    "beginning an upload": ("POST", "?uploads"),
    "manifest": ("PUT", "-m0.avro"),
    "list of manifests": ("PUT", "/snap-"),
    "ending an upload": ("POST", "avro?uploadId="),
    "metadata": ("PUT", ".metadata.json"),
    "reading metadata": ("GET", ".metadata.json"),
    "reading a list": ("GET", "/snap-"),
}
KEYED_STEPS = {
    "reading a run": ("GET", "_staged/"),
    "reading a manifest": ("GET", "-m0.avro"),
    "reading rows": ("GET", "data/part-"),
    "new file": ("PUT", "data/part-"),
}
"""What else a table by key does."""
ONCE, LONG = 1, 6
"""A fault that a client sits out by itself, and one that outlasts what it tries."""
NAMES = {"TG-0533", "TG-0580", "TG-0581", "TG-0582"}
LITTER = re.compile(
    rf"(data|_staged/[^/]+)/part-{OUTPUT.incarnation[-16:]}[^/]*\.parquet"
    r"|metadata/(snap-\d+-0-)?[0-9a-f-]{36}(-m\d+)?\.avro|metadata/\d{5}-[0-9a-f-]{36}\.metadata\.json"
)
"""What attempts leave behind that failed."""

CELLS = [(fault, times) for fault in FAULTS for times in (ONCE, LONG) if (fault, times) != ("slow", LONG)]
pytestmark = pytest.mark.long


@pytest.fixture
def made(lake: Lake, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., StoredBench]:
    """A table whose store is behind the proxy, for all clients."""
    configured(monkeypatch, tmp_path, proxy.url)
    return lambda **options: StoredBench(tmp_path, lake=lake, options=options)


@pytest.mark.parametrize(("fault", "times"), CELLS)
@pytest.mark.parametrize("step", [*STEPS])
def test_each_row_is_there_once_whatever_breaks_where(
    made: Callable[..., StoredBench], proxy: Proxy, fault: str, step: str, times: int
) -> None:
    bench = made()
    broken = Fault(fault, *STEPS[step], times=times)
    commits(bench, proxy, broken, [[f"u{epoch}"] for epoch in range(3)])
    assert sorted((row["user"], row["_epoch"]) for row in bench.rows()) == [(f"u{n}", n) for n in range(3)]
    whole(bench)


@pytest.mark.parametrize(("fault", "times"), CELLS)
@pytest.mark.parametrize("step", [*KEYED_STEPS])
def test_each_key_has_its_last_row_whatever_breaks_where(
    made: Callable[..., StoredBench], proxy: Proxy, fault: str, step: str, times: int
) -> None:
    bench = made(envelope="upsert", key="user")
    broken = Fault(fault, *KEYED_STEPS[step], times=times)
    commits(bench, proxy, broken, [[f"u{n}" for n in range(8)], ["u0"], ["u1", "u0", "new"]])
    expected = {**{f"u{n}": 0 for n in range(8)}, "u1": 2, "u0": 2, "new": 2}
    assert sorted((row["user"], row["_epoch"]) for row in bench.rows()) == sorted(expected.items())
    whole(bench)


def commits(bench: StoredBench, proxy: Proxy, broken: Fault, users: Sequence[Sequence[str]]) -> None:
    proxy.faults.append(broken)
    told: list[Transient] = []
    for epoch, some in enumerate(users):
        done(bench.sink, epoch, told, some)
    assert broken.met > 0, "nothing was broken"
    for error in told:
        assert waited_out(error), f"a run would give up: {error}"
        assert error.code in NAMES, error
        assert "hunter2" not in str(error)
    if broken.kind == "expired" and broken.method != "HEAD":  # to which no answer has a word
        assert any(error.code == "TG-0581" for error in told), told
    proxy.faults.clear()


def whole(bench: StoredBench) -> None:
    table = bench.table
    uppers = [one.summary.additional_properties["tidegauge.upper"] for one in table.snapshots()]
    assert uppers == ["1", "2", "3"]
    assert bench.open(OUTPUT).upper == 3
    files = [one.file.file_path for one in table.scan().plan_files()]
    assert len(files) == len(set(files))
    left = bench.found() - named(bench)
    assert [path for path in left if not LITTER.fullmatch(path)] == []
    later = time.time() + 2 * 86_400
    with mock.patch("tidegauge.sinks.iceberg.packing.time.time", return_value=later):
        upkeep = bench.sink.maintain(OUTPUT)
        upkeep.clear(upkeep.remnants(None))
    if bench.sink.applies:
        bench.open(OUTPUT).sweep(lambda: None)  # as the next run does
    left = bench.found() - named(bench)
    assert [path for path in left if not path.endswith(".metadata.json")] == [], "those are for remove_orphan_files"


def named(bench: StoredBench) -> set[str]:
    """The paths of the files that the table names."""
    table = bench.table
    manifests = [one for snapshot in table.snapshots() for one in snapshot.manifests(table.io)]
    entries = [entry.data_file.file_path for one in manifests for entry in one.fetch_manifest_entry(table.io)]
    lists = [one.manifest_list for one in table.snapshots()]
    versions = [table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)]
    paths: list[Any] = [*entries, *lists, *versions, *(one.manifest_path for one in manifests)]
    return {str(path).removeprefix(f"{bench.path}/") for path in paths}
