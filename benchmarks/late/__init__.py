"""Outputs that come late: what their past costs and live ones notice, beside a second Structured Streaming query.

- `reading`: rows a second of a past, beside a plain run over the same files; source bytes of ten late outputs.
- `opening`: the time until the first job of a late output, in a flow with a million bindings.
- `beside`: live epochs while a past is read beside them, and the same with a second query from the beginning.
"""

from benchmarks.figures import Figure
from benchmarks.late import beside, opening, reading
from benchmarks.room import Room, spark_session

__all__ = ["measure"]


def measure(room: Room) -> list[Figure]:
    """Measure it all on one session and on the local engine."""
    figures = opening.measure(room)
    with spark_session() as session:
        for part in (reading, beside):
            room.say(part.__name__.rpartition(".")[2])
            figures += part.measure(room, session)
    return figures
