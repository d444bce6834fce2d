"""Which leaves are touched: those of changed keys, and no others; and what a task holds is bounded."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.sinks import DeltaSink, OutputId, StagedFile
from tidegauge.sinks.delta import bykey
from tidegauge.sinks.keyed import folding, merging
from tidegauge.sinks.keyed.keys import Ends
from tidegauge.sinks.keyed.planning import Sizes, TableLeaf, clusters, parted, spread

OUTPUT = OutputId("shop", "users", "a" * 32)
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("_epoch", pa.int64())])
KEY = st.integers(0, 7).map(lambda n: (n,))
LEAF = st.tuples(KEY, KEY) | st.tuples(KEY, KEY) | st.tuples(KEY, KEY) | st.tuples(st.none() | KEY, st.none() | KEY)


def leaf(name: str, low: Any, high: Any) -> TableLeaf:
    ends = Ends(min(low, high), max(low, high)) if low is not None and high is not None else Ends(low, high)
    return TableLeaf(StagedFile(name, 1, 1, 0, 0), ends)


@deep(400)
@given(found=st.lists(LEAF, max_size=4), key=KEY)
def test_every_leaf_that_can_hold_a_key_is_in_the_cluster_of_its_territory(found: list[Any], key: Any) -> None:
    leaves = [leaf(str(n), low, high) for n, (low, high) in enumerate(found)]
    made = clusters(leaves)
    assert sorted(one.file.path for each in made for one in each.leaves) == [one.file.path for one in leaves]
    assert [one.high for one in made[:-1]] == [one.low for one in made[1:]]
    assert (made[0].low, made[-1].high) == (None, None)
    [place] = spread([key], made)
    mine = made[place]
    assert Ends(key, key).inside(mine.low, mine.high)
    for one in leaves:
        can = (one.ends.low is None or one.ends.low <= key) and (one.ends.high is None or key <= one.ends.high)
        assert not can or one in mine.leaves


@deep(400)
@given(
    weights=st.lists(st.tuples(KEY, st.integers(1, 50)), max_size=20),
    ends=st.tuples(st.none() | KEY, st.none() | KEY),
    most=st.integers(1, 100),
)
def test_parts_cover_the_keys_and_none_is_cut_where_it_need_not_be(weights: Any, ends: Any, most: int) -> None:
    low, high = ends
    parts = parted(weights, low, high, most=most)
    assert (parts[0][0], parts[-1][1]) == (low, high)
    assert [one[1] for one in parts[:-1]] == [one[0] for one in parts[1:]]
    cuts = [one[0] for one in parts[1:] if one[0] is not None]
    assert cuts == sorted(set(cuts))
    assert len(parts) <= 1 + sum(weight for _, weight in weights) * 2 // most + len(
        [w for _, w in weights if w > most]
    )


def stage(sink: DeltaSink, ids: list[int], epoch: int) -> list[StagedFile]:
    stager = sink.stage(SCHEMA, job="a" * 16 + uuid.uuid4().hex[:16], task=0)
    text = [str(one) for one in ids]
    stager.write(pa.RecordBatch.from_pydict({"id": ids, "text": text, "_epoch": [epoch] * len(ids)}, SCHEMA))
    return stager.close()


def test_keys_far_apart_touch_their_own_leaves_and_none_between_them(tmp_path: Path) -> None:
    with mock.patch.object(bykey, "SIZES", Sizes(leaf_rows=10)):
        sink = DeltaSink(str(tmp_path / "t"), envelope="upsert", key="id")
        table = sink.open(OUTPUT)
        table.commit(0, 1, SCHEMA, stage(sink, list(range(0, 2000, 2)), 0), write="a" * 32)
        changed = [([3], 1), ([7, 1001, 1995], 3), ([0, 2, 4, 6], 1), ([-5, 5000], 2), (list(range(500, 520)), 3)]
        for epoch, (ids, most) in enumerate(changed, start=1):
            before = {one.path for one in table.files()}
            assert len(before) >= 100
            tasks: list[int] = []

            def done(work: Any, tasks: list[int] = tasks) -> Any:
                tasks.append(len(work))
                return [one() for one in work]

            table.work_by(done)  # type: ignore[union-attr]
            table.commit(epoch, epoch + 1, SCHEMA, stage(sink, ids, epoch), write=uuid.uuid4().hex)
            touched = len(before - {one.path for one in table.files()})
            assert 1 <= touched <= most
            assert tasks == [touched]
        assert len(DeltaTable(sink.path).to_pyarrow_table()) == 1000 + 3 + 1 + 2 + 10


def test_a_task_holds_a_short_part_at_once_whatever_the_size_of_its_leaf(tmp_path: Path) -> None:
    seen: list[int] = []
    real = folding.merged

    def watched(changes: pa.Table, *given: Any, **more: Any) -> Any:
        seen.append(changes.num_rows)
        return real(changes, *given, **more)

    sizes = Sizes(part_rows=1000, part_bytes=16_000)
    for rows in (20_000, 80_000):
        with mock.patch.object(bykey, "SIZES", sizes), mock.patch("tidegauge.sinks.staging.GROUP_ROWS", 500):
            sink = DeltaSink(str(tmp_path / str(rows)), envelope="upsert", key="id")
            table = sink.open(OUTPUT)
            table.commit(0, 1, SCHEMA, stage(sink, list(range(rows)), 0), write="a" * 32)
            with mock.patch.object(merging, "merged", watched):
                table.commit(1, 2, SCHEMA, stage(sink, list(range(0, rows, 7)), 1), write="b" * 32)
            assert len(DeltaTable(sink.path).to_pyarrow_table()) == rows
    assert max(seen) <= 2 * sizes.part_rows
    assert len(seen) >= 10
