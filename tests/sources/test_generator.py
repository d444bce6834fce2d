"""GeneratorSource: the same rows wherever and however they are made, at the pace that was asked for."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import GeneratorSource
from tidegauge.sources.generated import words
from tidegauge.sources.protocol import BadRecord, Source

START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = (
    "flag boolean, tiny tinyint, small short, i int, n long, f float, d double, s string, day date, "
    "at timestamp, local timestamp_ntz, p decimal(9,2), q decimal(18,0), r decimal(19,3), w decimal(38,10)"
)


def never(record: BadRecord) -> None:
    raise AssertionError(record)


def read(source: GeneratorSource, *ranges: tuple[int, int], shard: int = 0) -> pa.Table:
    slices = [Slice("g", 0, f"shard-{shard}", lower, upper) for lower, upper in ranges]
    splits = pickle.loads(pickle.dumps(source.plan(slices, Bound())))
    batches = [batch for split in splits for batch in source.read(split, never)]
    return pa.Table.from_batches(batches, source.schema)


def bind(bound: Bound, probe: Any) -> Bound:
    if probe.upper == bound.frontier:
        return bound
    return Bound(frontier=probe.upper, details={**bound.details, **probe.details}, schema=probe.schema)


def test_it_is_a_source_and_a_value() -> None:
    source: Source = GeneratorSource(5, columns="n long")
    assert isinstance(source, Source)
    assert pickle.loads(pickle.dumps(source)) == source
    assert source.unit == "records"
    assert source.describe()["rows"] == 5


@deep(25)
@given(cuts=st.sets(st.integers(1, 199_999), max_size=5), seed=st.integers(-5, 2**70), shard=st.integers(0, 9))
def test_any_range_read_alone_is_that_part_of_the_whole(cuts: set[int], seed: int, shard: int) -> None:
    source = GeneratorSource(columns="n long, s string, w decimal(30,2)", seed=seed, shards=10, metadata=True)
    whole = read(source, (0, 200_000), shard=shard)
    pieces = read(source, *pairwise([0, *sorted(cuts), 200_000]), shard=shard)
    assert whole.equals(pieces)
    assert whole["_offset"].equals(pa.chunked_array([pa.array(range(200_000))]))


def test_every_type_is_made_within_its_bounds() -> None:
    table = read(GeneratorSource(columns=ALL), (0, 5000))
    table.validate(full=True)
    assert sum(column.null_count for column in table.columns) == 0
    flags = table["flag"].to_pylist()
    assert 2300 < sum(flags) < 2700
    for name, low, high in [("tiny", -128, 127), ("f", 0, 1), ("d", 0, 1), ("p", 0, 10**7), ("w", 0, 10**28)]:
        values = table[name].to_pylist()
        assert low <= min(values) < low + (high - low) * 0.01
        assert high - (high - low) * 0.01 < max(values) <= high
    assert len(set(table["s"].to_pylist())) == len(set(table["n"].to_pylist())) == 5000
    assert min(table["day"].to_pylist()).year >= 1970
    assert max(table["local"].to_pylist()).year < 2070


def test_seeds_shards_and_columns_differ_and_a_column_does_not_depend_on_its_neighbours() -> None:
    base = GeneratorSource(columns="a long, b long", shards=2)
    table = read(base, (0, 100))
    others = [
        read(replace(base, seed=1), (0, 100))["a"],
        read(base, (0, 100), shard=1)["a"],
        table["b"],
    ]
    assert not any(table["a"].equals(other) for other in others)
    assert read(replace(base, columns="b long"), (0, 100))["b"].equals(table["b"])


def test_another_process_makes_the_same_rows() -> None:
    program = (
        "import sys\n"
        "from tidegauge.remap.binding import Bound, Slice\n"
        "from tidegauge.sources import GeneratorSource\n"
        f"source = GeneratorSource(columns={ALL!r}, seed=3)\n"
        "[split] = source.plan([Slice('g', 0, 'shard-0', 10, 20)], Bound())\n"
        "for batch in source.read(split, print): print(batch.to_pylist())\n"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    here = str(read(GeneratorSource(columns=ALL, seed=3), (10, 20)).to_pylist())
    assert answers == [here, here]


def test_the_rows_of_a_seed_are_these_for_good() -> None:
    table = read(GeneratorSource(columns="n long, s string", seed=1), (0, 2))
    assert table.to_pylist() == [
        {"n": 7267410681966892642, "s": "26eb36c7aff24da2"},
        {"n": 1471401714185146083, "s": "e4e096748782d538"},
    ]


def test_the_words_are_those_of_splitmix64() -> None:
    mask = 2**64 - 1
    state = int.from_bytes(hashlib.blake2b(b"key", digest_size=8).digest(), "little")
    expected = []
    for _ in range(100):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        expected.append(z ^ (z >> 31))
    assert words(b"key", 0, 100).tolist() == expected
    assert words(b"key", 40, 100).tolist() == expected[40:]


@given(
    ticks=st.lists(st.integers(0, 3000), min_size=1, max_size=8),
    rate=st.sampled_from([0.5, 3, 1000.0, 1e6 / 3]),
    shards=st.integers(1, 5),
)
def test_the_frontier_is_a_function_of_start_and_now(ticks: list[int], rate: float, shards: int) -> None:
    """However often it was asked on the way, and however often it was started anew."""
    source = GeneratorSource(columns="n long", rate=rate, shards=shards)
    bound = bind(Bound(), source.probe(Bound(), now=START))
    now = START
    for step in ticks:
        now += timedelta(milliseconds=step)
        bound = bind(bound, pickle.loads(pickle.dumps(source)).probe(bound, now=now))
    straight = replace(source, start=START).probe(Bound(), now=now)
    assert bound.frontier == straight.upper
    total = sum(bound.frontier.values())
    assert total - 1 <= rate * (now - START).total_seconds() * (1 + 1e-9)
    assert max(bound.frontier.values()) - min(bound.frontier[f"shard-{s}"] for s in range(shards)) <= 1


def test_nothing_comes_before_the_start_nor_when_the_clock_goes_back() -> None:
    source = GeneratorSource(columns="n long", rate=10, start=START)
    early = source.probe(Bound(), now=START - timedelta(seconds=1))
    assert early.upper == Frontier()
    assert early.note == "waiting: the first row comes at 2026-01-01T00:00:00+00:00"
    bound = bind(Bound(), source.probe(Bound(), now=START + timedelta(seconds=1)))
    assert dict(bound.frontier) == {"shard-0": 11}
    assert source.probe(bound, now=START).upper == bound.frontier


def test_an_epoch_takes_its_limit() -> None:
    source = GeneratorSource(25, columns="n long", max_records_per_epoch=10, shards=3)
    bound, sizes, more = Bound(), [], []
    while not bound.frontier.sealed:
        probe = source.probe(bound, now=START)
        sizes.append(probe.upper.distance(bound.frontier))
        more.append(probe.more)
        assert sum(probe.end.values()) == 25
        bound = bind(bound, probe)
    assert sizes == [10, 10, 5], "the end takes no epoch of its own"
    assert more == [True, True, False]
    assert source.probe(bound, now=START).upper == bound.frontier


def test_no_rows_are_the_end_at_once() -> None:
    assert GeneratorSource(0, columns="n long").probe(Bound(), now=START).upper.sealed


def test_without_an_end_there_is_always_more() -> None:
    probe = GeneratorSource(columns="n long", max_records_per_epoch=7).probe(Bound(), now=START)
    assert (sum(probe.upper.values()), probe.more, probe.upper.sealed) == (7, True, False)


def test_another_seed_is_another_upstream_and_another_rate_is_not() -> None:
    source = GeneratorSource(columns="n long", rows=100)
    identity = source.probe(Bound(), now=START).identity
    assert replace(source, rate=5.0, rows=200).probe(Bound(), now=START).identity == identity
    for other in (replace(source, seed=1), replace(source, shards=2), replace(source, columns="n int")):
        assert other.probe(Bound(), now=START).identity != identity


def test_a_large_slice_is_cut_into_splits() -> None:
    splits = GeneratorSource(columns="n long").plan([Slice("g", 0, "shard-0", 5, 2_500_000)], Bound())
    assert [(split.lower, split.upper) for split in splits] == [
        (5, 1_000_005),
        (1_000_005, 2_000_005),
        (2_000_005, 2_500_000),
    ]
    assert splits[0].weight == 8_000_000


@pytest.mark.parametrize(
    "options",
    [
        {"rows": -1},
        {"rows": 1.5},
        {"shards": 0},
        {"seed": "x"},
        {"rate": 0},
        {"rate": float("nan")},
        {"rate": float("inf")},
        {"start": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"max_records_per_epoch": 0},
        {"columns": "tags array<string>"},
        {"columns": "raw binary"},
    ],
)
def test_arguments_that_cannot_mean_anything_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        GeneratorSource(**{"columns": "n long", **options})


def test_reserved_columns_are_refused() -> None:
    GeneratorSource(columns="_offset long")
    with pytest.raises(ReservedColumn):
        GeneratorSource(columns="_offset long", metadata=True)
