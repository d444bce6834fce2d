"""The timely core: orders, antichains, progress tracking, capabilities, workers, operators.

A dataflow is a graph of operators that send batches stamped with times. Operators hold *capabilities*, permissions to
send; the tracker works out from these, and from the batches on their way, which times may still arrive where. That is
the *frontier*: what it has passed is complete. The core knows nothing of sources, tables or Spark.

Invariant: no frontier passes a time at which something may still arrive, because whatever one invocation of an
operator did is published in one piece or not at all.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     orders, stream = scope.input("orders")
...     probe = stream.map(len).inspect(print).probe()
>>> orders.send(["tea", "salt"]); orders.advance_to(1)
>>> while probe.less_than(1): _ = worker.step()
(0,) 2
>>> orders.close()
>>> while worker.step(): pass
>>> probe.done()
True

Where to begin reading: `order`, `frontier`, `capability`, `reachability` (what may arrive where), `invocation` and
`progress` (the one rule that must not be broken), then `worker`, `stream` and `operators`. No flow enters the rooms
`workers`, `capture` and `looking`; `docs/dataflow/index.md` walks you through all of it.
"""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.dataflow.build import OperatorBuilder as OperatorBuilder
    from tidegauge.dataflow.build import OperatorContext as OperatorContext
    from tidegauge.dataflow.capability import Capability as Capability
    from tidegauge.dataflow.capability import InputCapability as InputCapability
    from tidegauge.dataflow.capability_set import CapabilitySet as CapabilitySet
    from tidegauge.dataflow.capture.files import EventReader as EventReader
    from tidegauge.dataflow.capture.files import EventWriter as EventWriter
    from tidegauge.dataflow.capture.form import Ending as Ending
    from tidegauge.dataflow.capture.logged import LogQueue as LogQueue
    from tidegauge.dataflow.capture.receiver import EventReceiver as EventReceiver
    from tidegauge.dataflow.frontier.antichain import Antichain as Antichain
    from tidegauge.dataflow.frontier.outstanding import ChangeBatch as ChangeBatch
    from tidegauge.dataflow.frontier.outstanding import MutableAntichain as MutableAntichain
    from tidegauge.dataflow.frontier.outstanding import TotalMutableAntichain as TotalMutableAntichain
    from tidegauge.dataflow.frontier.view import FrontierView as FrontierView
    from tidegauge.dataflow.frontier.view import Probe as Probe
    from tidegauge.dataflow.invocation import OperatorInput as OperatorInput
    from tidegauge.dataflow.invocation import OperatorOutput as OperatorOutput
    from tidegauge.dataflow.invocation import Session as Session
    from tidegauge.dataflow.looking.draw import Drawing as Drawing
    from tidegauge.dataflow.looking.explain import Holder as Holder
    from tidegauge.dataflow.looking.log import LogEvent as LogEvent
    from tidegauge.dataflow.operators.capture import Event as Event
    from tidegauge.dataflow.operators.capture import EventQueue as EventQueue
    from tidegauge.dataflow.operators.capture import EventSink as EventSink
    from tidegauge.dataflow.operators.capture import EventSource as EventSource
    from tidegauge.dataflow.operators.capture import Messages as Messages
    from tidegauge.dataflow.operators.capture import Progress as Progress
    from tidegauge.dataflow.operators.feedback import FeedbackHandle as FeedbackHandle
    from tidegauge.dataflow.operators.feedback import ThroughHandle as ThroughHandle
    from tidegauge.dataflow.operators.input import InputHandle as InputHandle
    from tidegauge.dataflow.operators.input import UnorderedHandle as UnorderedHandle
    from tidegauge.dataflow.operators.stash import Stash as Stash
    from tidegauge.dataflow.order.numbers import INT as INT
    from tidegauge.dataflow.order.numbers import UNIT as UNIT
    from tidegauge.dataflow.order.numbers import Bounded as Bounded
    from tidegauge.dataflow.order.pairs import Lex as Lex
    from tidegauge.dataflow.order.pairs import Product as Product
    from tidegauge.dataflow.order.partitioned import PARTITIONED as PARTITIONED
    from tidegauge.dataflow.order.protocol import Advancing as Advancing
    from tidegauge.dataflow.order.protocol import Lattice as Lattice
    from tidegauge.dataflow.order.protocol import Order as Order
    from tidegauge.dataflow.schedule import Activator as Activator
    from tidegauge.dataflow.schedule import SyncActivator as SyncActivator
    from tidegauge.dataflow.scope import Scope as Scope
    from tidegauge.dataflow.stream import Stream as Stream
    from tidegauge.dataflow.worker import Worker as Worker
    from tidegauge.dataflow.workers.cluster import DeterministicCluster as DeterministicCluster
    from tidegauge.dataflow.workers.cluster import execute as execute
    from tidegauge.dataflow.workers.sync import Barrier as Barrier
    from tidegauge.dataflow.workers.sync import Sequencer as Sequencer
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "build": "OperatorBuilder OperatorContext",
            "capability": "Capability InputCapability",
            "capability_set": "CapabilitySet",
            "capture.form": "Ending",
            "capture.logged": "LogQueue",
            "capture.files": "EventReader EventWriter",
            "capture.receiver": "EventReceiver",
            "workers.cluster": "DeterministicCluster execute",
            "looking.draw": "Drawing",
            "looking.explain": "Holder",
            "frontier.antichain": "Antichain",
            "frontier.outstanding": "ChangeBatch MutableAntichain TotalMutableAntichain",
            "frontier.view": "FrontierView Probe",
            "invocation": "OperatorInput OperatorOutput Session",
            "looking.log": "LogEvent",
            "operators.capture": "Event EventQueue EventSink EventSource Messages Progress",
            "operators.feedback": "FeedbackHandle ThroughHandle",
            "operators.input": "InputHandle UnorderedHandle",
            "order.numbers": "Bounded INT UNIT",
            "order.pairs": "Lex Product",
            "order.partitioned": "PARTITIONED",
            "order.protocol": "Advancing Lattice Order",
            "schedule": "Activator SyncActivator",
            "scope": "Scope",
            "operators.stash": "Stash",
            "stream": "Stream",
            "workers.sync": "Barrier Sequencer",
            "worker": "Worker",
        },
    )
