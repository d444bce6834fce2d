"""What is particular to a folder of Parquet files: the chain of its commits, and the file system under it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tidegauge.errors.sinks import (
    BrokenChain,
    DamagedManifest,
    FilesChangedByOthers,
    ForeignTable,
    StagingElsewhere,
    TableNotWritable,
)
from tidegauge.sinks import OutputId
from tidegauge.sinks.location import writing
from tidegauge.sinks.parquet import ground as module

OUTPUT = OutputId("shop", "orders", "a" * 32)
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])


@pytest.fixture
def parquet(tmp_path: Path, kinds: Any) -> Any:
    return kinds("parquet", str(tmp_path / "t"))


@pytest.fixture
def three(parquet: Any) -> Any:
    table = parquet.open()
    for lower, upper in [(0, 2), (2, 3), (3, 5)]:
        parquet.commit(table, lower, upper)
    return parquet


def manifest_of(parquet: Any, lower: int) -> Path:
    return Path(parquet.path, f"from_epoch={lower:012d}", "_manifest.json")


def test_each_commit_is_a_folder_named_by_its_first_epoch(three: Any) -> None:
    names = sorted(path.name for path in Path(three.path).iterdir() if not path.name.startswith("_"))
    assert names == ["from_epoch=000000000000", "from_epoch=000000000002", "from_epoch=000000000003"]
    said = json.loads(manifest_of(three, 3).read_text())
    assert {key: said[key] for key in ("format", "flow", "output", "incarnation", "lower", "upper", "rows")} == {
        "format": 1,
        "flow": "shop",
        "output": "orders",
        "incarnation": "a" * 32,
        "lower": 3,
        "upper": 5,
        "rows": 2,
    }
    assert json.loads(manifest_of(three, 0).read_text())["columns"][1] == {"name": "amount", "type": "double"}


def test_a_manifest_is_a_text_of_whole_lines(three: Any) -> None:
    text = manifest_of(three, 0).read_bytes()
    assert text.endswith(b"}\n")
    assert text.count(b"\n\n") == 0
    manifest_of(three, 0).write_bytes(text.rstrip(b"\n"))  # as earlier versions wrote it
    assert three.open().upper == 5


def test_a_reader_that_infers_partitions_gets_the_first_epoch_of_the_commit_besides(three: Any) -> None:
    table = ds.dataset(three.path, format="parquet", partitioning="hive").to_table()
    pairs = zip(table["from_epoch"].to_pylist(), table["_epoch"].to_pylist(), strict=True)
    assert sorted(pairs) == [(0, 0), (0, 1), (2, 2), (3, 3), (3, 4)]


def test_nothing_of_a_commit_stays_behind_among_the_staged(three: Any) -> None:
    assert list(Path(three.path, "_staged").iterdir()) == []


def test_a_missing_commit_is_said_and_nothing_is_skipped(three: Any) -> None:
    shutil.rmtree(manifest_of(three, 2).parent)
    with pytest.raises(BrokenChain) as caught:
        three.open()
    assert caught.value.evidence["reached"] == "from_epoch=000000000002"
    assert caught.value.evidence["folder"] == "from_epoch=000000000003"


def test_a_folder_that_overlaps_the_chain_is_not_taken_for_a_part_of_it(three: Any) -> None:
    shutil.copytree(manifest_of(three, 0).parent, Path(three.path, "from_epoch=000000000004"))
    with pytest.raises(BrokenChain) as caught:
        three.open()
    assert caught.value.evidence["folder"] == "from_epoch=000000000004"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data | {"format": 6},
        lambda data: data | {"format": 4},
        lambda data: data | {"format": 3, "edition": "e", "anew": 1},
        lambda data: data | {"format": 3, "upper": 2, "files": [], "edition": "e", "place": 1, "anew": 1},
        lambda data: data | {"format": 3, "upper": 2, "edition": "e"},
        lambda data: data | {"upper": 2},
        lambda data: data | {"lower": 0},
        lambda data: data | {"files": [data["files"][0] | {"path": "../../etc/passwd"}]},
        lambda data: data | {"files": [data["files"][0] | {"path": "from_epoch=000000000000/x.parquet"}]},
        lambda data: {key: value for key, value in data.items() if key != "incarnation"},
        lambda data: data | {"arrow_schema": "AAAA"},
        lambda data: [data],
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(three: Any, change: Any) -> None:
    path = manifest_of(three, 2)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(DamagedManifest) as caught:
        three.open()
    assert str(path) in str(caught.value)


def test_a_manifest_that_is_cut_or_gone_is_refused(three: Any) -> None:
    path = manifest_of(three, 2)
    path.write_text(path.read_text()[:40])
    with pytest.raises(DamagedManifest):
        three.open()
    path.unlink()
    with pytest.raises(DamagedManifest, match="missing"):
        three.open()


@pytest.mark.parametrize("name", ["part-0.parquet", "year=2026", "from_epoch=7", "from_epoch=x"])
def test_a_folder_with_other_things_in_it_is_refused(parquet: Any, name: str) -> None:
    Path(parquet.path).mkdir(parents=True)
    Path(parquet.path, name).touch()
    with pytest.raises(ForeignTable, match=name):
        parquet.open()


def test_hidden_files_of_others_do_not_matter(parquet: Any) -> None:
    Path(parquet.path).mkdir(parents=True)
    Path(parquet.path, "_SUCCESS").touch()
    Path(parquet.path, ".DS_Store").touch()
    parquet.commit(parquet.open(), 0, 1)
    assert parquet.rows() == [("ada", 0)]


def test_an_empty_folder_in_the_place_of_a_commit_is_replaced(three: Any) -> None:
    manifest_of(three, 5).parent.mkdir()
    three.commit(three.open(), 5, 6)
    assert three.open().upper == 6


def test_staging_on_another_file_system_is_said(parquet: Any) -> None:
    Path(parquet.path).mkdir(parents=True)
    here = Path(parquet.path).stat().st_dev
    known = [Path(folder) for folder in ("/dev/shm", "/tmp", "/var/tmp") if Path(folder).is_dir()]
    elsewhere = next((folder for folder in known if folder.stat().st_dev != here), None)
    if elsewhere is None:
        pytest.skip("there is only one file system here")
    with tempfile.TemporaryDirectory(dir=elsewhere) as folder:
        Path(parquet.path, "_staged").symlink_to(folder)
        table = parquet.open()
        staged = parquet.stage([0])
        with pytest.raises(StagingElsewhere):
            table.commit(0, 1, SCHEMA, staged, write="1")
        assert Path(parquet.path, staged[0].path).exists()
        assert table.upper == 0


@pytest.mark.parametrize("failing", ["EACCES", "EROFS", "EPERM"])
def test_a_refusal_of_the_file_system_is_not_retried(failing: str) -> None:
    import errno

    with pytest.raises(TableNotWritable, match="the lake"), writing("the lake"):
        raise OSError(getattr(errno, failing), os.strerror(getattr(errno, failing)))


def test_a_full_disk_goes_through_and_puts_the_staged_files_back(
    parquet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from tidegauge.sinks.parquet import manifest as module

    table = parquet.open()
    parquet.commit(table, 0, 1)
    staged = parquet.stage([1]) + parquet.stage([1])

    def full(_path: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "synchronise", full)
        with pytest.raises(OSError, match="No space left"):
            table.commit(1, 2, SCHEMA, staged, write="1")
    assert all(Path(parquet.path, file.path).exists() for file in staged)
    table.commit(1, 2, SCHEMA, staged, write="1")  # the same attempt, once there is room
    assert parquet.rows() == [("ada", 0), ("ada", 1), ("ada", 1)]


def test_the_name_of_a_write_never_leads_out_of_the_folder(parquet: Any) -> None:
    from tidegauge.errors.flow import InvalidArgument

    table = parquet.open()
    for write in ("../../x", "a/b"):
        with pytest.raises(InvalidArgument):
            table.commit(0, 1, SCHEMA, [], write=write)
    assert table.upper == 0


def test_a_file_that_is_missing_or_of_no_commit_is_said_until_it_is_put_right(tmp_path: Path, kinds: Any) -> None:
    """A reader of the folder would see other rows than those that the commits name."""
    bench = kinds("parquet", str(tmp_path / "t"))
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    [first, second, third] = [Path(uri) for uri in table.uris(table.files())]
    second.rename(tmp_path / second.name)
    foreign = first.with_name("more.parquet")
    foreign.write_bytes(third.read_bytes())
    (first.parent / "_SUCCESS").touch()
    with pytest.raises(FilesChangedByOthers) as raised:
        bench.open()
    assert second.name in str(raised.value)
    assert "more.parquet" in str(raised.value)
    (tmp_path / second.name).rename(second)
    foreign.unlink()
    bench.commit(bench.open(), 3, 4)
    assert bench.rows() == [("ada", epoch) for epoch in range(4)]


def test_a_commit_that_comes_between_two_looks_at_its_folder_is_no_damage(
    parquet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet.commit(parquet.open(), 0, 1)
    folder, elsewhere = manifest_of(parquet, 0).parent, tmp_path / "not yet"
    folder.rename(elsewhere)
    look = module._first_bytes

    def first_look(manifests: list[Path]) -> bytes | None:
        found = look(manifests)
        if elsewhere.exists():
            elsewhere.rename(folder)
        return found

    monkeypatch.setattr(module, "_first_bytes", first_look)
    assert parquet.open().upper == 1
