"""What every source must hold, whatever it reads: the laws of `source_laws`, each on a bench of each source."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.sources.benches import FORMATS, FileBench, GeneratorBench, KafkaBench
from tests.sources.source_laws import LAWS, SourceBench, all_bound, cuts_change_nothing, memory_is_bounded

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import FileSource, GeneratorSource, KafkaSource, Source, Split
from tidegauge.sources.protocol import BadRecord, OnBadRecord

KINDS = [*FORMATS, "generator", "kafka"]


def checked_by_the_type_checkers(file: FileSource, generator: GeneratorSource, kafka: KafkaSource) -> list[Source]:
    """The seam in full: a method that a source lacks is a type error here."""
    return [file, generator, kafka]


Maker = Callable[..., SourceBench]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    """Make a bench of a kind. A broker is asked for only where it is needed. split: what a task reads at once."""

    def made(kind: str, split: int | None = None) -> SourceBench:
        if kind == "generator":
            return GeneratorBench()
        if kind == "kafka":
            secret = ("TIDEGAUGE_TEST_NAME", f"hunter-{uuid.uuid4().hex}")
            monkeypatch.setenv(*secret)
            topic = request.getfixturevalue("make_topic")(partitions=2)
            return KafkaBench(request.getfixturevalue("kafka_broker"), topic, secret, split or 3)
        return FileBench(tmp_path / "upstream", kind, split or 24)

    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_it_holds(law: Callable[[SourceBench], None], kind: str, make: Maker) -> None:
    law(make(kind))


def whatever_the_cuts(bench: SourceBench) -> None:
    for count in (7, 20, 3):
        bench.add(count)
    bound = all_bound(bench)

    @deep(40)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        def choose(positions: Sequence[int]) -> Sequence[int]:
            chosen: list[int] = data.draw(st.lists(st.sampled_from(list(positions)), max_size=4))
            return chosen

        cuts_change_nothing(bench, bound, choose)

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_cuts_change_nothing(kind: str, make: Maker) -> None:
    whatever_the_cuts(make(kind))


LARGE = [pytest.param(kind, marks=[pytest.mark.long] if kind == "kafka" else []) for kind in KINDS]


@pytest.mark.parametrize("kind", LARGE)
def test_memory_is_bounded(kind: str, make: Maker) -> None:
    memory_is_bounded(make(kind, 1 << 30), 300_000)


@dataclass
class Broken:
    """A source that breaks one law, and holds the others as the one behind it does."""

    source: Any
    fault: str
    told: list[Frontier] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)

    @property
    def unit(self) -> str:
        return str(self.source.unit)

    @property
    def schema(self) -> pa.Schema | None:
        found: pa.Schema | None = self.source.schema
        return found

    def describe(self) -> dict[str, Any]:
        self.told.append(Frontier())
        return {**self.source.describe(), **({"asked": len(self.told)} if self.fault == "describe" else {})}

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        try:
            observed: Observation = self.source.probe(bound, now=now)
        except TidegaugeError:
            if self.fault != "identity":
                raise
            return Observation(at=now, upper=bound.frontier, end=bound.frontier)
        if self.fault == "back" and bound.frontier:
            return Observation(at=now, upper=Frontier(), end=observed.end)
        return observed

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        try:
            found: list[Split] = self.source.plan(slices, bound)
        except TidegaugeError:
            if self.fault not in ("identity", "short"):
                raise
            return []
        if self.fault == "hole":
            return found[:-1]
        if self.fault == "twice":
            return [*found, *found[-1:]]
        return found[:0] if self.fault == "forgets" and self.told else found

    def read(self, split: Any, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        def quiet(record: BadRecord) -> None:
            pass

        made = self.source.read(split, quiet if self.fault == "swallows" else on_bad_record)
        if self.fault == "grows":
            made = list(made)
        try:
            for batch in made:
                if self.fault == "fewer":
                    yield batch.slice(1)
                elif self.fault == "columns":
                    yield batch.rename_columns([name.upper() for name in batch.schema.names])
                else:
                    yield batch
        except TidegaugeError:
            if self.fault != "short":
                raise

    def acknowledge(self, frontier: Frontier) -> None:
        self.told.append(frontier)


FAULTS = {
    "describe": "it_is_a_value",
    "back": "a_look_goes_on_and_never_back",
    "fewer": "what_is_read_is_what_was_added",
    "columns": "batches_have_the_bound_columns",
    "short": "fewer_records_are_an_error",
    "identity": "another_upstream_is_refused",
    "forgets": "acknowledging_twice_or_less_changes_nothing",
    "swallows": "bad_records_are_told_and_reading_goes_on",
    "hole": "cuts_change_nothing",
    "twice": "cuts_change_nothing",
    "grows": "memory_is_bounded",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_law_notices_a_source_that_breaks_it(fault: str, make: Maker) -> None:
    notices(make, "jsonl", fault)


def notices(make: Maker, kind: str, fault: str) -> None:
    law = FAULTS[fault]
    bench = make(kind, 1 << 30 if law == "memory_is_bounded" else None)
    bench.source = Broken(bench.source, fault)
    with pytest.raises((AssertionError, TidegaugeError, pytest.fail.Exception)):
        held(law, bench)


def held(law: str, bench: SourceBench) -> None:
    if law == "cuts_change_nothing":
        bench.add(9)
        cuts_change_nothing(bench, all_bound(bench), lambda positions: positions[1:3])
    elif law == "memory_is_bounded":
        memory_is_bounded(bench, 300_000)
    else:
        LAWS[law](bench)
