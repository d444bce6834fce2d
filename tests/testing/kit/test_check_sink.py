"""The kit finds each kind of mistake in a sink, names the law, and shows an example."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.sinks.conftest import read_parquet
from tests.testing.kit.hanging import hung
from tests.testing.kit.mistaken import MistakenSink, NoteSink

from tidegauge.errors.testing import BenchNotMade, LawsBroken
from tidegauge.sinks import ParquetSink, Sink
from tidegauge.testing.kit import SinkBench, check_sink
from tidegauge.testing.kit.commit_laws import COMMIT_LAWS
from tidegauge.testing.kit.driver_laws import DRIVER_LAWS, a_crash_leaves_all_or_nothing
from tidegauge.testing.kit.option_laws import OPTION_LAWS
from tidegauge.testing.kit.place import SinkOnTrial
from tidegauge.testing.kit.table_laws import TABLE_LAWS
from tidegauge.testing.kit.trial import Law, check


@dataclass
class MistakenBench:
    folder: Path
    mistake: str

    def __post_init__(self) -> None:
        self.path = self.folder / "orders"
        self.sink: Any = MistakenSink(str(self.path), self.mistake)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = read_parquet(str(self.path)).to_pylist()
        return found

    def remove(self) -> None:
        shutil.rmtree(self.path)

    def ways(self) -> list[Sink]:
        link = self.folder / "link"
        link.symlink_to("orders")
        return [MistakenSink(str(link), self.mistake)]

    def elsewhere(self) -> Sink:
        return MistakenSink(f"{self.path}-2", self.mistake)

    def layouts(self) -> list[Sink]:
        return [MistakenSink(str(self.path), self.mistake, sort_by="user")]


MISTAKES = {
    "describe": ("it is a value", "'?files'?"),
    "number": ("it is a value", "its identity is 42, and should be a text"),
    "check": ("it is a value", r"`MistakenSink.check` .* raised TypeError: a table of this kind"),
    "nonsense": ("a table tells its files by epoch", r"the kit, at `.*files\(.*\).*` in .* raised TypeError: 'int'"),
    "identity": ("its identity is its place", "is the same place, and its identity"),
    "eager": ("opening changes nothing", r"has made the files \['orders/_ready'\]"),
    "visible": ("rows are hidden until they are committed", "litter.* too many"),
    "empty": ("commits without rows move the upper", "the upper is 0|TG-0407"),
    "deaf": ("a commit elsewhere than at the upper is refused", r"\[0, 1\) to a table at 2 raised no TableUpper"),
    "blind": ("files that are not as they were staged are not committed", r"epochs \[0, 2\] raised no"),
    "litters": ("discard removes staged rows and nothing else", "discarded, and left or lost"),
    "follows": ("discard removes staged rows and nothing else", "a file outside its place was removed"),
    "columns": ("the columns of a table stay", "'amout', .* raised no TableSchemaChanged"),
    "output": ("another output is kept apart", "as that of 'shop:clicks' raised no Definite"),
    "life": ("another life of the flow is refused", "TG-0407, .*where it should raise Definite"),
    "hasty": ("sweeping clears the litter of drivers that died", "whose lease is lost raised no"),
    "as of": ("a table tells its files by epoch", r"files\(as_of=0\) lack"),
    "digest": ("a table keeps the history it was told", "the digest is None"),
    "history": ("a table keeps the history it was told", "raised no HistoriesDiffer"),
    "early": ("columns come with the rows that have them", "TG-0406, .*should raise TableUpperMismatch"),
    "lazy": ("columns come with the rows that have them", "it lacks \\(\\), not \\('note',\\)"),
    "first job": ("epochs that share a commit stay apart", "missing"),
    "forgets": ("epochs that share a commit stay apart", "TG-04"),
    "lays": ("a layout changes no rows", "user: None.* is missing"),
    "remove": ("files are taken out in whole or not at all", "raised TG-0406"),
}


BY_NAME: dict[str, Law[SinkOnTrial]] = {
    law.__name__.replace("_", " "): law for law in (*COMMIT_LAWS, *DRIVER_LAWS, *TABLE_LAWS, *OPTION_LAWS)
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_and_the_report_shows_an_example(mistake: str) -> None:
    law, example = MISTAKES[mistake]

    def make(folder: Path) -> MistakenBench:
        return MistakenBench(folder, mistake)

    def put(bench: SinkBench, folder: Path) -> SinkOnTrial:
        return SinkOnTrial(bench, folder, make)

    report = check("sink", SinkBench, [BY_NAME[law]], make, deadline=120, put=put)
    [broken] = report.broken
    assert (broken.name, bool(broken.law), bool(broken.remedy)) == (law, True, True)
    assert re.search(example, broken.example), broken.example
    assert all(word in str(report) for word in (f"BROKEN     {law}", broken.law, broken.example, broken.remedy))
    with pytest.raises(LawsBroken, match=law):
        report.require()


def test_a_mistake_breaks_few_laws_and_the_others_are_tried() -> None:
    report = check_sink(lambda folder: MistakenBench(folder, "digest"), crashes=0)
    assert [finding.name for finding in report.broken] == ["a table keeps the history it was told"]
    assert sum(finding.held for finding in report.findings) == 23


@dataclass
class NoteBench:
    folder: Path

    def __post_init__(self) -> None:
        self.path = self.folder / "note"
        self.sink = NoteSink(str(self.path))

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def remove(self) -> None:
        self.path.unlink()
        self.sink.open(None).mark.unlink()  # type: ignore[arg-type]


def test_two_steps_where_one_is_needed_are_found_by_a_crash_and_by_two_at_once() -> None:
    report = check_sink(NoteBench, crashes=2, deadline=120)
    broken = {finding.name: finding.example for finding in report.broken}
    assert re.search(r"died in the commit of epoch \d+, before `.*`: .", broken["a crash leaves all or nothing"])
    assert "at once" in broken["of two commits at once one wins"]
    assert "two commits" in broken["of two writers one wins"] or "raised nothing" in broken["of two writers one wins"]
    assert "a commit of [3, 4) to a table that was removed" in broken["a table that is gone is noticed"]


def test_a_driver_dies_in_the_first_commit_too() -> None:
    def make(folder: Path) -> MistakenBench:
        return MistakenBench(folder, "first")

    law: Law[SinkOnTrial] = partial(a_crash_leaves_all_or_nothing, crashes=4, within=60)
    report = check(
        "sink", SinkBench, [law], make, deadline=120, put=lambda bench, folder: SinkOnTrial(bench, folder, make)
    )
    [broken] = report.broken
    said = (
        r"the driver died in the commit of epoch 0, before `.*`: the next one raised RuntimeError: somebody has begun"
    )
    assert re.match(said, broken.example), broken.example


def test_a_commit_that_never_returns_is_named_and_the_check_ends() -> None:
    with hung():
        report = check_sink(lambda folder: MistakenBench(folder, "hang"), deadline=3.0)
    [finding] = report.broken
    said = r"after 3 seconds it was still in `MistakenTable\.commit` \(mistaken\.py:\d+, in `commit`\)"
    assert re.fullmatch(said, finding.example), finding.example
    assert report.findings[0] == finding
    assert all(later.untried for later in report.findings[1:])


def test_an_attribute_that_never_comes_is_named_as_the_sinks() -> None:
    with hung():
        report = check_sink(lambda folder: MistakenBench(folder, "hanging identity"), deadline=1.0)
    [finding] = report.broken
    assert "still in `MistakenSink.identity` (mistaken.py:" in finding.example


def test_a_commit_that_hangs_in_a_process_of_its_own_is_named_and_leaves_no_process() -> None:
    def make(folder: Path) -> MistakenBench:
        return MistakenBench(folder, "apart")

    law: Law[SinkOnTrial] = partial(a_crash_leaves_all_or_nothing, crashes=2, within=60.0)
    report = check(
        "sink", SinkBench, [law], make, deadline=120, put=lambda bench, folder: SinkOnTrial(bench, folder, make)
    )
    [broken] = report.broken
    said = (
        r"a commit in a process of its own raised nothing: after 60 seconds it was still in `MistakenTable\.commit`"
    )
    assert re.match(said, broken.example), broken.example
    assert not [child for child in psutil.Process().children() if "kit.dying" in " ".join(child.cmdline())]


class Local:
    """A bench whose sink no other process can import."""

    def __init__(self, folder: Path) -> None:
        class Own(ParquetSink):
            pass

        self.path = folder / "orders"
        self.sink = Own(str(self.path))

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = read_parquet(str(self.path)).to_pylist()
        return found


def test_a_sink_that_no_other_process_can_make_has_the_crash_not_tried() -> None:
    found = {finding.name: finding.untried for finding in check_sink(Local, crashes=2).findings}
    assert "not in a module that another process can import" in found["a crash leaves all or nothing"]


def test_what_makes_no_bench_is_refused() -> None:
    with pytest.raises(BenchNotMade, match=r"returned <object object"):
        check_sink(lambda folder: object())  # type: ignore[arg-type, return-value]
