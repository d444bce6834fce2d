"""Run a chaos: `python -m tests.chaos --seed 7 --seconds 60`. The folder of one that fails is kept."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.run import Chaos, ChaosFailed
from tests.chaos.servers import a_broker
from tests.postgres import INSTALL, Server, binaries
from tests.warm import Warm

STORES = ("sqlite", "postgresql")


def main() -> None:
    """Run as many seeds as are asked for, on both stores or one."""
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the first one; drawn and printed if not given")
    parser.add_argument("--seeds", type=int, default=1, help="how many, on each store")
    parser.add_argument("--seconds", type=float, default=30.0, help="for how long things go wrong in each")
    parser.add_argument("--store", choices=STORES, default=None, help="both if not given")
    given = parser.parse_args()
    first = int.from_bytes(os.urandom(3)) if given.seed is None else given.seed
    stores = STORES if given.store is None else (given.store,)
    with ExitStack() as stack:
        broker = stack.enter_context(a_broker())
        warm = Warm()
        stack.callback(warm.close)
        server = None
        if "postgresql" in stores:
            programs = binaries()
            if programs is None:
                parser.error(INSTALL)
            server = Server(programs)
            stack.callback(server.stop)
        for seed in range(first, first + given.seeds):
            for store in stores:
                print(f"seed {seed}, {given.seconds:g} seconds, {store}", flush=True)
                root = Path(tempfile.mkdtemp(prefix=f"tidegauge-chaos-{seed}-"))
                of = server if store == "postgresql" else None
                chaos = Chaos(root, seed=seed, seconds=given.seconds, broker=broker, server=of, warm=warm)
                try:
                    print(f"  {chaos.run()}", flush=True)
                except ChaosFailed as failed:
                    sys.exit(str(failed))
                shutil.rmtree(root)


if __name__ == "__main__":
    main()
