"""Starting again with a long history: the time until the first new epoch is published.

The history is a file of one line an epoch and a timeline that says so, written through the store's own append, many
to a transaction. The time is from the construction of the runner, which opens the store and the tables, to the
moment at which the line appended meanwhile is published. The local engine has no start to count.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.data import lines
from benchmarks.figures import Figure, Goal
from benchmarks.flows import flow
from benchmarks.room import Room
from tidegauge.env import Env
from tidegauge.pipeline.engine.local import LocalEngine
from tidegauge.pipeline.flow import Dataflow
from tidegauge.pipeline.runner import Runner, at_once
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import append
from tidegauge.remap.store.connect import Database

__all__ = ["measure"]
