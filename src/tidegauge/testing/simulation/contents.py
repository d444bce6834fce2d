"""The rows of the epochs of a table: those that the flow's steps make of the records that are bound to each.

    an epoch                  has its rows
    the past of a new table   has one epoch: the one that was settled (`timestamps=`), or the one up to which the flow
                              is compacted. It has the rows of all epochs up to it, together

Between what an epoch has to have and what it may have are records that were noted as lost, or skipped, since.

The first row of each key (`dedupe`) is another one where the first record is lost, and where epochs are one by now. A
row that is the first with and without the lost records, of all the epochs together, is there in any case.

Invariant: rows are counted. One that is there twice and should be there once is one too many.

>>> least, most = Counter({"(7,)": 1}), Counter({"(7,)": 1, "(8,)": 1})
>>> unlike(Counter({"(7,)": 1}), least=least, most=most)
''
>>> unlike(Counter({"(8,)": 2}), least=least, most=most)
'1 rows missing: (7,); 1 rows too many: (8,)'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final, TypeAlias

import pyarrow as pa

from tidegauge.engine.plain.steps import without_spark
from tidegauge.evolution import filled
from tidegauge.job.code import code_of
from tidegauge.job.functions import apply, columns_of, conform
from tidegauge.job.plan import Dedupe, OutputPlan
from tidegauge.sources.protocol import BAD_RECORDS, BadRecord
from tidegauge.testing.simulation.evidence import UpstreamEvidence
from tidegauge.testing.simulation.ledger import BindingLedger, Broken
from tidegauge.testing.simulation.rows import listed, of_channel, shown

__all__ = ["EpochContents", "MadeBy", "unlike"]

MadeBy: TypeAlias = Callable[[str, int], OutputPlan]
"""Returns an output as it was when the rows of an epoch were made: its code may be another one by now."""


class EpochContents:
    """The contents of a world's epochs. skipped: bad records that are gaps, as `Checks` has them."""

    def __init__(
        self,
        ledger: BindingLedger,
        upstreams: Mapping[str, UpstreamEvidence],
        skipped: Collection[tuple[str, str, int]],
        made_by: MadeBy,
    ) -> None:
        self._ledger: Final = ledger
        self._made_by: Final = made_by
        self._upstreams: Final = upstreams
        self._skipped: Final = skipped

    def all_there(self, name: str, actual: Mapping[int, Counter[str]], *, upper: int, first: int, stamp: int) -> None:
        """Every epoch of a table has the rows that its bindings say. Raises `Broken`.

        upper: the first that it lacks. first: the one that it begins with. stamp: the one that its past has.
        """
        past, since = (min(epoch, upper - 1) for epoch in (max(first, stamp), self._ledger.since))
        for epoch in range(max(past, since) + 1, upper):
            self.there(name, [epoch], actual)
        try:
            self.there(name, range(first, past + 1), actual)
            for epoch in range(past + 1, since + 1):
                self.there(name, [epoch], actual)
        except Broken:  # the table came so late that these were compacted, and has them as one of them
            self.there(name, range(first, max(past, since) + 1), actual)

    def there(self, name: str, epochs: Sequence[int], actual: Mapping[int, Counter[str]]) -> None:
        """Some epochs of a table have together the rows that their bindings say. Raises `Broken`."""
        least, most, found = Counter[str](), Counter[str](), Counter[str]()
        for epoch in epochs:
            few, many = self._few_and_many(name, [epoch])
            if few is None or many is None:
                return
            if few != many and self._made_by(name, epoch).ordered:
                many = self._expected(name, [epoch], whole=True, deduped=False) or Counter()
            least += few
            most += many
            found += actual.get(epoch, Counter())
        if any(self._made_by(name, epoch).ordered for epoch in epochs):
            alike = groupby(epochs, key=lambda epoch: code_of(self._made_by(name, epoch)))
            together = [self._few_and_many(name, [*some]) for _, some in alike]
            least = sum((few for few, _ in together if few is not None), Counter[str]())
        if said := unlike(found, least=least, most=most):
            raise Broken("an epoch has the rows that its bindings say", f"{name} at {epochs[-1]}: {said}")

    def bad(self, source: str, epoch: int) -> list[tuple[str, BadRecord]]:
        """Return the bad records of an epoch that are not gaps, each with its place."""
        upstream = self._upstreams[source]
        return [
            (place, record)
            for place, lower, upper in self._ledger.ranges(source, epoch, whole=False)
            for record in upstream.bad(place, lower, upper)
        ]

    def _few_and_many(self, name: str, epochs: Sequence[int]) -> tuple[Counter[str] | None, Counter[str] | None]:
        """Return the rows of epochs that are one, without the records that were lost since, and with them."""
        few, many = (self._expected(name, epochs, whole=whole) for whole in (False, True))
        if few is not None and many is not None and self._made_by(name, epochs[0]).ordered:
            return few & many, many
        return few, many

    def _ranges(self, source: str, epochs: Sequence[int], *, whole: bool) -> list[tuple[str, int, int, int]]:
        """Return the ranges of epochs, by partition and then by position, as a task reads them that are one.

        Each with its epoch.
        """
        found = [
            (self._ledger.partition(source, epoch, place), lower, place, upper, epoch)
            for epoch in epochs
            for place, lower, upper in self._ledger.ranges(source, epoch, whole=whole)
        ]
        return [(place, lower, upper, epoch) for _, lower, place, upper, epoch in sorted(found)]

    def _expected(
        self, name: str, epochs: Sequence[int], *, whole: bool, deduped: bool = True
    ) -> Counter[str] | None:
        """Return the rows of epochs; None where compaction took records that one may have read before, or not.

        deduped: whether only the first of each key are wanted, where the output says so.
        """
        plan = self._made_by(name, epochs[0])
        steps = [step for step in plan.steps if deduped or not isinstance(step, Dedupe)]
        upstream, batches = self._upstreams[plan.source], list[pa.RecordBatch]()
        schema = _taken_on(upstream.schema, self._ledger.taken_on(plan.source))
        for place, lower, upper, epoch in self._ranges(plan.source, epochs, whole=whole):
            if upstream.blurred(place, lower, upper):
                return None
            if plan.channel == "errors":
                batches += self._bad_rows(plan.source, place, upstream.bad(place, lower, upper), whole=whole)
            else:
                names = self._ledger.columns(plan.source, epoch)
                batches += [_having(batch, names, schema) for batch in upstream.rows(place, lower, upper)]
        rows: Counter[str] = Counter()
        given = [batch for found in batches if (batch := of_channel(found, plan.channel)) is not None]
        if given:
            columns = columns_of(schema, plan.channel)
            functions, made = without_spark(steps, columns, output=name)
            together = conform(pa.concat_batches(given), columns)
            for batch in apply(functions, together, made, output=name, epoch=epochs[0]):
                rows.update(map(shown, batch.to_pylist()))
        return rows

    def _bad_rows(self, source: str, place: str, found: Sequence[BadRecord], *, whole: bool) -> list[pa.RecordBatch]:
        """Return the rows of bad records. whole: also of those that somebody skipped."""
        rows = [
            {"source": source, **asdict(record)}
            for record in found
            if whole or (source, place, record.position) not in self._skipped
        ]
        return [pa.RecordBatch.from_pylist(rows, schema=BAD_RECORDS)] if rows else []


