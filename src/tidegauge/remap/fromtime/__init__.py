"""FromTimes: the clocks of sources, in upstream's notation, as frontiers, and as canonical JSON.

>>> GTID.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3")
Frontier({'3e11fa47-71ca-11e1-9e33-c80aa9429562': 4})
>>> decode(LSN, encode(LSN, LSN.parse("16/B374D848"))) == LSN.parse("16/B374D848")
True
"""

from tidegauge.remap.fromtime.encoding import decode, encode
from tidegauge.remap.fromtime.gtid import GTID, GtidTime
from tidegauge.remap.fromtime.kinds import FROM_TIMES, FromTimes
from tidegauge.remap.fromtime.lsn import LSN, WAL, Lsn, LsnTime
from tidegauge.remap.fromtime.partitioned import NUMBERED, PARTITIONS, Partitioned
from tidegauge.remap.fromtime.protocol import FromTime, checked
from tidegauge.remap.fromtime.sequence import POLLS, SEQUENCE, Sequence
from tidegauge.remap.fromtime.state import LARGEST_STATE, SourceState

__all__ = [
    "FROM_TIMES",
    "GTID",
    "LARGEST_STATE",
    "LSN",
    "NUMBERED",
    "PARTITIONS",
    "POLLS",
    "SEQUENCE",
    "WAL",
    "FromTime",
    "FromTimes",
    "GtidTime",
    "Lsn",
    "LsnTime",
    "Partitioned",
    "Sequence",
    "SourceState",
    "checked",
    "decode",
    "encode",
]
