"""Iceberg's own merge, on the Spark that its JAR is for; takes its JARs, the folder of tables, and a mode.

    load FILE      makes the table `lake.bench.users` of the rows of a Parquet file, in the order of their ids
    merge FILE     merges changes from a Parquet file, and says how many seconds that took

The mode is `copy-on-write` or `merge-on-read`, as Iceberg calls them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

_TABLE = "lake.bench.users"


def main(jars: str, warehouse: str, mode: str) -> None:
    """Answer until there are no more questions."""
    sql: Any = import_module("pyspark.sql")
    settings = {
        "spark.jars": jars,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.ui.enabled": "false",
    }
    builder = sql.SparkSession.builder.master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        what, path = line.split()
        begun = time.perf_counter()
        if what == "load":
            modes = ", ".join(f"'write.{one}.mode' = '{mode}'" for one in ("merge", "update", "delete"))
            sizes = "'format-version' = '2', 'write.target-file-size-bytes' = '33554432'"
            session.sql(
                f"CREATE TABLE {_TABLE} USING iceberg TBLPROPERTIES ({modes}, {sizes}) "
                f"AS SELECT * FROM parquet.`{path}` ORDER BY id"
            ).collect()
        else:
            session.sql(
                f"MERGE INTO {_TABLE} t USING parquet.`{path}` s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ).collect()
        print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
