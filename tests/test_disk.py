"""What a disk does when others make and remove things at the same place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tidegauge.disk import make_folder


def test_a_folder_that_somebody_makes_and_removes_at_that_instant_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = os.mkdir, list[str]()

    def overtaken(path: Any, *rest: Any) -> None:
        if not refused:
            refused.append(path)
            raise FileExistsError(17, "File exists", str(path))  # it was there, and is not any more
        real(path, *rest)

    monkeypatch.setattr(os, "mkdir", overtaken)
    make_folder(tmp_path / "_staged" / "job")
    assert (tmp_path / "_staged" / "job").is_dir()
    assert refused


def test_what_is_no_folder_in_the_place_of_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in ("file", "file/job", "link", "link/job"):
        with pytest.raises(FileExistsError):
            make_folder(tmp_path / place)
