"""The store: one small transactional database that holds what must outlive the driver.

It answers who may write (`lease`), which records belong to which epoch (`append`, `read`, `compaction`), and what a
flow is made of (`register`). `schema` describes the tables, and `opening` the views that people ask; `address`,
`sqlite` and `postgres` are all that differs between databases, behind `connect`. The methods are those of `Store`.
"""

from tidegauge.remap.store.address import reveals, secrets, shown
from tidegauge.remap.store.columns import decode_schema, encode_schema
from tidegauge.remap.store.decisions import (
    Decision,
    PauseOutput,
    ReplaceOutput,
    ResumeOutput,
    SetRate,
    check_rate,
)
from tidegauge.remap.store.following import Followed
from tidegauge.remap.store.lease import EXPIRY, Lease, LeaseHolder
from tidegauge.remap.store.owner import SHARED, Following, holder_of, lacked
from tidegauge.remap.store.restore import Rebuilt
from tidegauge.remap.store.store import Store
from tidegauge.remap.store.values import (
    Backfill,
    BackfillPlan,
    BackfillUnit,
    CodeRecord,
    Decisions,
    EpochRecord,
    FlowRecord,
    Gap,
    HoldRecord,
    Incarnation,
    Loaded,
    LoadedOutput,
    LoadedSource,
    OutputSpec,
    Pause,
    PauseReason,
    Rate,
    Replacement,
    SourceSpec,
    Stall,
)

__all__ = [
    "EXPIRY",
    "SHARED",
    "Backfill",
    "BackfillPlan",
    "BackfillUnit",
    "CodeRecord",
    "Decision",
    "Decisions",
    "EpochRecord",
    "FlowRecord",
    "Followed",
    "Following",
    "Gap",
    "HoldRecord",
    "Incarnation",
    "Lease",
    "LeaseHolder",
    "Loaded",
    "LoadedOutput",
    "LoadedSource",
    "OutputSpec",
    "Pause",
    "PauseOutput",
    "PauseReason",
    "Rate",
    "Rebuilt",
    "ReplaceOutput",
    "Replacement",
    "ResumeOutput",
    "SetRate",
    "SourceSpec",
    "Stall",
    "Store",
    "check_rate",
    "decode_schema",
    "encode_schema",
    "holder_of",
    "lacked",
    "reveals",
    "secrets",
    "shown",
]
