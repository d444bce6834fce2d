"""From Kafka to tables, on a real broker: produce, run until caught up, and look at the lag in Kafka's own tool.

The broker is started for the demo and gone after it. Between two runs of the flow more orders come in, so that the
tool has a lag to show; after the second run this script counts for itself.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from confluent_kafka import Producer

import tidegauge as tg
from tidegauge.cli.load import load_flow
from tidegauge.testing import KafkaBroker

HERE = Path(__file__).resolve().parent
WORK = Path("demo-data/kafka").resolve()
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
USERS = ("ada", "blaise", "carl", "emmy", "grace", "sofia")
PARTITIONS = 4


def say(text: str) -> None:
    """Print a headline."""
    print(f"\n== {text}", flush=True)


def orders(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Return made-up orders, the same for the same numbers."""
    for number in range(first, first + count):
        draw = random.Random(number)
        yield {"id": number, "user": draw.choice(USERS), "amount": round(draw.lognormvariate(4, 1), 2)}


def produce(broker: KafkaBroker, made: list[dict[str, Any]]) -> None:
    """Write orders into the topic, spread over its partitions by their numbers."""
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0, "linger.ms": 20})
    for order in made:
        producer.produce(
            "orders",
            json.dumps(order).encode(),
            key=str(order["id"]),
            on_delivery=lambda error, _message: refused.append(error) if error else None,
        )
        producer.poll(0)
    if producer.flush(30) or refused:
        sys.exit(f"not all orders were taken: {refused[:1]}")
    print(f"  {len(made)} orders")


def run() -> None:
    """Run the flow as a batch job."""
    command = [sys.executable, "-m", "tidegauge", "run", str(HERE / "shop.py"), "--until", "caught-up"]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("the run failed")


def lag(broker: KafkaBroker) -> int:
    """Print what Kafka's tool says about the flow's group; return the lag of all partitions together."""
    say("kafka-consumer-groups --describe --group tidegauge.shop.orders")
    told = broker.run_tool(
        GROUPS, "--bootstrap-server", broker.servers, "--describe", "--group", "tidegauge.shop.orders"
    )
    print("\n".join(f"  {line}".rstrip() for line in told.splitlines() if line.strip()))
    rows = [line.split() for line in told.splitlines()]
    lags = [int(row[5]) for row in rows if row[1:2] == ["orders"]]
    check("partitions that the tool knows", len(lags), PARTITIONS)
    return sum(lags)


def check(what: str, found: Any, wanted: Any) -> None:
    """Print one line of the account; stop at the first that does not hold."""
    good = found == wanted
    print(f"  {'ok ' if good else 'NOT'}  {what}: {found}" + ("" if good else f", and it should be {wanted}"))
    if not good:
        sys.exit(1)


def account(made: list[dict[str, Any]]) -> None:
    """Count for ourselves: what was produced against what the tables have."""
    say("The account: what was produced against the tables")
    flow = load_flow(HERE / "shop.py")
    table, large = tg.read_arrow(flow, "orders"), tg.read_arrow(flow, "large_orders")
    check("orders", table.num_rows, len(made))
    check("different orders", len(pc.unique(table.column("id"))), len(made))
    check(
        "sum of cents",
        round(pc.sum(table.column("amount")).as_py() * 100),
        sum(round(order["amount"] * 100) for order in made),
    )
    check("large orders", large.num_rows, sum(order["amount"] > 100 for order in made))
    check("epochs that the two tables have in common", tg.status(flow).published, pc.max(table["_epoch"]).as_py() + 1)


def main() -> None:
    """Run the demo."""
    began = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    os.chdir(WORK)
    say("A broker starts, with a topic of four partitions")
    with KafkaBroker() as broker:
        os.environ["KAFKA"] = broker.servers
        broker.create_topic("orders", partitions=PARTITIONS)
        print(f"  it answers at {broker.servers}")

        say("Orders come in")
        made = list(orders(0, 50_000))
        produce(broker, made)

        say("The flow runs as a batch job: tidegauge run shop.py --until caught-up")
        run()
        check("lag", lag(broker), 0)

        say("More orders come in while nobody reads")
        more = list(orders(len(made), 1000))
        produce(broker, more)
        check("lag", lag(broker), len(more))

        say("It runs again, and reads what is new")
        run()
        check("lag", lag(broker), 0)

        say("The timeline: tidegauge epochs shop.py")
        subprocess.run([sys.executable, "-m", "tidegauge", "epochs", str(HERE / "shop.py")], check=True)
        account(made + more)
    took = time.monotonic() - began
    print(f"\nAll of it holds. {took:.0f} seconds; tables and store are in demo-data/kafka/, the broker is gone.")


if __name__ == "__main__":
    main()