def _taken_on(schema: pa.Schema, names: Collection[str] | None) -> pa.Schema:
    """Return columns, of several streams without those of one that are not among these; None for all."""
    if names is None:
        return schema
    found = []
    for one in schema:
        if pa.types.is_struct(one.type) and one.name in names:
            one = one.with_type(pa.struct([each for each in one.type if f"{one.name}.{each.name}" in names]))
        found.append(one)
    return pa.schema(found)


def _having(batch: pa.RecordBatch, names: Collection[str] | None, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in some columns, with null in all but those that are named; None for all."""
    if names is None:
        return batch
    kept = [name for name in batch.schema.names if name in names]
    there = [_within(batch[name], schema.field(name), names) for name in kept]
    return filled(pa.RecordBatch.from_arrays(there, kept), schema)


def _within(column: Any, to: Any, names: Collection[str]) -> Any:
    """Return a column as one of another type, of structs with null in all columns but those that are named."""
    if not pa.types.is_struct(to.type):
        return column
    parts = [
        column.field(one.name) if f"{to.name}.{one.name}" in names else pa.nulls(len(column), one.type)
        for one in to.type
    ]
    return pa.StructArray.from_arrays(parts, fields=list(to.type), mask=column.is_null())


def unlike(found: Counter[str], *, least: Counter[str], most: Counter[str]) -> str:
    """Return in words which rows are missing, and which are too many; nothing if all is well."""
    if least <= found <= most:
        return ""
    return f"{listed('missing', least - found)}; {listed('too many', found - most)}"
