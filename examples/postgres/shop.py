"""The flow of the demo: the four tables of pgbench, followed by one slot."""

import os

import tidegauge as tg

KEYS = {"pgbench_accounts": "aid", "pgbench_tellers": "tid", "pgbench_branches": "bid"}

flow = tg.Dataflow("bank", store="sqlite:///bank.db")
bank = flow.source(
    "bank_db",
    tg.PostgresSource(os.environ["DATABASE"], publication="bank", tables=[*KEYS, "pgbench_history"]),
)
for table, key in KEYS.items():
    sink = tg.DeltaSink(f"lake/{table}", envelope="upsert", key=key, order="_sequence")
    flow.sink(table, bank.table(table), sink)
# Nothing in the history has a key, and nothing in it changes: its rows are the changes.
history = bank.table("pgbench_history").changelog("op")
flow.sink("pgbench_history", history, tg.DeltaSink("lake/pgbench_history"))
