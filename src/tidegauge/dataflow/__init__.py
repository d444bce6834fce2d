"""The timely core: orders, antichains, progress tracking, capabilities, workers, operators.

A dataflow is a graph of operators that send batches stamped with times. Operators hold *capabilities*, permissions to
send; the tracker works out from these, and from the batches on their way, which times may still arrive where. That is
the *frontier*: what it has passed is complete. The core knows nothing of sources, tables or Spark.

Invariant: no frontier passes a time at which something may still arrive, because whatever one invocation of an
operator did is published in one piece or not at all.

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

Where to begin reading: `order`, `frontier`, `reachability` (what may arrive where), `invocation` and `progress` (the
one rule that must not be broken), `capability`, then `worker` and `stream`.
"""

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext
from tidegauge.dataflow.capability import Capability, InputCapability
from tidegauge.dataflow.capability_set import CapabilitySet
from tidegauge.dataflow.carriers import Ending, EventReader, EventReceiver, EventWriter, LogQueue
from tidegauge.dataflow.cluster import DeterministicCluster, execute
from tidegauge.dataflow.draw import Drawing
from tidegauge.dataflow.explain import Holder
from tidegauge.dataflow.frontier import Antichain, ChangeBatch, FrontierView, MutableAntichain, TotalMutableAntichain
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput, Session
from tidegauge.dataflow.log import LogEvent
from tidegauge.dataflow.operators.capture import Event, EventQueue, EventSink, EventSource, Messages, Progress
from tidegauge.dataflow.operators.feedback import FeedbackHandle
from tidegauge.dataflow.operators.flow_control import ThroughHandle
from tidegauge.dataflow.operators.input import InputHandle, UnorderedHandle
from tidegauge.dataflow.operators.probe import Probe
from tidegauge.dataflow.order import INT, PARTITIONED, UNIT, Advancing, Bounded, Lattice, Lex, Order, Product
from tidegauge.dataflow.schedule import Activator, SyncActivator
from tidegauge.dataflow.scope import Scope
from tidegauge.dataflow.stash import Stash
from tidegauge.dataflow.stream import Stream
from tidegauge.dataflow.sync import Barrier, Sequencer
from tidegauge.dataflow.worker import Worker

__all__ = [
    "INT",
    "PARTITIONED",
    "UNIT",
    "Activator",
    "Advancing",
    "Antichain",
    "Barrier",
    "Bounded",
    "Capability",
    "CapabilitySet",
    "ChangeBatch",
    "DeterministicCluster",
    "Drawing",
    "Ending",
    "Event",
    "EventQueue",
    "EventReader",
    "EventReceiver",
    "EventSink",
    "EventSource",
    "EventWriter",
    "FeedbackHandle",
    "FrontierView",
    "Holder",
    "InputCapability",
    "InputHandle",
    "Lattice",
    "Lex",
    "LogEvent",
    "LogQueue",
    "Messages",
    "MutableAntichain",
    "OperatorBuilder",
    "OperatorContext",
    "OperatorInput",
    "OperatorOutput",
    "Order",
    "Probe",
    "Product",
    "Progress",
    "Scope",
    "Sequencer",
    "Session",
    "Stash",
    "Stream",
    "SyncActivator",
    "ThroughHandle",
    "TotalMutableAntichain",
    "UnorderedHandle",
    "Worker",
    "execute",
]
