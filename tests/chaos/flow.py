"""The flow of a chaos: a topic and a folder of growing files, and four tables of three kinds.

One of them gathers epochs for its commits, and one has the last row of each key, with deletion vectors. Every other
driver maintains the tables beside it.

Its drivers are `tidegauge run` on a file that says `drive`. A lease lasts six seconds in them rather than thirty, and
all that stands to it in a proportion is that much shorter: so drivers that sleep past their lease fit into a minute.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

import tidegauge as tg
import tidegauge.flow.away as away_module
import tidegauge.flow.runner as runner_module
import tidegauge.remap.store.lease as lease_module

__all__ = ["KEYS", "LEASE", "TOPIC_COLUMNS", "Place", "drive", "keyed"]

LEASE = 6.0
"""Seconds after which a lease that is not renewed may be taken."""
SHORTER = LEASE / lease_module.EXPIRY

TOPIC_COLUMNS = "n long, who string, amount double"
FILE_COLUMNS = "n long, page string"

KEYS = 40
"""How many keys the table by key has; every fifth row of a key takes it away."""


def keyed(orders: pa.RecordBatch) -> pa.RecordBatch:
    """Give orders the key of the table by key, and say which take theirs away."""
    numbers = orders["n"].to_pylist()
    keys = pa.array([n % KEYS for n in numbers], pa.int64())
    gone = pa.array([n // KEYS % 5 == 4 for n in numbers], pa.bool_())
    return pa.RecordBatch.from_arrays([keys, *orders.columns, gone], names=["k", *orders.schema.names, "gone"])


@dataclass(frozen=True)
class Place:
    """Where everything of a chaos is. store: the address of the store."""

    root: str
    store: str
    servers: str
    topic: str

    @property
    def folder(self) -> Path:
        """The folder of the growing files."""
        return Path(self.root, "in")

    def table(self, output: str) -> str:
        """Return the folder of an output's table."""
        return f"{self.root}/lake/{output}"

    def flow(self) -> tg.Dataflow:
        """Describe the flow. An epoch takes few records, so that a backlog is many epochs."""
        flow = tg.Dataflow("chaos", store=self.store, tick=0.05)
        orders = flow.source(
            "orders",
            tg.KafkaSource(
                self.servers,
                topic=self.topic,
                format=tg.Json(TOPIC_COLUMNS),
                max_records_per_epoch=60,
                split_records=25,
            ),
        )
        visits = flow.source(
            "visits",
            tg.FileSource(
                f"{self.folder}/*.jsonl", format=tg.Json(FILE_COLUMNS), metadata=True, max_bytes_per_epoch=2000
            ),
        )
        flow.sink("orders", orders, tg.DeltaSink(self.table("orders")))
        flow.sink("large", orders.filter("amount > 40").select("n", "who"), tg.ParquetSink(self.table("large")))
        last = tg.DeltaSink(
            self.table("last"), envelope="upsert", key="k", order="n", deleted="gone", deletion_vectors=True
        )
        flow.sink("last", orders.map_batches(keyed), last)
        flow.sink("visits", visits, tg.ParquetSink(self.table("visits")), commit_every=["1s", 12])
        return flow

    def file(self) -> Path:
        """Write the file that a driver runs."""
        said = ", ".join(f"{name}={value!r}" for name, value in asdict(self).items())
        path = Path(self.root, "flow.py")
        path.write_text(f"from tests.chaos.flow import Place, drive\n\nflow = drive(Place({said}))\n")
        return path


def drive(place: Place) -> tg.Dataflow:
    """Return the flow, in a process in which leases are short."""
    for module, name in (
        (lease_module, "EXPIRY"),
        (lease_module, "USUAL"),
        (away_module, "EXPIRY"),
        (runner_module, "RENEW_EVERY"),
    ):
        setattr(module, name, getattr(module, name) * SHORTER)
    return place.flow()
