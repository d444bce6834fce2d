"""A flow with unions: of topics, and of a topic and files."""

from __future__ import annotations

import tidegauge as tg

__all__ = ["make_flow"]


def make_flow() -> tg.Dataflow:
    flow = tg.Dataflow("united", store="sqlite:///united.db", tick=1.0)
    web_log = tg.KafkaSource("nowhere:9092", topic="web", format=tg.Json("id long, agent string"))
    web = flow.source("web", web_log)
    tills_log = tg.KafkaSource("nowhere:9092", topic="tills", format=tg.Json("id long, till int"), metadata=True)
    tills = flow.source("tills", tills_log)
    lines = flow.source("lines", tg.FileSource("/landing/*.jsonl", format=tg.Json("id long")))
    orders = flow.source("orders", tg.union(web, tills))
    everything = flow.source("everything", tg.union(web, lines))
    flow.sink("web", web.filter("id > 0"), tg.ParquetSink("lake/web"))
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
    flow.sink("of_tills", orders.filter("_source = 'tills'"), tg.ParquetSink("lake/of_tills"))
    flow.sink("everything", everything.dedupe("id"), tg.DeltaSink("lake/everything"))
    return flow
