"""Flows into the memory of their process: run again, made again, read, and beside tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidegauge as tg
from tidegauge.errors.sinks import ForeignTable, TableOfAnotherIncarnation


def put(root: Path, *ids: int) -> None:
    """Let a file of orders come."""
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / f"{min(ids)}.jsonl").write_text("".join(json.dumps({"id": n}) + "\n" for n in ids))


def flow_into(root: Path, sink: tg.MemorySink, *, name: str = "shop", store: str = "flow") -> tg.Dataflow:
    """Return a flow into memory, and into a table."""
    flow = tg.Dataflow(name, store=f"sqlite:///{root}/{store}.db", tick=0.02)
    orders = flow.source("orders", tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json("id long")))
    flow.sink("memory", orders.filter("id >= 0"), sink)
    flow.sink("lake", orders, tg.ParquetSink(f"{root}/{name}-{store}"))
    return flow


def finish(flow: tg.Dataflow) -> None:
    flow.run("caught-up", engine="local")


def rows(sink: tg.MemorySink) -> list[tuple[int, int]]:
    return sorted((row["id"], row["_epoch"]) for row in sink.table().to_pylist())


def test_a_flow_that_runs_again_in_its_process_goes_on_and_is_read_at_any_epoch(tmp_path: Path) -> None:
    sink = tg.MemorySink()
    put(tmp_path, 0, 1)
    finish(flow_into(tmp_path, sink))
    put(tmp_path, 2)
    flow = flow_into(tmp_path, sink)
    finish(flow)
    assert rows(sink) == [(0, 0), (1, 0), (2, 1)]
    for as_of in (None, 0, 1):
        read = {name: tg.read_arrow(flow, name, as_of=as_of).sort_by("id") for name in ("memory", "lake")}
        assert read["memory"] == read["lake"]


def test_a_sink_that_was_made_again_as_in_a_new_process_gets_everything_again(tmp_path: Path) -> None:
    first, second = tg.MemorySink(), tg.MemorySink()
    for n, sink in enumerate((first, first, second)):
        put(tmp_path, n)
        finish(flow_into(tmp_path, sink))
    assert rows(first) == [(0, 0), (1, 1)]
    assert rows(second) == [(0, 0), (1, 1), (2, 2)]
    finish(flow_into(tmp_path, first))  # and whoever goes back to the old one misses nothing
    assert rows(first) == rows(second)
    assert {output.state for output in tg.status(flow_into(tmp_path, first)).outputs} == {"live"}


def test_a_sink_of_another_flow_or_store_is_refused(tmp_path: Path) -> None:
    sink = tg.MemorySink()
    put(tmp_path, 0)
    finish(flow_into(tmp_path, sink))
    with pytest.raises(ForeignTable):
        finish(flow_into(tmp_path, sink, name="other"))
    with pytest.raises(TableOfAnotherIncarnation):
        finish(flow_into(tmp_path, sink, store="other"))
    assert rows(sink) == [(0, 0)]
