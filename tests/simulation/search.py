"""Search the worlds of a flow for a law that breaks: `python -m tests.simulation.search --flow MODULE --most N`.

The module may say which kinds of faults: `FAULTS`. One JSON line is printed, and the command exits with 0 either way:
`{"seeds": tried, "failed": seed or null, "what": "..."}`.
"""

from __future__ import annotations

import argparse
import importlib
import json

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import checked_kinds, planned
from tidegauge.testing.simulation.world import World


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--most", type=int, default=300)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--flow", default="tests.simulation.reference", help="a module with a make_flow")
    given = arguments.parse_args()
    module = importlib.import_module(given.flow)
    ground, kinds = Ground.of(module.make_flow), checked_kinds(getattr(module, "FAULTS", None))
    for tried, seed in enumerate(range(given.first, given.first + given.most), start=1):
        try:
            World(ground, planned(seed, ground.facts, kinds=kinds)).run()
        except SimulationFailed as failed:
            what = f"{failed.evidence['law']}: {failed.evidence['detail']}"
            print(json.dumps({"seeds": tried, "failed": seed, "what": what}))
            return
    print(json.dumps({"seeds": given.most, "failed": None, "what": ""}))


if __name__ == "__main__":
    main()
