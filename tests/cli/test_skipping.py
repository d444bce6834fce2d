"""`tidegauge skip`: a person goes on past a poison record or a lost range, and nothing else is passed over."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sources.kafka.writing import write
from typer.testing import CliRunner

import tidegauge as tg
from tidegauge.cli.app import app
from tidegauge.cli.load import load_flow
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.sources import FileGone
from tidegauge.testing import Endpoint

FLOW = """
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent


flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/flow.db", tick=0.01)
orders = flow.source("orders", tg.FileSource(f"{HERE}/in/*", format=tg.Json("n long"), settle=0.0))
flow.sink("all", orders, tg.ParquetSink(str(HERE / "all")))
rows = flow.source("rows", tg.GeneratorSource(50, columns="n long", max_records_per_epoch=10))
flow.sink("rows", rows, tg.ParquetSink(str(HERE / "rows")))
if (HERE / "late").exists():
    flow.sink("late", orders, tg.ParquetSink(str(HERE / "late-table")))
    flow.sink("late_rows", rows, tg.ParquetSink(str(HERE / "late-rows")))
"""

LINE = '{"n": 1}\n'
Command = Callable[..., Any]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "in").mkdir()
    return tmp_path


@pytest.fixture
def command(shop: Path) -> Command:
    return lambda name, *words: CliRunner().invoke(app, [name, str(shop / "flow.py"), *map(str, words)])


def run(root: Path, *, fails: type[Exception] | None = None) -> tg.Dataflow:
    flow = load_flow(str(root / "flow.py"))
    if fails is None:
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    else:
        with pytest.raises(fails):
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    return flow


def numbers(root: Path, output: str) -> list[int]:
    return sorted(tg.read_arrow(load_flow(str(root / "flow.py")), output).column("n").to_pylist())


def refusal(done: Any) -> tuple[int, str]:
    return done.exit_code, done.stderr.partition(":")[0]


def test_past_a_poison_record_and_everything_else_is_read(shop: Path, command: Command) -> None:
    path = shop / "in" / "a.jsonl"
    path.write_text(LINE)
    run(shop)
    path.write_text(LINE + '{"n": 2}\n{poison}\n{"n": 4}\n')
    run(shop, fails=RecordUnparsable)
    begin, end = 2 * len(LINE), 2 * len(LINE) + len("{poison}\n")
    assert refusal(command("skip", "orders", path, begin, end - 1)) == (1, "TG-0642")
    assert f"from {begin} to {end}" in command("skip", "orders", path, begin, end - 1).stderr
    assert refusal(command("skip", "orders", path, begin + 1, end)) == (1, "TG-0642")
    done = command("skip", "orders", path, begin, end)
    assert done.exit_code == 0
    assert "9 bytes of" in done.stdout
    assert "it goes on with the next run" in done.stdout
    again = json.loads(command("skip", "orders", path, begin, end, "--json").stdout)
    assert (again["lifted"], again["gaps"]) == (False, [])
    run(shop)
    assert numbers(shop, "all") == [1, 2, 4]
    (shop / "late").touch()  # an output that is added afterwards has the same: the content of an epoch is what it is
    run(shop)
    assert numbers(shop, "late") == [1, 2, 4]
    [source, _] = json.loads(command("status", "--json").stdout)["sources"]
    assert (source["state"], source["lost"], source["lag"]) == ("idle", end - begin, 0)
    epoch = next(n for n in range(20) if json.loads(command("explain", n, "--json").stdout)["gaps"])
    [gap] = json.loads(command("explain", epoch, "--json").stdout)["gaps"]
    assert (gap["source"], gap["lower"], gap["upper"], gap["code"]) == ("orders", begin, end, "TG-0640")
    assert "passed over by hand" in command("explain", epoch).stdout


def test_past_a_file_that_is_gone_with_all_of_an_epoch(shop: Path, command: Command) -> None:
    path = shop / "in" / "a.jsonl"
    path.write_text(LINE + '{"n"')
    run(shop)
    path.unlink()
    run(shop, fails=FileGone)
    assert command("skip", "orders", path, len(LINE), len(LINE) + 4).exit_code == 0
    (shop / "in" / "b.jsonl").write_text('{"n": 5}\n')
    run(shop)
    assert numbers(shop, "all") == [1, 5]


def test_past_rows_of_a_generator_that_an_output_holds_already(shop: Path, command: Command) -> None:
    run(shop)
    before = numbers(shop, "rows")
    done = json.loads(command("skip", "rows", "shard-0", 5, 25, "--json").stdout)
    assert [(gap["epoch"], gap["lower"], gap["upper"]) for gap in done["gaps"]] == [
        (0, 5, 10),
        (1, 10, 20),
        (2, 20, 25),
    ]
    done = json.loads(command("skip", "rows", "shard-0", 0, 10, "--json").stdout)
    assert [(gap["lower"], gap["upper"]) for gap in done["gaps"]] == [(0, 5)]
    (shop / "late").touch()
    run(shop)
    assert numbers(shop, "rows") == before
    assert len(numbers(shop, "late_rows")) == 25
    assert set(numbers(shop, "late_rows")) < set(before)


def test_what_cannot_be_passed_over_is_refused_and_nothing_is_written(shop: Path, command: Command) -> None:
    assert refusal(command("skip", "rows", "shard-0", 0, 10)) == (1, "TG-0605")
    run(shop)
    assert refusal(command("skip", "rows", "shard-0", 40, 51)) == (1, "TG-0641")
    assert refusal(command("skip", "rows", "shard-7", 0, 1)) == (1, "TG-0611")
    assert refusal(command("skip", "nobody", "shard-0", 0, 1)) == (1, "TG-0104")
    assert command("skip", "rows", "shard-0", 3, 3).exit_code == 2
    assert command("skip", "rows", "shard-0", -1, 3).exit_code == 2
    assert command("compact", "3").exit_code == 0
    assert refusal(command("skip", "rows", "shard-0", 0, 5)) == (1, "TG-0641")
    assert json.loads(command("status", "--json").stdout)["sources"][1]["lost"] == 0


def test_a_compressed_file_is_passed_over_as_a_whole(shop: Path, command: Command) -> None:
    path = shop / "in" / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"{poison}\n"))
    run(shop, fails=RecordUnparsable)
    assert refusal(command("skip", "orders", path, 0, 3)) == (1, "TG-0642")
    assert command("skip", "orders", path, 0, path.stat().st_size).exit_code == 0
    run(shop)


def test_past_a_message_that_nobody_can_decode(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    write(kafka_broker, topic, [b'{"n": 1}', b"poison", b'{"n": 3}'])
    flow = tg.Dataflow("messages", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    orders = flow.source("orders", tg.KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json("n long")))
    flow.sink("all", orders, tg.ParquetSink(f"{tmp_path}/all"))
    with pytest.raises(RecordUnparsable):
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    done = tg.skip(flow, "orders", f"{topic}-0", 1, 2)
    assert done.lifted
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    assert sorted(tg.read_arrow(flow, "all").column("n").to_pylist()) == [1, 3]
