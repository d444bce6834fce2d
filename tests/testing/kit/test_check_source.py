"""The kit finds each kind of mistake in a source, names the law, and shows an example."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sources.benches import GeneratorBench, file_bench
from tests.testing.kit.hanging import hang, hung

from tidegauge.errors.sources import FileGone, FileOvertaken
from tidegauge.errors.testing import BenchNotMade, LawsBroken
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import Split
from tidegauge.sources.protocol import BadRecord, OnBadRecord
from tidegauge.testing.kit import SourceBench, check_source
from tidegauge.testing.kit.reading_laws import READING_LAWS, memory_is_bounded
from tidegauge.testing.kit.trial import Law, check
from tidegauge.testing.kit.trouble_laws import TROUBLE_LAWS


@dataclass
class Mistaken:
    """A source that makes one mistake, and is right in all else as the one behind it is."""

    source: Any
    mistake: str
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
        return {**self.source.describe(), **({"asked": len(self.told)} if self.mistake == "describe" else {})}

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        try:
            observed: Observation = self.source.probe(bound, now=now)
        except Exception:
            if self.mistake != "identity":
                raise
            return Observation(at=now, upper=bound.frontier, end=bound.frontier)
        if self.mistake == "back" and bound.frontier:
            return replace(observed, upper=Frontier())
        if self.mistake == "lags" and bound.frontier:
            return replace(observed, upper=bound.frontier, end=bound.frontier)
        if self.mistake == "gone" and bound.frontier and "no file" in observed.note:
            raise FileGone(path="a", lower=0, upper=1)
        if self.mistake == "open" and observed.upper.sealed:
            return replace(observed, upper=Frontier(dict(observed.upper)))
        return observed

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        try:
            found: list[Split] = self.source.plan(slices, bound)
        except Exception:
            if self.mistake not in ("identity", "short"):
                raise
            return []
        match self.mistake:
            case "hole":
                return found[:-1]
            case "twice":
                return [*found, *found[-1:]]
            case "cut" if len({piece.epoch for piece in slices}) > 2:
                first = min(split.epoch for split in found)
                return [replace(split, epoch=first) for split in found]  # type: ignore[type-var]
            case "forgets" if self.told and self.told[-1]:
                return []
        return found

    def cut(self, piece: Slice, size: int, bound: Bound) -> int | None:
        found: int | None = self.source.cut(piece, size, bound)
        return {"inside": piece.lower + 1, "nowhere": piece.upper}.get(self.mistake, found)

    def read(self, split: Any, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        def quiet(record: BadRecord) -> None:
            pass

        def moved(record: BadRecord) -> None:
            on_bad_record(replace(record, position=-1))

        handed = {"swallows": quiet, "misplaces": moved}.get(self.mistake, on_bad_record)
        if self.mistake == "beyond":
            split = replace(split, upper=Path(split.file.path).stat().st_size)
        made = self.source.read(split, handed)
        if self.mistake == "grows":
            made = list(made)
        try:
            for number, batch in enumerate(made):
                if self.mistake == "fewer":
                    yield batch.slice(1)
                elif self.mistake == "order":
                    yield batch.take(pa.array(range(batch.num_rows)[::-1]))
                elif self.mistake == "columns":
                    yield batch.cast(pa.schema([(name, pa.int32()) for name in batch.schema.names]))
                elif self.mistake == "busy" and not number:
                    key = f"{split}"
                    again = key in _READ
                    _READ.add(key)
                    if not again:
                        yield batch
                else:
                    yield batch
        except Exception:
            if self.mistake != "short":
                raise

    def acknowledge(self, frontier: Frontier) -> None:
        self.told.append(frontier)


_READ: set[str] = set()
"""What a source keeps that it should not."""

MISTAKES = {
    "describe": ("it is a value", "'?asked'?"),
    "back": ("a look goes on and never back", "refuses an answer of probe: TG-0213"),
    "lags": ("a look goes on and never back", "4 more records were added"),
    "fewer": (
        "reads give the records that were added",
        r"of .* from 0 to 9, .*: 0 rows instead of 1: \{n: 0\} is missing",
    ),
    "order": ("reads give the records that were added", r"in another order: row 0 is \{n: \d\} instead of"),
    "hole": ("reads give the records that were added", r"0 rows instead of 1: \{n: 0\} is missing"),
    "twice": ("reads give the records that were added", r"2 rows instead of 1: \{n: 0\} is too many"),
    "cut": ("cuts change nothing", "epochs in the plan: .* too many"),
    "inside": ("it is cut between records", "a good record was handed over as a bad one"),
    "nowhere": ("it is cut between records", r"from 0 to (\d+), are cut at \1"),
    "beyond": ("a read ends where its range ends", "4 records were bound and planned, 3 more came"),
    "columns": ("batches have the bound columns", "n: int32"),
    "busy": ("reading again gives the same", "0 rows instead of"),
    "short": ("fewer records are an error", "raised no TidegaugeError, and gave \\d rows"),
    "identity": ("another upstream is refused", "is the same upstream as|raised no Definite"),
    "forgets": ("acknowledging loses nothing that is left", "acknowledged.*: 0 rows instead of"),
    "swallows": ("bad records are told and reading goes on", "of one bad record 0 were handed over"),
    "misplaces": ("bad records are told and reading goes on", "at -1"),
    "gone": ("an upstream that is away may come back", "probing, while upstream is away, raised TG-0321"),
    "grows": ("memory is bounded", "batches are in memory where one was asked for"),
}


BY_NAME: dict[str, Law[SourceBench]] = {
    **{law.__name__.replace("_", " "): law for law in (*READING_LAWS, *TROUBLE_LAWS)},
    "memory is bounded": partial(memory_is_bounded, count=300_000),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_and_the_report_shows_an_example(mistake: str) -> None:
    law, example = MISTAKES[mistake]
    _READ.clear()

    def make(folder: Path) -> Any:
        bench = file_bench(folder, "jsonl", 1 << 30 if mistake in ("grows", "beyond", "order") else 24)
        bench.source = Mistaken(bench.source, mistake)
        return bench

    tried = BY_NAME[law]
    report = check("source", SourceBench, [tried], make, deadline=120, put=lambda bench, _folder: bench)
    [broken] = report.broken
    assert (broken.name, bool(broken.law), bool(broken.remedy)) == (law, True, True)
    assert re.search(example, broken.example), broken.example
    assert all(word in str(report) for word in (f"BROKEN     {law}", broken.law, broken.example, broken.remedy))
    with pytest.raises(LawsBroken, match=law):
        report.require()


def test_a_mistake_breaks_few_laws_and_the_others_are_tried() -> None:
    def make(folder: Path) -> Any:
        bench = file_bench(folder, "jsonl")
        bench.source = Mistaken(bench.source, "swallows")
        return bench

    report = check_source(make, many=0)
    assert [finding.name for finding in report.broken] == ["bad records are told and reading goes on"]
    assert sum(finding.held for finding in report.findings) == 12


def test_an_end_that_is_not_told_is_found() -> None:
    def make(folder: Path) -> Any:
        bench: Any = Unsealed()
        return bench

    [finding] = check_source(make, many=0).broken
    assert (finding.name, "not sealed" in finding.example) == ("the end is the end", True)


class Unsealed(GeneratorBench):
    def finish(self) -> None:
        super().finish()
        self.source = Mistaken(self.source, "open")  # type: ignore[assignment]


class Hanging(Mistaken):
    """A source that never comes back from one call."""

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        if self.mistake == "probe":
            hang()
        return super().probe(bound, now=now)

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        if self.mistake == "plan":
            hang()
        return super().plan(slices, bound)

    def read(self, split: Any, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        if self.mistake == "read":
            hang()
        yield from super().read(split, on_bad_record)


@pytest.mark.parametrize("call", ["probe", "plan", "read"])
def test_a_call_that_never_returns_is_named_and_the_check_ends(call: str) -> None:
    def make(folder: Path) -> Any:
        bench = file_bench(folder, "jsonl")
        bench.source = Hanging(bench.source, call)
        return bench

    with hung():
        report = check_source(make, deadline=4.0)
    [finding] = report.broken
    said = rf"after 4 seconds it was still in `Hanging\.{call}` \(test_check_source\.py:\d+, in `{call}`\)"
    assert re.fullmatch(said, finding.example), finding.example
    rest = report.findings[report.findings.index(finding) + 1 :]
    assert rest
    assert all("did not come to an end before" in later.untried for later in rest)


def test_an_exception_of_a_source_is_the_example_with_the_call_it_came_from() -> None:
    class Clumsy(Mistaken):
        def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
            raise KeyError("rows")

    def make(folder: Path) -> Any:
        bench = file_bench(folder, "jsonl")
        bench.source = Clumsy(bench.source, "")
        return bench

    example = {finding.name: finding.example for finding in check_source(make, many=0).broken}
    said = example["batches have the bound columns"]
    assert re.fullmatch(r"`.*Clumsy\.plan` \(test_check_source\.py:\d+, in `plan`\) raised KeyError: 'rows'", said)


def test_a_law_that_needs_a_hand_which_the_bench_lacks_is_not_tried_and_says_so() -> None:
    class Plain:
        def __init__(self, folder: Path) -> None:
            self.bench = file_bench(folder, "jsonl")
            self.source, self.now, self.add = self.bench.source, self.bench.now, self.bench.add

    report = check_source(Plain, many=0)
    assert report.ok
    untried = {finding.name: finding.untried for finding in report.findings if finding.untried}
    assert untried["fewer records are an error"] == "the bench has no `lose`"
    assert len(untried) == 6
    assert "not tried  another upstream is refused: the bench has no `recreate`" in str(report)


def broken_factory(folder: Path) -> Any:
    raise OSError("no such server")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (broken_factory, r"`broken_factory` raised OSError: no such server"),
        (lambda folder: object(), r"returned <object object"),
    ],
)
def test_what_makes_no_bench_is_refused(make: Callable[[Path], Any], said: str) -> None:
    with pytest.raises(BenchNotMade, match=said):
        check_source(make)


class Away(Mistaken):
    def read(self, split: Any, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        if not Path(split.file.first).exists():
            raise FileOvertaken(path="a", problem="nobody answers")
        yield from super().read(split, on_bad_record)


def test_what_is_away_may_be_reported_as_transient() -> None:
    def make(folder: Path) -> Any:
        bench = file_bench(folder, "jsonl")
        bench.source = Away(bench.source, "")
        return bench

    found = {finding.name: finding for finding in check_source(make, many=0).findings}
    assert found["an upstream that is away may come back"].held
