"""An upstream that is not the one that was bound fails its source, and nothing of it is read (law 9)."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegauge as tg
from tidegauge.errors.running import UpstreamRecreated


def flow(root: Path, *, seed: int) -> tg.Dataflow:
    made = tg.Dataflow("again", store=f"sqlite:///{root}/flow.db", tick=0.01)
    for name in ("numbers", "others"):
        source = tg.GeneratorSource(rate=50.0, columns="n long", seed=seed if name == "numbers" else 7)
        made.sink(name, made.source(name, source), tg.ParquetSink(f"{root}/{name}"))
    return made


def test_another_upstream_under_the_same_name_fails_the_source_and_the_others_go_on(tmp_path: Path) -> None:
    first = flow(tmp_path, seed=1)
    first.run("caught-up", engine=tg.LocalEngine(threads=0))
    before = tg.read_arrow(first, "numbers")
    assert before.num_rows > 0

    second = flow(tmp_path, seed=2)
    for _run in range(2):  # the failure outlives a restart
        with pytest.raises(UpstreamRecreated, match="source 'numbers'"):
            second.run("caught-up", engine=tg.LocalEngine(threads=0))
    assert tg.read_arrow(second, "others").num_rows > before.num_rows
    assert tg.read_arrow(second, "numbers").equals(before)
    assert [source.state for source in tg.status(second).sources] == ["failed", "running"]
