"""What a notebook shows of a flow: tables in which everything that others have named is text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tidegauge as tg

HOSTILE = "<script>alert('x')</script> & \"so\""
NAMED = "<img src=x onerror=alert(1)>"
"""A file's name has no '/'."""


class Page(HTMLParser):
    """The tags of a text, all closed in turn, and the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not attrs
        self.open.append(tag)
        self.tags.add(tag)
        self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


@pytest.fixture
def flow(tmp_path: Path) -> tg.Dataflow:
    (tmp_path / f"{NAMED}.jsonl").write_text("".join(f"{json.dumps({'k': k})}\n" for k in range(1_234)))
    folder = tmp_path / "<script>alert('x')<"
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    rows = flow.source("rows", tg.FileSource(str(tmp_path / "*.jsonl"), format=tg.Json("k long")))
    flow.sink("rows", rows.map_batches(lambda batch: batch), tg.ParquetSink(str(folder)))
    return flow


def shown(thing: Any) -> Page:
    page = Page(thing._repr_html_())
    assert page.tags == {"table", "caption", "tr", "th", "td"}
    return page


def test_everything_of_a_flow_is_shown_as_text(flow: tg.Dataflow) -> None:
    assert any("<script>alert('x')<" in cell for cell in shown(flow).cells)
    assert "mapbatches" in shown(flow).cells
    flow.run("caught-up", engine="local")
    standing = shown(tg.status(flow)).cells
    assert "flow shop: 1 of 1 epochs published; not running" in standing
    assert {"rows", "live", "1,234"} <= set(standing)
    timeline = shown(tg.epochs(flow)).cells
    assert "0" in timeline
    assert any(cell.startswith("rows ") for cell in timeline)
    assert any(NAMED in cell for cell in shown(tg.explain(flow, 0)).cells)


def test_what_upstream_says_of_its_errors_is_text(flow: tg.Dataflow, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text(f"{json.dumps(HOSTILE)}\n")
    with pytest.raises(tg.TidegaugeError):
        flow.run("caught-up", engine="local")
    assert "failed" in shown(tg.status(flow)).cells


def test_an_empty_timeline_is_a_table_too(flow: tg.Dataflow) -> None:
    flow.run("caught-up", engine="local")
    assert tg.epochs(flow, first=7) == []
    assert Page(tg.epochs(flow, first=7)._repr_html_()).tags == {"table", "caption", "tr", "th"}
