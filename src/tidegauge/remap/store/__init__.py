"""The store: one small transactional database that holds what must outlive the driver.

It answers who may write (`lease`), what is bound to which epoch (`append`, `read`), and what a flow is made of
(`register`). `schema` describes the tables, which are meant to be queried; `connect` is all that differs between
databases. The methods are those of `Store`.
"""

from tidegauge.remap.store.columns import decode_schema, encode_schema
from tidegauge.remap.store.lease import EXPIRY, Holder, Lease
from tidegauge.remap.store.store import Store
from tidegauge.remap.store.values import (
    EpochRecord,
    FlowRecord,
    Loaded,
    LoadedOutput,
    LoadedSource,
    OutputSpec,
    SourceSpec,
)

__all__ = [
    "EXPIRY",
    "EpochRecord",
    "FlowRecord",
    "Holder",
    "Lease",
    "Loaded",
    "LoadedOutput",
    "LoadedSource",
    "OutputSpec",
    "SourceSpec",
    "Store",
    "decode_schema",
    "encode_schema",
]
