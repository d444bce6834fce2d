"""From a database to tables, on a real server: pgbench runs, the tables follow, the driver is killed, the sums agree.

Each transaction of pgbench adds an amount to an account, a teller and a branch, and notes it in the history. So the
four sums are one number at each epoch, or an epoch has a part of a transaction.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.compute as pc

import tidegauge as tg
from tidegauge.cli.load import load_flow

HERE = Path(__file__).resolve().parent
WORK = Path("demo-data/postgres").resolve()
PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/pgsql-*/bin")
SUMS = {
    "pgbench_accounts": "abalance",
    "pgbench_tellers": "tbalance",
    "pgbench_branches": "bbalance",
    "pgbench_history": "delta",
}
SECONDS = 20


def say(text: str) -> None:
    """Print a headline."""
    print(f"\n== {text}", flush=True)


def check(what: str, found: Any, wanted: Any) -> None:
    """Print one line of the account; stop at the first that does not hold."""
    good = found == wanted
    print(f"  {'ok ' if good else 'NOT'}  {what}: {found}" + ("" if good else f", and it should be {wanted}"))
    if not good:
        sys.exit(1)


def programs() -> Path:
    """Return the folder of the newest PostgreSQL of this machine that has pgbench."""
    found = [Path(place) for pattern in PLACES for place in glob.glob(pattern) if Path(place, "pgbench").exists()]
    if not found:
        sys.exit("this demo needs PostgreSQL 15 or newer, with pgbench: run 'make postgres'")
    return max(found, key=lambda place: int("0" + "".join(filter(str.isdigit, str(place)))))


@contextmanager
def server(place: Path) -> Iterator[str]:
    """Run a server in a temporary folder; give the address of its database."""
    folder = Path(tempfile.mkdtemp(prefix="tidegauge-demo-"))
    who: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = pwd.getpwnam("postgres")
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        os.chown(folder, user.pw_uid, user.pw_gid)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    data, quiet = folder / "data", {"stdout": subprocess.DEVNULL, "cwd": folder, **who}
    subprocess.run([place / "initdb", "--auth=trust", "--username=postgres", "-D", data], check=True, **quiet)
    options = f"-p {port} -k {folder} -c listen_addresses= -c wal_level=logical"
    start = [str(place / "pg_ctl"), "-w", "-D", str(data), "-l", str(folder / "log"), "-o", options, "start"]
    subprocess.run(start, check=True, **quiet)
    try:
        yield f"postgresql://postgres@/postgres?host={folder}&port={port}"
    finally:
        subprocess.run([place / "pg_ctl", "-w", "-m", "fast", "-D", data, "stop"], check=True, **quiet)
        shutil.rmtree(folder, ignore_errors=True)


def command(*more: str) -> list[str]:
    """Return the command that runs the flow."""
    return [sys.executable, "-m", "tidegauge", "run", str(HERE / "shop.py"), "--engine", "local", *more]


def sums(flow: tg.Dataflow, epoch: int | None = None) -> dict[str, int]:
    """Return the sum of each table, all as of one epoch."""
    tables = {table: tg.read_arrow(flow, table, as_of=epoch) for table in SUMS}
    return {table: pc.sum(rows[SUMS[table]]).as_py() or 0 for table, rows in tables.items()}


def main() -> None:
    """Run the demo."""
    began = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    os.chdir(WORK)
    place = programs()
    say("A server starts, with the tables of pgbench")
    with server(place) as address:
        os.environ["DATABASE"] = address
        subprocess.run([place / "pgbench", "-i", "-q", address], check=True, capture_output=True)
        with psycopg.connect(address, autocommit=True) as database:
            database.execute("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")
            database.execute(f"CREATE PUBLICATION bank FOR TABLE {', '.join(SUMS)}")
        print("  100,000 accounts, 10 tellers, 1 branch; a publication of the four tables")

        say(f"pgbench runs for {SECONDS} seconds, and the flow follows")
        bench = subprocess.Popen(
            [place / "pgbench", "-n", "-c", "4", "-T", str(SECONDS), address], stdout=subprocess.PIPE, text=True
        )
        for number in range(3):
            driver = subprocess.Popen(command())
            time.sleep(SECONDS / 4)
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            print(f"  killed the driver (SIGKILL), {number + 1} of 3")
        told = bench.communicate()[0]
        print("\n".join(f"  pgbench: {line}" for line in told.splitlines() if "tps" in line or "processed" in line))

        say("It runs again, until it has caught up")
        if subprocess.run(command("--until", "caught-up"), check=False).returncode != 0:
            sys.exit("the run failed")

        say("The account: the database against the tables, as of one epoch")
        with psycopg.connect(address) as database:
            [(wanted, count)] = database.execute("SELECT sum(delta), count(*) FROM pgbench_history").fetchall()
        flow = load_flow(HERE / "shop.py")
        epoch = tg.status(flow).published - 1
        for table, found in sums(flow, epoch).items():
            check(f"sum of {table} as of epoch {epoch}", found, wanted)
        for table, rows in (("pgbench_accounts", 100_000), ("pgbench_tellers", 10), ("pgbench_branches", 1)):
            check(f"rows of {table}", tg.read_arrow(flow, table).num_rows, rows)
        check("transactions in the history", tg.read_arrow(flow, "pgbench_history").num_rows, count)

        say("The timeline: tidegauge epochs shop.py")
        subprocess.run([sys.executable, "-m", "tidegauge", "epochs", str(HERE / "shop.py")], check=True)
    took = time.monotonic() - began
    print(f"\nAll of it holds. {took:.0f} seconds; tables and store are in demo-data/postgres/, the server is gone.")


if __name__ == "__main__":
    main()
