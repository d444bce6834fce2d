"""A shop: orders from files that grow, visits out of a generator, four tables on one timeline."""

import tidegauge as tg

flow = tg.Dataflow("shop", store="sqlite:///shop.db")

orders = flow.source("orders", tg.FileSource("orders/*.jsonl", format=tg.Json("id long, user string, amount double")))
visits = flow.source("visits", tg.GeneratorSource(1000, columns="user long, at timestamp"))

flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
flow.sink(
    "large_orders",
    orders.filter("amount > 100").select("id", "user", "amount * 1.2 AS gross"),
    tg.ParquetSink("lake/large_orders"),
)
flow.sink("newest", orders, tg.DeltaSink("lake/newest", envelope="upsert", key="user", order="id"))
flow.sink("visits", visits, tg.ParquetSink("lake/visits"))
