"""One message on its way from a topic to a table: the calls, the modules, and how often each step is done.

`python scripts/walk.py` starts a broker and runs a flow of one topic and one Delta table twice, on the local engine.
The second run has one new message; it is followed in all its threads: while it is opened, and from `Runner.run` to
its end. What is counted does not depend on how busy the machine is, but for what waits: a few calls more or less are
of no account.

A call is one of a Python function of the package; a generator counts each time it goes on. A change of module is a
call of which the one before it, in its thread, was in another module. With `--twice` it lists the functions that were
called more than once with the same arguments. That is no fault where the answer is another one by then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from inspect import CO_GENERATOR, unwrap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.flow.runner import Runner
from tidegauge.flow.running import threads
from tidegauge.job import functions
from tidegauge.kafka.clients import kafka
from tidegauge.kafka.settings import Settings
from tidegauge.remap.fromtime import encoding
from tidegauge.remap.store import Store, lease
from tidegauge.remap.store.connect import Database
from tidegauge.sinks import columns as stored
from tidegauge.sinks.delta.log import DeltaLog
from tidegauge.sources import KafkaSource
from tidegauge.sources.kafka import decoding, inquiry
from tidegauge.testing import Endpoint, KafkaBroker

PACKAGE: Final = Path(tg.__file__).parent
STEPS: Final[Mapping[str, tuple[Callable[..., object], ...]]] = {
    "transaction of the store": (Database.reading, Database.write, Database.writing),
    "transaction of the store that writes": (Database.write, Database.writing),
    "question for losses to tell": (Store.untold,),
    "renewal of the lease": (lease.Lease.renew,),
    "look at the lease": (lease.guard, lease.Lease.confirm),
    "canonical.dump": (encoding.dump,),
    "Settings.of": (Settings.of,),
    "Start.of": (inquiry.Start.of,),
    "named": (inquiry.named,),
    "key_and_value": (decoding.key_and_value,),
    "probe": (KafkaSource.probe,),
    "plan": (KafkaSource.plan,),
    "conform": (functions.conform,),
    "rows_schema": (stored.rows_schema,),
    "fit": (stored.fit,),
    "commit of the table": (DeltaLog.commit,),
}
"""The steps that are told apart, with the functions that are one."""
REQUESTS: Final = ("list_topics", "describe_topics", "list_offsets", "committed", "commit")
"""What the clients of a broker are asked by name; what a consumer fetches it asks for by itself."""
CLIENT: Final = "cimpl"
"""The module of the client library that asks."""
PLAIN: Final = (str, bytes, int, float, bool, type(None), datetime, Path)
"""What is the same argument when it is equal; anything else when it is the same object."""


@dataclass(slots=True)
class _Thread:
    """What one thread did."""

    calls: Counter[CodeType] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    at: str = ""


class Walk:
    """What was called, in all threads that began while it was `followed`, and in the one that follows.

    given: how often each function was called with which arguments; they are kept, so that each stays what it is.
    """

    def __init__(self) -> None:
        self._threads: Final[dict[int, _Thread]] = {}
        self.given: Final[Counter[tuple[CodeType, tuple[object, ...]]]] = Counter()
        self._kept: Final[list[object]] = []

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Count what is called in the block."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, what: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            mine = self._mine()
            mine.calls[code] += 1
            mine.changes += code.co_filename != mine.at
            mine.at = code.co_filename
            if not code.co_flags & CO_GENERATOR and not code.co_name.startswith("<"):
                self._note(code, frame)
        elif event == "c_call" and what.__name__ in REQUESTS and _is_client(what.__self__):
            self._mine().requests[what.__name__] += 1

    def _note(self, code: CodeType, frame: FrameType) -> None:
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = [frame.f_locals[name] for name in names if name in frame.f_locals]
        self._kept.extend(values)
        self.given[code, tuple(one if isinstance(one, PLAIN) else id(one) for one in values)] += 1

    def _mine(self) -> _Thread:
        return self._threads.setdefault(threading.get_ident(), _Thread())

    @property
    def calls(self) -> Counter[CodeType]:
        """How often each function was called."""
        return sum((one.calls for one in self._threads.values()), Counter())

    @property
    def twice(self) -> Counter[CodeType]:
        """How many calls of each function had arguments that an earlier one had."""
        found: Counter[CodeType] = Counter()
        for (code, values), count in self.given.items():
            found[code] += (count - 1) if values else 0
        return +found

    @property
    def requests(self) -> Counter[str]:
        """How often a broker was asked for what."""
        return sum((one.requests for one in self._threads.values()), Counter())

    @property
    def changes(self) -> int:
        """How often a call was in another module than the one before it."""
        return sum(one.changes for one in self._threads.values())

    @property
    def modules(self) -> Counter[str]:
        """How many calls there were in each module."""
        found: Counter[str] = Counter()
        for code, count in self.calls.items():
            found[str(Path(code.co_filename).relative_to(PACKAGE))] += count
        return found

    def times(self, step: str) -> int:
        """How often a step was done."""
        calls = self.calls
        return sum(calls[unwrap(function).__code__] for function in STEPS[step])


def _is_client(what: object) -> bool:
    return any(kind.__module__ == CLIENT for kind in type(what).__mro__)


def flow_of(root: Path, servers: str, topic: str) -> tg.Dataflow:
    """Return the flow that is followed."""
    flow = tg.Dataflow("walk", store=f"sqlite:///{root}/walk.db")
    source = tg.KafkaSource(servers, topic=topic, format=tg.Json("id long, user string"))
    flow.sink("orders", flow.source("orders", source), tg.DeltaSink(str(root / "orders")))
    return flow


def run(flow: tg.Dataflow, opening: Walk, running: Walk) -> int:
    """Run a flow until it has caught up, followed by two walks, and return how far it has published."""
    with ExitStack() as stack:
        engine = tg.LocalEngine()
        stack.callback(engine.close)
        pool = threads(flow.spec)
        stack.callback(pool.shutdown)
        with opening.followed():
            runner = Runner(flow.spec, engine, env=Env(), spawn=pool.submit, batch=True)
        stack.callback(runner.close)
        with running.followed():
            return runner.run("caught-up").published


def produce(servers: str, topic: str, number: int) -> None:
    """Bring one message."""
    producer = kafka().Producer({"bootstrap.servers": servers})
    producer.produce(topic, b'{"id": %d, "user": "ada"}' % number)
    producer.flush()


def walked(broker: Endpoint | KafkaBroker, topic: str, root: Path) -> tuple[Walk, Walk]:
    """Return the walks of a flow's second run in an empty folder, with one new message: its opening, and the rest."""
    for number in range(2):
        produce(broker.servers, topic, number)
        opening, running = Walk(), Walk()
        run(flow_of(root, broker.servers, topic), opening, running)
    return opening, running


