"""What is wrong with a broker, a topic or a message: `run` names it, with what it is about, and goes on elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from tests.cli.conftest import Shop, Under
from tests.kafka import unique
from tests.sources.formats.registry import Served, serving
from tests.sources.kafka.writing import numbers, write

import tidegauge as tg
from tidegauge.testing import Endpoint

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}'

TROUBLES = """
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent
flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/shop.db", tick=0.05)
N = tg.Json("n long")


def source(name, servers, topic, format=N, **settings):
    stream = flow.source(name, tg.KafkaSource(servers, topic=topic, format=format, settings=settings))
    flow.sink(name, stream, tg.ParquetSink(str(HERE / "lake" / name)))


def login(user):
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": user}


source("good", SERVERS, GOOD)
source("address", "127.0.0.1:1", GOOD)
source("password", SASL, GOOD, **login("alice"), **{"sasl.password": "env:WRONG_PASSWORD"})
source("permission", SASL, GOOD, **login("mallory"), **{"sasl.password": "env:HER_PASSWORD"})
source("topic", SERVERS, MISSING)
source("pattern", SERVERS, tg.Topics(pattern=f"{MISSING}[.].*"))
source("poisoned", SERVERS, POISONED)
source("schema", SERVERS, FOREIGN, tg.Avro(ORDER, registry=REGISTRY))
"""

SAID = {
    "address": ("stalled", "no Kafka broker answers at 127.0.0.1:1: 127.0.0.1:1/bootstrap: Connect to "),
    "password": ("stalled", "the Kafka broker at {sasl} does not let us in: "),
    "permission": ("stalled", "the Kafka broker at {sasl} does not allow us to describe {good}: "),
    "topic": ("stalled", "the Kafka broker at {servers} has no topic '{missing}'"),
    "pattern": ("stalled", "at {servers} has a name that matches '{missing}[.].*'"),
    "poisoned": ("failed", "the record at position 1 of {poisoned}-0 (source 'poisoned') cannot be decoded: "),
    "schema": ("failed", "{registry} has no schema 77"),
}


@pytest.fixture
def registry() -> Iterator[Served]:
    with serving() as served:
        yield served


def test_each_is_named_in_time_and_what_is_put_right_goes_on_by_itself(
    shop: Shop,
    kafka_broker: Endpoint,
    topic: str,
    make_topic: Callable[..., str],
    registry: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, poisoned, foreign, missing = kafka_broker, make_topic(), make_topic(), unique("missing")
    names = {"GOOD": topic, "POISONED": poisoned, "FOREIGN": foreign, "MISSING": missing}
    names |= {"SERVERS": at.servers, "SASL": at.sasl_servers, "REGISTRY": registry.url, "ORDER": ORDER}
    text = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + TROUBLES
    (shop.root / "shop.py").write_text(text, encoding="utf-8")
    write(at, topic, numbers([1]))
    write(at, poisoned, [*numbers([1]), b"no json"])
    write(at, foreign, [b"\0\0\0\0\x4d\2"])  # of schema 77
    monkeypatch.setenv("WRONG_PASSWORD", "a wrong guess")
    monkeypatch.setenv("HER_PASSWORD", at.sasl("mallory")["sasl.password"])
    run = shop.start("run", "shop.py", "--engine", "local")
    run.says("source good: ")
    begun = time.monotonic()
    words = {name.lower(): value for name, value in names.items()}
    for name, (state, why) in SAID.items():
        run.until(lambda name=name, state=state: lines(run, name, state), f"{name} {state}")  # type: ignore[misc]
        assert why.format(**words) in lines(run, name, state)[0]
        if name == "pattern":
            for made in (missing, f"{missing}.eu"):
                write(at, at.create_topic(made), numbers([2, 3]))
    assert time.monotonic() - begun < 30
    run.says("topic 2 rows, pattern 2 rows,")
    assert len(lines(run, "password", "stalled")) == 1, "what is tried again in vain is no news"
    assert "guess" not in run.err()


def lines(run: Under, source: str, state: str) -> list[str]:
    """What the run says of a source being in a state."""
    return [line for line in run.err().splitlines() if f"source {source}: {state} (" in line]


LARGE = """
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent
flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/shop.db", tick=0.05)
large = flow.source("large", tg.KafkaSource(SERVERS, topic=LARGE, format=tg.Raw(), settings=LIMITS))
flow.sink("large", large, tg.ParquetSink(str(HERE / "large")))
"""


def test_a_message_larger_than_what_may_be_fetched_is_named_and_nothing_is_passed_over(
    shop: Shop, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"max.message.bytes": "4000000"})
    write(kafka_broker, topic, [b"small", b"x" * 2_000_000, b"last"], limit=4_000_000)
    limits = {"receive.message.max.bytes": 1_000_512, "fetch.max.bytes": 1_000_000, "message.max.bytes": 1_000_000}

    def flow(limits: dict[str, int]) -> None:
        names = f"SERVERS, LARGE, LIMITS = {kafka_broker.servers!r}, {topic!r}, {limits!r}\n"
        (shop.root / "shop.py").write_text(names + LARGE, encoding="utf-8")

    flow(limits)
    run = shop.start("run", "shop.py", "--engine", "local")
    run.says(f"a message of {topic}-0 at or after offset 1 is larger than a client may fetch at once: ")
    run.interrupt()
    assert run.ended() in (0, 1)
    flow({})
    shop.catch_up()
    found = tg.read_arrow(shop.flow, "large").column("value").to_pylist()
    assert [len(value) for value in found] == [5, 2_000_000, 4]
