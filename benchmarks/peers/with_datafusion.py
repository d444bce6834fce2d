"""DataFusion, in an environment of its own: `python -m benchmarks.peers.with_datafusion FILE` answers line by line.

    time QUERY           runs a query over the table `orders`, the Arrow file's, and says how many seconds that took
    keep PATH QUERY      writes a query's rows into a file

The table is in memory, in one partition; so is the answer.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any


def main(path: str) -> None:
    """Answer until there are no more questions."""
    datafusion, feather, pa = (import_module(name) for name in ("datafusion", "pyarrow.feather", "pyarrow"))
    context: Any = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    context.register_record_batches("orders", [feather.read_table(path, memory_map=False).to_batches()])
    for line in sys.stdin:
        what, _, rest = line.strip().partition(" ")
        place, _, query = rest.partition(" ") if what == "keep" else ("", "", rest)
        begun = time.perf_counter()
        batches = context.sql(query).collect()
        taken = time.perf_counter() - begun
        if place:
            feather.write_feather(pa.Table.from_batches(batches), place, compression="uncompressed")
        print(json.dumps({"seconds": taken}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
