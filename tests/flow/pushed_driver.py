"""A driver of a flow that reads a socket, in a process of its own, to be killed at any instant."""

from __future__ import annotations

import sys
from pathlib import Path

import tidegauge as tg

STREAMS = {"orders": "n long, name string", "users": "n long"}


def make(root: Path, port: int) -> tg.Dataflow:
    """Two streams of one source, three outputs."""
    flow = tg.Dataflow("pushed", store=f"sqlite:///{root}/flow.db", tick=0.05)
    feed = flow.source("feed", tg.SocketSource("127.0.0.1", port, columns=STREAMS, metadata=True))
    flow.sink("orders", feed.stream("orders"), tg.DeltaSink(str(root / "orders")))
    flow.sink("few", feed.stream("orders").filter("n < 500"), tg.ParquetSink(str(root / "few")))
    flow.sink("users", feed.stream("users"), tg.ParquetSink(str(root / "users")))
    return flow


if __name__ == "__main__":
    flow, engine = make(Path(sys.argv[1]), int(sys.argv[2])), tg.LocalEngine(threads=2)
    if sys.argv[3] == "caught-up":
        flow.run(until="caught-up", engine=engine)
    else:
        flow.run(engine=engine)
