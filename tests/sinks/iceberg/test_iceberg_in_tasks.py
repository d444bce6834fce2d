"""What a task loads to stage for a table of Iceberg: no pyiceberg, which is not there where tasks run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

PROGRAM = """
import sys
sys.modules["pyiceberg"] = None
import pyarrow as pa
import tidegauge as tg

schema = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
sink = tg.IcebergSink("shop.orders", sys.argv[1], catalog="prod")
sink.check(schema)
stager = sink.stage(schema, job="0" * 32, task=0)
stager.write(pa.record_batch({"id": [1], "_epoch": [0]}, schema))
print(*(file.path for file in stager.close()), sink.identity)
"""


def test_a_task_stages_without_pyiceberg(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, capture_output=True, text=True)
    path, identity = done.stdout.split()
    assert (tmp_path / "shop" / "orders" / path).exists()
    assert identity == f"iceberg:{tmp_path}/shop/orders"


MERGE = """
import pickle, sys
sys.modules["pyiceberg"] = None
import pyarrow as pa
import tidegauge as tg
from tidegauge.sinks.iceberg.staging import IcebergLeaf
from tidegauge.sinks.keyed.layout import Ordering
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.planning import SIZES, Merge

schema = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
sink = tg.IcebergSink("shop.orders", sys.argv[1], catalog="prod", envelope="upsert", key="id")
sink.check(schema)
stager = pickle.loads(pickle.dumps(sink)).stage(schema, job="0" * 32, task=0)
stager.write(pa.record_batch({"id": [2, 1], "_epoch": [0, 0]}, schema))
[run] = stager.close()
merge = Merge((), (run.path,), None, None, 10)
folder = sys.argv[1] + "/shop/orders"
begin = IcebergLeaf({"id": 7, "_epoch": 9})
task = MergeTask(folder, schema, Ordering(("id",)), merge, SIZES, "1" * 32, 0, begin=begin)
[leaf] = pickle.loads(pickle.dumps(task))()
print(leaf.path, leaf.rows)
"""


def test_a_task_merges_without_pyiceberg(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MERGE, str(tmp_path)], check=True, capture_output=True, text=True)
    path, rows = done.stdout.split()
    declared = pq.read_schema(tmp_path / "shop" / "orders" / path)
    assert rows == "2"
    assert [one.metadata[b"PARQUET:field_id"] for one in declared] == [b"7", b"9"]
