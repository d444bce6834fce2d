"""The sink that the guide shows holds the laws of every sink, on the bench that the guide shows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.pages import ROOT, blocks

from tidegauge.testing.kit import check_sink


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    page = [block.text for block in blocks(ROOT / "docs" / "how-to" / "write-a-sink.md")]
    for name in ("ledger", "bench"):
        [text] = [text for text in page if text.startswith(f"# {name}.py\n")]
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("bench")
    for name in ("ledger", "bench"):
        del sys.modules[name]


def test_it_holds_every_law(bench: ModuleType) -> None:
    report = check_sink(bench.LedgerBench, crashes=4, deadline=120)
    report.require()
    assert {finding.name for finding in report.findings if finding.untried} == {
        "its identity is its place",
        "the columns of a table stay",
        "sweeping clears the litter of drivers that died",
        "files are taken out in whole or not at all",
        "columns come with the rows that have them",
        "a layout changes no rows",
    }
