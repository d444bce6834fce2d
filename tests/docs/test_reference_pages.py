"""The reference is complete and right: names, columns, keys and states are there; queries give what the API gives."""

from __future__ import annotations

import inspect
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT, blocks
from typer.testing import CliRunner

import tidegauge as tg
from tidegauge.cli.app import app
from tidegauge.dsl.started import FlowRun
from tidegauge.env import EFFECTS
from tidegauge.errors import CODES
from tidegauge.flow.board import OutputCondition, SourceCondition
from tidegauge.flow.runner import Outcome
from tidegauge.remap.store.opening import VIEWS
from tidegauge.remap.store.schema import metadata

REFERENCE = ROOT / "docs" / "reference"
STORE = REFERENCE / "store.md"


@pytest.fixture
def flow(tmp_path: Path) -> tg.Dataflow:
    """Two sources, three epochs, the third with a bad record that fails its source."""
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    files = tg.FileSource(f"{tmp_path}/*.jsonl", format=tg.Json("id long"), metadata=True)
    rows = tg.GeneratorSource(8, columns="id long", shards=2, max_records_per_epoch=3)
    flow.sink("orders", flow.source("orders", files), tg.ParquetSink(f"{tmp_path}/lake/orders"))
    flow.sink("visits", flow.source("visits", rows), tg.ParquetSink(f"{tmp_path}/lake/visits"))
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    engine = tg.LocalEngine(threads=0)
    flow.run(until="caught-up", engine=engine)
    (tmp_path / "a.jsonl").rename(tmp_path / "z.jsonl")
    with (tmp_path / "z.jsonl").open("a") as file:
        file.write('{"id": 3}\n')
    flow.run(until="caught-up", engine=engine)
    with (tmp_path / "z.jsonl").open("a") as file:
        file.write("no JSON\n")
    with pytest.raises(tg.TidegaugeError, match="TG-0502"):
        flow.run(until="caught-up", engine=engine)
    return flow


def query(question: str, flow: tg.Dataflow, **parameters: Any) -> list[dict[str, Any]]:
    """Run the query that the page has for a question."""
    text = STORE.read_text()
    line = text[: text.index(f"### {question}\n")].count("\n")
    sql = next(block.text for block in blocks(STORE) if block.line > line)
    connection = sqlite3.connect(flow.store.removeprefix("sqlite:///"))
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(sql, {"flow": flow.name, **parameters})]
    finally:
        connection.close()


def test_a_row_is_traced_to_its_file_and_epoch_and_every_epoch_to_its_ranges(flow: tg.Dataflow) -> None:
    rows = tg.read_arrow(flow, "orders").to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3]
    for row in rows:
        place = tg.locate(flow, "orders", row["_partition"], row["_offset"])
        here = {"source": "orders", "partition": row["_partition"]}
        [found] = query("Which epoch holds a position?", flow, position=row["_offset"], **here)
        assert found["epoch"] == row["_epoch"] == place.epoch
        [origin] = query("Where does a row come from?", flow, **here)
        assert origin["path"] == place.path
        assert (Path(origin["path"]).name, Path(origin["first_path"]).name) == ("z.jsonl", "a.jsonl")

    for record, _sizes in tg.epochs(flow):
        ranges = query("What is in an epoch?", flow, epoch=record.epoch)
        explained = [(s.source, s.partition, s.lower, s.upper) for s in tg.explain(flow, record.epoch).slices]
        assert [(r["source"], r["partition"], r["lower"], r["upper"]) for r in ranges] == sorted(explained)
        now = query("Where did a source stand at an epoch?", flow, source="visits", epoch=record.epoch)
        moved = [r for r in ranges if r["source"] == "visits"]
        assert {(r["partition"], r["upper"]) for r in moved} <= {(n["partition"], n["position"]) for n in now}


def test_times_states_and_leases_are_found(flow: tg.Dataflow) -> None:
    records = [record for record, _ in tg.epochs(flow)]
    at = records[0].minted_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert query("Which epoch was it at a time?", flow, time=at) == [{"epoch": 0}]
    assert query("Which epoch was it at a time?", flow, time="2001-01-01T00:00:00.000000Z") == []
    waiting = query("Which epochs are bound and not published?", flow)
    assert [row["epoch"] for row in waiting] == [r.epoch for r in records if r.published_at is None]
    [failed] = query("Which sources have failed, and why?", flow)
    assert (failed["name"], failed["code"]) == ("orders", "TG-0502")
    assert query("Who runs a flow now?", flow) == []


