"""FromTimes: the clocks of sources, in upstream's notation, as frontiers, and as canonical JSON.

>>> from tidegauge.remap.fromtime import GTID, LSN, decode, encode
>>> GTID.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3")
Frontier({'3e11fa47-71ca-11e1-9e33-c80aa9429562': 4})
>>> decode(LSN, encode(LSN, LSN.parse("16/B374D848"))) == LSN.parse("16/B374D848")
True
"""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.remap.fromtime.encoding import decode as decode
    from tidegauge.remap.fromtime.encoding import encode as encode
    from tidegauge.remap.fromtime.gtid import GTID as GTID
    from tidegauge.remap.fromtime.gtid import GtidTime as GtidTime
    from tidegauge.remap.fromtime.kinds import FROM_TIMES as FROM_TIMES
    from tidegauge.remap.fromtime.kinds import FromTimes as FromTimes
    from tidegauge.remap.fromtime.lsn import LSN as LSN
    from tidegauge.remap.fromtime.lsn import WAL as WAL
    from tidegauge.remap.fromtime.lsn import Lsn as Lsn
    from tidegauge.remap.fromtime.lsn import LsnTime as LsnTime
    from tidegauge.remap.fromtime.mariadb import MARIADB as MARIADB
    from tidegauge.remap.fromtime.mariadb import MariaDbTime as MariaDbTime
    from tidegauge.remap.fromtime.partitioned import NUMBERED as NUMBERED
    from tidegauge.remap.fromtime.partitioned import PARTITIONS as PARTITIONS
    from tidegauge.remap.fromtime.partitioned import Partitions as Partitions
    from tidegauge.remap.fromtime.polled import LARGEST_STATE as LARGEST_STATE
    from tidegauge.remap.fromtime.polled import POLLS as POLLS
    from tidegauge.remap.fromtime.polled import SEQUENCE as SEQUENCE
    from tidegauge.remap.fromtime.polled import Sequence as Sequence
    from tidegauge.remap.fromtime.polled import SourceState as SourceState
    from tidegauge.remap.fromtime.protocol import FromTime as FromTime
    from tidegauge.remap.fromtime.protocol import checked as checked
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "encoding": "decode encode",
            "gtid": "GTID GtidTime",
            "kinds": "FROM_TIMES FromTimes",
            "lsn": "LSN Lsn LsnTime WAL",
            "mariadb": "MARIADB MariaDbTime",
            "partitioned": "NUMBERED PARTITIONS Partitions",
            "polled": "LARGEST_STATE POLLS SEQUENCE Sequence SourceState",
            "protocol": "FromTime checked",
        },
    )
