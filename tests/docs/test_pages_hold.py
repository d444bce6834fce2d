"""What the documentation shows is what happens: every page with something to try is played from its first line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Play, agrees, blocks, commands
from tests.needed import NO_BYTEWAX
from tests.postgres import Server, new_database
from tests.s3 import Lake
from tests.warm import Warm

from tidegauge.testing import Endpoint

HOW_TO = ROOT / "docs" / "how-to"
ON_SPARK = [HOW_TO / "structured-streaming.md", HOW_TO / "transform.md"]
SOON = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial" / "first-flow.md",
    HOW_TO / "bad-records.md",
    HOW_TO / "write-an-operator.md",
]
"""What a newcomer tries first is tried by `make test`, the rest by `make long`."""
LOCAL = [
    HOW_TO / "add-a-table.md",
    HOW_TO / "back-up-and-recover.md",
    HOW_TO / "change-an-outputs-code.md",
    HOW_TO / "change-columns.md",
    HOW_TO / "choose-when-epochs-are-minted.md",
    HOW_TO / "commit-less-often.md",
    HOW_TO / "compact-history.md",
    HOW_TO / "csv-and-schemas.md",
    HOW_TO / "drop-an-output.md",
    HOW_TO / "go-on-with-a-recreated-source.md",
    HOW_TO / "ingest-growing-and-rotated-files.md",
    HOW_TO / "keep-a-table-by-key.md",
    HOW_TO / "limit-late-outputs.md",
    HOW_TO / "load-history-once.md",
    HOW_TO / "maintain-tables.md",
    HOW_TO / "partition-a-table.md",
    HOW_TO / "pause-an-output.md",
    HOW_TO / "unite-sources.md",
    HOW_TO / "poll-an-api.md",
    HOW_TO / "read-very-many-files.md",
    HOW_TO / "follow-an-output.md",
    HOW_TO / "read-back.md",
    HOW_TO / "reclock-your-own-data.md",
    HOW_TO / "repair-a-table.md",
    HOW_TO / "replace-a-table.md",
    HOW_TO / "run-as-batch-or-service.md",
    HOW_TO / "run-in-a-notebook.md",
    HOW_TO / "run-without-java-on-sail.md",
    HOW_TO / "scan-a-source.md",
    HOW_TO / "share-a-source.md",
    HOW_TO / "simulate-a-flow.md",
    HOW_TO / "test-a-flow.md",
    HOW_TO / "test-a-transform-with-properties.md",
    HOW_TO / "test-with-kafka.md",
    HOW_TO / "trace-a-row.md",
    HOW_TO / "when-something-fails.md",
    HOW_TO / "use-a-bytewax-connector.md",
    HOW_TO / "write-a-push-source.md",
    HOW_TO / "write-a-sink.md",
    HOW_TO / "write-a-source.md",
    HOW_TO / "write-to-a-function.md",
    HOW_TO / "write-to-iceberg.md",
    ROOT / "docs" / "reference" / "formats.md",
    ROOT / "docs" / "reference" / "strategies.md",
    ROOT / "docs" / "tutorial" / "add-a-table-to-a-running-flow.md",
]
ON_KAFKA = [
    HOW_TO / "move-from-a-spark-checkpoint.md",
    HOW_TO / "read-changes-from-kafka.md",
    HOW_TO / "read-from-kafka.md",
    HOW_TO / "rows-with-operations.md",
    HOW_TO / "write-to-kafka.md",
]
ON_POSTGRES = [HOW_TO / "write-to-postgresql.md"]
ON_LOGICAL = [HOW_TO / "follow-a-database.md"]
IN_STORES = [HOW_TO / "read-from-object-stores.md", HOW_TO / "write-to-object-stores.md"]
NOT_PLAYED = {
    HOW_TO / "name-tables-in-a-catalog.md",
    HOW_TO / "postgres-store.md",
    HOW_TO / "run-on-a-cluster.md",
}


@pytest.mark.parametrize(
    "page",
    [
        *SOON,
        *(pytest.param(page, marks=pytest.mark.long) for page in LOCAL),
        *(pytest.param(page, marks=[pytest.mark.spark, pytest.mark.long]) for page in ON_SPARK),
    ],
    ids=lambda page: page.stem,
)
def test_what_the_page_shows_happens(page: Path, tmp_path: Path, warm: Warm) -> None:
    if NO_BYTEWAX and "bytewax" in page.stem:
        pytest.skip(NO_BYTEWAX)
    folder = tmp_path / "shop"
    folder.mkdir()
    assert Play(page, folder, warm).play() >= 3


@pytest.mark.long
@pytest.mark.parametrize("page", ON_KAFKA, ids=lambda page: page.stem)
def test_what_the_page_shows_of_kafka_happens(
    page: Path, tmp_path: Path, warm: Warm, kafka_broker: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", kafka_broker.servers)
    folder = tmp_path / "shop"
    folder.mkdir()
    assert Play(page, folder, warm, {"KAFKA": kafka_broker.servers}).play() >= 3


@pytest.mark.long
@pytest.mark.parametrize("page", ON_POSTGRES, ids=lambda page: page.stem)
def test_what_the_page_shows_of_postgresql_happens(
    page: Path, tmp_path: Path, warm: Warm, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgres.address(new_database(postgres))
    monkeypatch.setenv("DATABASE", database)
    folder = tmp_path / "shop"
    folder.mkdir()
    assert Play(page, folder, warm, {"DATABASE": database}).play() >= 3


@pytest.mark.long
@pytest.mark.parametrize("page", ON_LOGICAL, ids=lambda page: page.stem)
def test_what_the_page_shows_of_a_database_happens(
    page: Path, tmp_path: Path, warm: Warm, logical: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = logical.address(new_database(logical))
    monkeypatch.setenv("DATABASE", database)
    folder = tmp_path / "shop"
    folder.mkdir()
    assert Play(page, folder, warm, {"DATABASE": database}).play() >= 3


@pytest.mark.long
@pytest.mark.parametrize("page", IN_STORES, ids=lambda page: page.stem)
def test_what_the_page_shows_of_object_stores_happens(
    page: Path, tmp_path: Path, warm: Warm, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", f"s3://{lake.bucket}")
    folder = tmp_path / "shop"
    folder.mkdir()
    assert Play(page, folder, warm, {**lake.server.environment(), "LAKE": f"s3://{lake.bucket}"}).play() >= 3


def test_every_tutorial_is_played() -> None:
    pages = set((ROOT / "docs" / "tutorial").glob("*.md"))
    assert pages == {page for page in [*SOON, *LOCAL] if page.parent.name == "tutorial"}


def test_every_page_of_the_how_to_guides_is_played() -> None:
    played = {
        page
        for page in [*SOON, *ON_SPARK, *LOCAL, *ON_KAFKA, *ON_POSTGRES, *ON_LOGICAL, *IN_STORES]
        if page.parent == HOW_TO
    }
    assert set(HOW_TO.glob("*.md")) == played | NOT_PLAYED


def test_a_command_is_split_from_what_it_prints() -> None:
    assert list(commands("$ one\nsaid\n$ two \\\n    more\n")) == [("one", "said\n"), ("two more", "")]


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("a  b\n...\nz", "a b\nanything\nz\n", True),
        ("minted 2026-11-20 17:00:01", "minted 2027-01-02 03:04:05", True),
        ("3 rows", "4 rows", False),
        ("...\nlast", "last", True),
        ("first", "first and more", False),
    ],
)
def test_what_differs_from_run_to_run_does_not_count(expected: str, got: str, same: bool) -> None:
    assert agrees(expected, got) is same


def test_the_flow_of_the_readme_is_the_example() -> None:
    shown = next(block for block in blocks(ROOT / "README.md") if block.text.startswith("# shop.py\n"))
    example = (ROOT / "examples" / "shop.py").read_text()
    assert example.endswith(shown.text.removeprefix("# shop.py\n"))