def figures(walk: Walk) -> dict[str, int]:
    """Return what was counted, by what it is."""
    return {
        "calls": walk.calls.total(),
        "functions": len(walk.calls),
        "modules": len(walk.modules),
        "changes of module": walk.changes,
        **{step: walk.times(step) for step in STEPS},
        "request to the broker": walk.requests.total(),
        **{f"  {request}": walk.requests[request] for request in REQUESTS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--modules", action="store_true", help="list the modules of the run, with the calls in each")
    parser.add_argument("--functions", action="store_true", help="list its functions, with the calls of each")
    parser.add_argument("--twice", action="store_true", help="list those called again with the same arguments")
    asked = parser.parse_args()
    with KafkaBroker() as broker, tempfile.TemporaryDirectory(prefix="tidegauge-walk-") as root:
        opening, running = walked(broker, broker.create_topic("orders"), Path(root))
    print("opened   run")
    opened = figures(opening)
    for what, ran in figures(running).items():
        print(f"{opened[what]:6,} {ran:5,} {what}")
    if asked.modules:
        for module, count in running.modules.most_common():
            print(f"{count:12,} {module}")
    for wanted, listed in ((asked.functions, running.calls), (asked.twice, running.twice)):
        for code, count in listed.most_common() if wanted else ():
            print(f"{count:12,} {Path(code.co_filename).relative_to(PACKAGE)} {code.co_qualname}")


if __name__ == "__main__":
    main()
