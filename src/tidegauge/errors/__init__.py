"""Every error that a user can meet, each with a stable code, one file for each part of the system.

Invariant: a code is never reused and never changes its meaning; the errors page of the documentation is generated
from these classes. `import tidegauge.errors` knows them all, so that any stored error can be decoded.

>>> from tidegauge.errors.flow import NameTaken
>>> CODES["TG-0102"] is NameTaken
True
"""

from tidegauge.errors import (
    changes,
    command,
    dataflow,
    engine,
    events,
    flow,
    following,
    foreach,
    formats,
    fromtime,
    history,
    kafka,
    kafkasink,
    objects,
    outputs,
    postgressink,
    push,
    reclock,
    running,
    secrets,
    simulable,
    simulation,
    sinks,
    sources,
    store,
    testing,
    upkeep,
)
from tidegauge.errors.base import CODES, Definite, TidegaugeError, Transient, UnknownError

__all__ = [
    "CODES",
    "Definite",
    "TidegaugeError",
    "Transient",
    "UnknownError",
    "changes",
    "command",
    "dataflow",
    "engine",
    "events",
    "flow",
    "following",
    "foreach",
    "formats",
    "fromtime",
    "history",
    "kafka",
    "kafkasink",
    "objects",
    "outputs",
    "postgressink",
    "push",
    "reclock",
    "running",
    "secrets",
    "simulable",
    "simulation",
    "sinks",
    "sources",
    "store",
    "testing",
    "upkeep",
]