def test_progress_gaps_and_holds_are_found(flow: tg.Dataflow) -> None:
    found = query("How far is each partition?", flow)
    bound = {(s.name, s.bound) for s in tg.status(flow).sources}
    assert {(name, sum(r["position"] for r in found if r["source"] == name)) for name, _ in bound} == bound
    assert {row["source"] for row in found if row["sealed"]} == {"visits"}
    assert all(row["published_position"] <= row["position"] for row in found)
    assert query("What was lost?", flow) == []
    tg.hold(flow, "report", 1)
    assert [(row["owner"], row["epoch"]) for row in query("Who holds which epoch?", flow)] == [("report", 1)]


def test_a_failed_output_is_found(tmp_path: Path) -> None:
    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.slice(0, 1 // (batch.num_rows - 2))

    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    rows = flow.source("visits", tg.GeneratorSource(5, columns="id long", max_records_per_epoch=3))
    flow.sink("visits", rows.map_batches(refuse), tg.ParquetSink(f"{tmp_path}/lake"))
    with pytest.raises(tg.TidegaugeError, match="TG-0110"):
        flow.run(until="caught-up", engine=tg.LocalEngine(threads=0))
    [failed] = query("Which outputs have failed, and why?", flow)
    assert (failed["name"], failed["epoch"], failed["code"]) == ("visits", 1, "TG-0110")


def test_every_query_of_the_store_page_is_tested() -> None:
    questions = re.findall(r"^### (.*\?)$", STORE.read_text(), re.MULTILINE)
    tests = Path(__file__).read_text()
    assert len(questions) == len([block for block in blocks(STORE) if block.kind == "sql"]) == 12
    assert all(f'"{question}"' in tests for question in questions)


def test_every_table_and_column_of_the_store_is_described() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", STORE.read_text(), re.MULTILINE | re.DOTALL))
    assert set(metadata.tables) <= set(sections)
    for table in metadata.sorted_tables:
        missing = [c.name for c in table.columns if f"`{c.name}`" not in sections[table.name]]
        assert not missing, f"{table.name}: {missing}"


def test_every_view_and_column_of_the_store_is_described(flow: tg.Dataflow) -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", STORE.read_text(), re.MULTILINE | re.DOTALL))
    with closing(sqlite3.connect(flow.store.removeprefix("sqlite:///"))) as connection:
        for view in VIEWS:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({view})")]
            assert columns
            assert [name for name in columns if f"`{name}`" not in sections[view]] == []


def test_every_public_name_is_in_the_python_reference() -> None:
    pages = "".join((REFERENCE / f"{name}.md").read_text() for name in ("python", "sources", "formats", "sinks"))
    assert [name for name in dir(tg) if f"tg.{name}" not in pages] == []


@pytest.mark.parametrize(
    ("section", "what"),
    [("Dataflow", tg.Dataflow), ("Dataflow", FlowRun), ("Dataflow", Outcome), ("RowStream", tg.RowStream)],
)
def test_every_public_member_is_in_the_python_reference(section: str, what: type) -> None:
    parts = re.split(r"^## ", (REFERENCE / "python.md").read_text(), flags=re.MULTILINE)
    [text] = [part for part in parts if part.startswith(f"{section}\n")]
    shown = set(re.findall(r"`(?:\w+\.)?(\w+)(?:\([^`]*)?`", text))
    assert {name for name in dir(what) if not name.startswith("_")} - shown == set()


@pytest.mark.parametrize(
    ("page", "what"),
    [
        ("sources", tg.FileSource),
        ("sources", tg.GeneratorSource),
        ("sources", tg.BatchSource),
        ("formats", tg.Json),
        ("formats", tg.Csv),
        ("formats", tg.Parquet),
        ("sinks", tg.DeltaSink),
        ("sinks", tg.ParquetSink),
        ("python", tg.Dataflow),
        ("python", tg.SparkEngine),
        ("python", tg.LocalEngine),
        ("python", tg.write_batches),
        ("python", tg.read),
        ("python", tg.read_arrow),
        ("python", tg.status),
        ("python", tg.epochs),
        ("python", tg.explain),
        ("python", tg.locate),
        ("python", tg.origin),
    ],
)
def test_signatures_have_the_parameters_that_the_code_has(page: str, what: Any) -> None:
    text = (REFERENCE / f"{page}.md").read_text()
    shown = re.search(rf"`tg\.{what.__name__}\(([^`]*)\)(?: -> [\w.]+)?`", text)
    assert shown is not None
    names = re.findall(r"(?:^|, )\s*(\w+)", shown[1].replace("\n", " "))
    assert names == [name for name in inspect.signature(what).parameters if name != "self"]


def keys(value: Any) -> set[str]:
    """Return every key of JSON data, except those of maps whose keys are names."""
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    if isinstance(value, dict):
        named = {"bound", "rows", "row", "detail", "evidence"}
        return set(value) | {k for key, v in value.items() if key not in named for k in keys(v)}
    return set()


def test_every_json_key_and_option_of_the_command_line_is_described(flow: tg.Dataflow, tmp_path: Path) -> None:
    page = (REFERENCE / "cli.md").read_text()
    (tmp_path / "flow.py").write_text(
        f"""
import tidegauge as tg

flow = tg.Dataflow("shop", store={flow.store!r})
files = tg.FileSource("{tmp_path}/*.jsonl", format=tg.Json("id long"), metadata=True)
flow.sink("orders", flow.source("orders", files), tg.ParquetSink("{tmp_path}/lake/orders"))
"""
    )
    target = str(tmp_path / "flow.py")
    traced = (["locate", target, "orders", str(tmp_path / "z.jsonl"), "0"], ["trace", target, "orders", "id=1"])
    for command in (["status", target], ["epochs", target], ["explain", target, "0"], *traced):
        done = CliRunner().invoke(app, [*command, "--json"])
        assert done.exit_code == 0, done.output
        shown = set(re.findall(r"[`.\"](\w+)[`\"]", page))
        assert keys(json.loads(done.stdout)) - shown == set()
    for name in ("run", "status", "epochs", "explain", "locate", "trace", "resume"):
        options = re.findall(r"--[a-z]+", CliRunner().invoke(app, [name, "--help"], env={"NO_COLOR": "1"}).stdout)
        assert {option for option in options if option != "--help" and option not in page} == set()


def test_the_states_are_those_of_the_code() -> None:
    text = (REFERENCE / "states.md").read_text()
    sources, outputs = text.split("## Sources")[1].split("## Outputs")
    for section, states in (
        (sources, get_args(SourceCondition)),
        (outputs.split("## Epochs")[0], get_args(OutputCondition)),
    ):
        assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(states)


def test_every_durable_effect_is_in_the_account_of_crashes() -> None:
    page = (ROOT / "docs" / "explanation" / "crash-safety.md").read_text()
    shown = re.findall(r"^\| \d+ \| `([a-z ]+)` \|", page, re.MULTILINE)
    assert shown == list(EFFECTS)


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_codes_are_known(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}, link
    assert set(re.findall(r"TG-\d{4}", text)) <= set(CODES)


def test_the_guarantees_of_late_outputs_name_tests_and_cases_that_there_are() -> None:
    page = (REFERENCE / "late-outputs.md").read_text()
    named = re.findall(r"\[`(\w+)`\]\(([^)]+)\)", page)
    assert len(named) > 20
    for test, link in named:
        assert f"def {test}(" in (REFERENCE / link).read_text(), test
    cases = set(re.findall(r"`(p[a-g]|[kprsx]\d+)`", page))
    known = (REFERENCE / "cases.md").read_text()
    assert len(cases) > 5
    assert all(f"- **{case}** " in known for case in cases), cases


def test_every_page_is_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    linked = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in re.findall(r"\]\(([^)\s]+)\)", index)}
    assert {page for page in (ROOT / "docs").rglob("*.md") if page.name != "index.md"} <= linked


def test_the_tour_of_the_code_has_a_row_for_every_room() -> None:
    tour = (ROOT / "docs" / "explanation" / "how-a-flow-runs.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "src" / "tidegauge").glob("*/__init__.py")}
    rows = set(re.findall(r"^\| \[`(\w+)/`\]", tour, re.MULTILINE))
    assert rows <= rooms
    assert {room for room in rooms - rows if f"`{room}`" not in tour} == set()
