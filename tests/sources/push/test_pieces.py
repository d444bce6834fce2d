"""Pieces: what waits for outputs, where it waits, and when it is forgotten."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from tests.flow.taps import COLUMNS, Tap, Well

from tidegauge.errors.push import PieceUnreadable, StagingFull, StartForgotten
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources.protocol import BadRecord, OnBadRecord
from tidegauge.sources.push.pieces import Pieces
from tidegauge.sources.push.source import PushedSource, PushedSplit, StreamRows

FORGOTTEN = StartForgotten(source="feed", partition="p0", oldest=9, start=1)


def rows(*positions: int, stream: str = "a") -> StreamRows:
    columns = [list(positions), ["p0"] * len(positions), list(positions)]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, COLUMNS, strict=True)]
    return StreamRows(stream, pa.RecordBatch.from_arrays(arrays, schema=COLUMNS))


def slices(*epochs: int) -> list[Slice]:
    return [Slice("feed", epoch, "p0", 10 * epoch, 10 * epoch + 10) for epoch in epochs]


def made(staging: Path | None = None, *, memory: int = 1 << 20, most: int = 1 << 30) -> Pieces:
    source = PushedSource(Tap(Well(), ("a", "b")), None if staging is None else str(staging))
    pieces = Pieces("shop", "feed", source, memory=memory, most=most)
    pieces.needed({"a": 0, "b": 0})
    return pieces


def refuse(record: BadRecord) -> None:
    raise AssertionError(record)


def read(pieces: Pieces, *epochs: int) -> list[tuple[int, str, int]]:
    """Return epoch, stream and number of every record, as tasks read them: the splits are sent to other processes."""
    found = []
    for split in pickle.loads(pickle.dumps(pieces.plan(slices(*epochs), Bound()))):
        assert isinstance(split, PushedSplit)
        for batch in pieces.source.read(split, refuse):
            found += [(split.epoch, split.channel, n) for n in batch["n"].to_pylist()]
    return found


def test_an_epoch_is_planned_when_it_is_whole_and_not_before() -> None:
    pieces = made()
    woken: list[int] = []
    pieces.attach(lambda: woken.append(pieces.upper))
    pieces.keep(1, rows(10, 11))
    with pytest.raises(PieceUnreadable, match="has not come whole"):
        pieces.plan(slices(1), Bound())
    pieces.keep(1, rows(12, stream="b"))
    pieces.keep(1, rows(13))
    pieces.complete(2)
    assert woken == [2]
    assert read(pieces, 1) == [(1, "a", 10), (1, "a", 11), (1, "a", 13), (1, "b", 12)]


def test_an_epoch_that_will_never_be_whole_says_why_and_whole_ones_are_read() -> None:
    pieces = made()
    pieces.keep(1, rows(10))
    pieces.complete(2)
    pieces.keep(2, rows(20))
    pieces.fail(FORGOTTEN)
    assert read(pieces, 1) == [(1, "a", 10)]
    with pytest.raises(StartForgotten):
        pieces.plan(slices(1, 2), Bound())


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_what_waits_in_files_is_read_as_what_waits_in_memory(tmp_path: Path, memory: int) -> None:
    pieces = made(tmp_path / "staging", memory=memory)
    for epoch in range(4):
        pieces.keep(epoch, rows(*range(10 * epoch, 10 * epoch + 10)))
    pieces.complete(4)
    pieces.relieve()
    assert bool(pieces.in_memory) == bool(memory)
    assert len(list(tmp_path.rglob("*.arrows"))) == (0 if memory else 4)
    assert [n for _, _, n in read(pieces, 0, 1, 2, 3)] == list(range(40))
    pieces.needed({"a": 3, "b": 4})
    assert read(pieces, 3) == [(3, "a", n) for n in range(30, 40)]
    pieces.needed({"a": 4, "b": 4})
    assert (pieces.total, pieces.in_memory, list(tmp_path.rglob("*.arrows"))) == (0, 0, [])


def test_records_that_no_output_lacks_are_not_kept() -> None:
    pieces = made()
    pieces.needed({"a": 2})
    pieces.keep(1, rows(10))
    pieces.keep(2, rows(20, stream="b"))
    assert pieces.total == 0
    pieces.needed({"a": 3, "errors": 2})
    pieces.keep(2, rows(21, stream="b"))  # a bad record may be in any stream
    assert pieces.total > 0


def test_ranges_that_were_given_up_are_left_out() -> None:
    pieces = made()
    pieces.keep(1, rows(*range(10, 20)))
    pieces.complete(2)
    [split] = pieces.plan([Slice("feed", 1, "p0", 10, 13), Slice("feed", 1, "p0", 17, 20)], Bound())
    assert isinstance(split, PushedSplit)
    [batch] = pieces.source.read(split, refuse)
    assert batch["n"].to_pylist() == [10, 11, 12, 17, 18, 19]


def test_it_is_full_only_where_outputs_can_take_something() -> None:
    pieces = made(most=1000)
    for _ in range(9):
        pieces.keep(1, rows(*range(10, 20)))
    seen = [pieces.full]  # an epoch is received whole, however large
    pieces.complete(2)
    seen.append(pieces.full)
    pieces.attach(lambda: seen.append(pieces.full))
    pieces.needed({"a": 2, "b": 2})
    assert seen == [False, True, False]


def test_a_staging_folder_that_takes_nothing_is_waited_for_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    pieces = made(tmp_path / "file", memory=0)
    pieces.keep(1, rows(10))
    pieces.complete(2)
    with pytest.raises(StagingFull, match="feed"):
        pieces.relieve()
    assert read(pieces, 1) == [(1, "a", 10)]
    (tmp_path / "file").unlink()
    pieces.relieve()
    assert pieces.in_memory == 0
    assert read(pieces, 1) == [(1, "a", 10)]


def test_a_run_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    left = tmp_path / "shop" / "feed" / "of a killed run" / "1.arrows"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"...")
    pieces = made(tmp_path, memory=0)
    pieces.keep(1, rows(10))
    pieces.relieve()
    assert not left.exists()
    pieces.close()
    assert not list(tmp_path.rglob("*.arrows"))


class Referring(Tap):
    """A tap whose records stand for three megabytes each, which are elsewhere."""

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        return batch

    def beside(self, batch: pa.RecordBatch) -> int:
        return 3_000_000 * int(batch.num_rows)


def test_what_is_read_beside_records_counts_as_work_and_is_dealt_out_but_waits_nowhere() -> None:
    pieces = Pieces("shop", "feed", PushedSource(Referring(Well(), ("a", "b")), None), memory=1 << 20)
    pieces.needed({"a": 0, "b": 0})
    for position in range(7):
        pieces.keep(0, rows(position))
    pieces.complete(1)
    splits = pieces.plan(slices(0), Bound())
    assert [split.weight // 1_000_000 for split in splits] == [9, 9, 3]
    assert [split.weight % 1_000_000 < 10_000 for split in splits] == [True] * 3
    assert pieces.total < 10_000
    assert [number for _, _, number in read(pieces, 0)] == list(range(7))
