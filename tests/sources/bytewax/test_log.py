"""The log of a bytewax dataflow: what is published stays, in one chain, whoever dies or comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.flow.by_hand import Crash

from tidegauge.errors.bytewax import LogBehind, LogTaken, RecoveryBehind
from tidegauge.sources.batches.manifest import read_manifest
from tidegauge.sources.bytewax.log import begin, publish, published_in, sealed_in


def test_a_dataflow_that_would_resume_before_what_is_published_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "part-0"
    writer = begin(folder, "theirs.out", None)
    ends = []
    for n in range(3):
        writer.write(pa.table({"n": [n]}))
        ends.append(writer.seal())
    publish(folder, ends[1])
    for state in (None, ends[0].text):
        with pytest.raises(RecoveryBehind, match="2 published pieces"):
            begin(folder, "theirs.out", state)
    with pytest.raises(RecoveryBehind):
        publish(folder, ends[0])
    publish(folder, ends[0], known=1)  # it was asked for before the second one was published
    assert (begin(folder, "theirs.out", ends[1].text).end, published_in(folder), sealed_in(folder)) == (
        ends[1],
        2,
        [],
    )


def test_of_two_runs_of_a_dataflow_the_older_one_is_refused(tmp_path: Path) -> None:
    folder, rows = tmp_path / "part-0", pa.table({"n": [1]})
    zombie = begin(folder, "theirs.out", None)
    zombie.write(rows)
    state = zombie.seal().text
    begin(folder, "theirs.out", state)
    zombie.write(rows)
    with pytest.raises(LogTaken, match="TG-0990"):
        zombie.seal()
    assert published_in(folder) == 1


@pytest.mark.parametrize(
    "state", ["another's", "tidegauge:1:7d1f", "tidegauge:1:7d1f:x:y", "tidegauge:1:7d1f:3:c0de", 7]
)
def test_a_state_of_another_sink_or_log_is_refused(tmp_path: Path, state: Any) -> None:
    with pytest.raises(LogBehind, match="TG-0988"):
        begin(tmp_path / "part-0", "theirs.out", state)


def test_who_dies_while_pieces_are_published_leaves_one_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    for at in range(3):
        folder = tmp_path / f"part-{at}"
        writer = begin(folder, "theirs.out", None)
        for n in range(3):
            writer.write(pa.table({"n": [n]}))
            writer.seal()

        calls = iter([True] * at)

        def dying(*where: Any, calls: Iterator[bool] = calls) -> None:
            if not next(calls, False):
                raise Crash("link")
            link(*where)

        monkeypatch.setattr(os, "link", dying)
        with pytest.raises(Crash):
            publish(folder, writer.end)
        monkeypatch.setattr(os, "link", link)
        assert published_in(folder) == at
        publish(folder, writer.end)
        publish(folder, writer.end)
        assert [read_manifest(folder, n).rows for n in range(3)] == [1, 1, 1]
        assert (published_in(folder), sealed_in(folder)) == (3, [])


def test_a_log_of_another_end_is_not_published(tmp_path: Path) -> None:
    folder = tmp_path / "part-0"
    writer = begin(folder, "theirs.out", None)
    writer.write(pa.table({"n": [1]}))
    end = writer.seal()
    for other in (replace(end, digest="c0de"), replace(end, log="c0de"), replace(end, pieces=2)):
        with pytest.raises(LogBehind, match="TG-0988"):
            publish(folder, other)
    assert published_in(folder) == 0


def test_an_epoch_of_many_rows_is_written_before_it_is_over(tmp_path: Path) -> None:
    writer = begin(tmp_path / "part-0", "theirs.out", None)
    for _ in range(3):
        writer.write(pa.table({"n": list(range(40_000))}))
    files = [*(tmp_path / "part-0").rglob("*.parquet")]
    assert len(files) == 1
    publish(tmp_path / "part-0", writer.seal())
    assert [file.rows for file in read_manifest(tmp_path / "part-0", 0).files] == [80_000, 40_000]
