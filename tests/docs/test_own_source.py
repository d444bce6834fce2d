"""The source that the guide shows holds the laws of every source, on the bench that the guide shows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.pages import ROOT, blocks

from tidegauge.testing.kit import check_source


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    page = [block.text for block in blocks(ROOT / "docs" / "how-to" / "write-a-source.md")]
    for name in ("journal", "bench"):
        [text] = [text for text in page if text.startswith(f"# {name}.py\n")]
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("bench")
    for name in ("journal", "bench"):
        del sys.modules[name]


def test_it_holds_every_law(bench: ModuleType) -> None:
    report = check_source(bench.JournalBench, deadline=120)
    report.require()
    assert [finding.name for finding in report.findings if finding.untried] == [
        "it is cut between records",
        "the end is the end",
    ]
