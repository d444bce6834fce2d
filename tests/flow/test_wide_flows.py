"""A flow of many outputs is looked at, and opened, with as many questions to its store as one of a few."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

import tidegauge as tg
from tidegauge.remap.history import Link


def asked(work: Callable[[], object]) -> int:
    """Return how many statements a store was asked."""
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        said.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return len(said)


def flow(folder: Path, outputs: int) -> tg.Dataflow:
    made = tg.Dataflow("wide", store=f"sqlite:///{folder}/{outputs}.db")
    orders = made.source("orders", tg.FileSource(f"{folder}/orders.jsonl", format=tg.Json("n long")))
    for n in range(outputs):
        made.sink(f"o{n}", orders, tg.ParquetSink(f"{folder}/{outputs}/{n}"))
    return made


@pytest.mark.parametrize("look", [tg.status, lambda flow: flow.run(engine="local", until="caught-up")])
def test_more_outputs_are_no_more_questions(tmp_path: Path, look: Callable[[tg.Dataflow], object]) -> None:
    (tmp_path / "orders.jsonl").write_text('{"n": 1}\n')
    for outputs in (2, 9):
        flow(tmp_path, outputs).run(engine="local", until="caught-up")
    few, many = (asked(lambda: look(flow(tmp_path, outputs))) for outputs in (2, 9))  # noqa: B023
    assert many == few


def test_what_an_epoch_brought_is_written_out_once_for_all_outputs_that_carry_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders.jsonl").write_text('{"n": 1}\n')
    written, encode = 0, Link.encode

    def counted(link: Link) -> dict[str, Any]:
        nonlocal written
        written += 1
        return encode(link)

    monkeypatch.setattr(Link, "encode", counted)
    flow(tmp_path, 9).run(engine="local", until="caught-up")
    assert 0 < written < 9
