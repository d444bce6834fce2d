"""Which files a pattern names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.sources.file.disk import LocalDisk
from tidegauge.sources.file.listing import listed, printable


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")


def names(root: Path, pattern: str) -> list[str]:
    return [os.path.relpath(path, root) for path, _ in listed(f"{root}/{pattern}").files]


def test_f10_only_folders_that_can_hold_a_match_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(
        tmp_path,
        "a/b/c/hello1/x.json",
        "a/b/c/hello2/y.json",
        "a/b/c/hello2/z.txt",
        "a/b/c/other/x.json",
        "a/d/x.json",
    )
    scanned: list[str] = []
    plainly = LocalDisk.scandir

    def spy(disk: LocalDisk, folder: str) -> Any:
        scanned.append(folder)
        return plainly(disk, folder)

    monkeypatch.setattr(LocalDisk, "scandir", spy)
    assert names(tmp_path, "a/b/c/hello*/*.json") == ["a/b/c/hello1/x.json", "a/b/c/hello2/y.json"]
    assert sorted(os.path.relpath(folder, tmp_path) for folder in scanned) == [
        "a/b/c",
        "a/b/c/hello1",
        "a/b/c/hello2",
    ]


def test_two_stars_stand_for_any_number_of_folders(tmp_path: Path) -> None:
    make(tmp_path, "x.log", "a/x.log", "a/b/x.log", "a/b/y.txt")
    assert names(tmp_path, "**/*.log") == ["a/b/x.log", "a/x.log", "x.log"]
    assert names(tmp_path, "a/**/**/x.log") == ["a/b/x.log", "a/x.log"]
    assert names(tmp_path, "a/**") == ["a/b/x.log", "a/b/y.txt", "a/x.log"]


def test_hidden_names_are_passed_over_unless_their_own_segment_names_them(tmp_path: Path) -> None:
    make(tmp_path, "a.log", ".a.log", "_a.log", "_tmp/a.log", ".git/a.log", "_tmp/_b.log")
    assert names(tmp_path, "*.log") == ["a.log"]
    assert names(tmp_path, "**/*.log") == ["a.log"]
    assert names(tmp_path, "_*.log") == ["_a.log"]
    assert names(tmp_path, ".*.log") == [".a.log"]
    assert names(tmp_path, "_tmp/*.log") == ["_tmp/a.log"]
    assert names(tmp_path, "_a.log") == ["_a.log"]


def test_a_link_counts_as_its_file_and_a_loop_of_folders_is_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "a/x.log")
    (tmp_path / "a/loop").symlink_to(tmp_path / "a")
    (tmp_path / "a/self.log").symlink_to(tmp_path / "a/self.log")
    (tmp_path / "a/gone.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link.log").symlink_to(tmp_path / "a/x.log")
    assert names(tmp_path, "**/*.log") == ["a/x.log", "link.log"]
    assert names(tmp_path, "a/*/x.log") == ["a/loop/x.log"]


def test_pipes_and_folders_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "folder.log").mkdir()
    found = listed(f"{tmp_path}/*.log")
    assert found.files == ()
    assert found.passed_over == (f"{tmp_path}/pipe.log is passed over: a pipe, socket or device, not a file",)
    [hint] = listed(str(tmp_path)).passed_over
    assert hint.endswith(f"write {tmp_path}/* for the files in it")


def test_a_name_that_is_not_utf_8_is_passed_over_with_a_note(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/bad\xff.log", "wb") as stream:
        stream.write(b"x\n")
    make(tmp_path, "good.log")
    found = listed(f"{tmp_path}/*.log")
    assert [Path(path).name for path, _ in found.files] == ["good.log"]
    assert found.passed_over == (f"{tmp_path}/bad\\udcff.log is passed over: its name is not valid UTF-8",)


@given(name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_name_can_be_a_file(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    if name in {".", ".."} or name[0] in "._" or len(name.encode()) > 250:
        return
    root = tmp_path_factory.mktemp("names")
    make(root, name)
    assert names(root, "*") == [name]
    assert printable(name).isprintable()
    assert "\n" not in printable(name)


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
    make(tmp_path, "file")
    assert names(tmp_path, "nowhere/*.log") == []
    assert names(tmp_path, "file/*.log") == []
    assert names(tmp_path, "nowhere/**/x") == []
