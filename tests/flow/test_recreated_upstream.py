"""An upstream that is not the one that was bound fails its source, and nothing of it is read (law 9)."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegauge as tg
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources import BadRecord, Source


def flow(root: Path, *, seed: int) -> tg.Dataflow:
    made = tg.Dataflow("again", store=f"sqlite:///{root}/flow.db", tick=0.01)
    for name in ("numbers", "others"):
        source = tg.GeneratorSource(rate=50.0, columns="n long", seed=seed if name == "numbers" else 7)
        made.sink(name, made.source(name, source), tg.ParquetSink(f"{root}/{name}"))
    return made


def test_another_upstream_under_the_same_name_fails_the_source_and_the_others_go_on(tmp_path: Path) -> None:
    first = flow(tmp_path, seed=1)
    for _run in range(
        3
    ):  # some of these runs end with an epoch that is bound and not read: it is the first upstream's
        first.run("caught-up", engine=tg.LocalEngine(threads=0))
    before = tg.read_arrow(first, "numbers")

    second = flow(tmp_path, seed=2)
    for _run in range(2):  # the failure outlives a restart
        with pytest.raises(UpstreamRecreated, match="source 'numbers'"):
            second.run("caught-up", engine=tg.LocalEngine(threads=0))
    assert [source.state for source in tg.status(second).sources] == ["failed", "idle"]
    assert tg.read_arrow(second, "others").num_rows > before.num_rows

    after = tg.read_arrow(second, "numbers").column("n").to_pylist()
    assert len(after) >= before.num_rows
    assert after == numbers_of(seed=1, count=len(after))


def numbers_of(*, seed: int, count: int) -> list[int]:
    """The first rows of the generator, read without a flow."""
    source = tg.GeneratorSource(rate=50.0, columns="n long", seed=seed)
    piece = Slice("numbers", 0, "shard-0", 0, count)
    reader: Source = source
    [split] = reader.plan([piece], Bound())
    return [n for batch in reader.read(split, no_bad_record) for n in batch.column("n").to_pylist()]


def no_bad_record(record: BadRecord) -> None:
    raise AssertionError(record)
