"""A shop whose orders come from Kafka: all of them into one table, the large ones into another, on one timeline.

Run it where there is a topic `orders`:

    KAFKA=localhost:9092 tidegauge run shop.py
"""

import os

import tidegauge as tg

flow = tg.Dataflow("shop", store="sqlite:///shop.db")

orders = flow.source(
    "orders",
    tg.KafkaSource(
        os.environ.get("KAFKA", "localhost:9092"),
        topic="orders",
        format=tg.Json("id long, user string, amount double"),
        metadata=True,
    ),
)

flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
flow.sink(
    "large_orders",
    orders.filter("amount > 100").select("id", "user", "amount * 1.2 AS gross", "_partition", "_offset"),
    tg.DeltaSink("lake/large_orders"),
)
