"""TG-0270 to TG-0279, and TG-0448: sources, outputs and tables whose columns were changed.

>>> print(NotEvolving.code, NotEvolving.__doc__)
TG-0271 An output that is to take on columns, and whose sink cannot.
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError

__all__ = ["ColumnsRefused", "NotEvolving", "SharedColumnsRefused", "SourceColumnsRefused"]


class SourceColumnsRefused(TidegaugeError):
    """Columns of a source that were declared anew, and that do not take effect."""

    code = "TG-0270"
    what = (
        "source {source!r} is declared with other columns than it has, and they do not take effect: {why}. It has "
        "({before}); declared are ({now}): {differences}"
    )
    cause = "the declared columns were edited by more than the outputs of the source allow"
    remedy = (
        "declare the columns as before; or let each output that gets them take them on: flow.sink(..., "
        "schema='add'), or 'evolve' for columns that go or get a wider type; or give the source a new name. "
        "Nothing was begun"
    )


class NotEvolving(TidegaugeError):
    """An output that is to take on columns, and whose sink cannot."""

    code = "TG-0271"
    what = "output {output!r} has schema={how!r}, and {sink} cannot give its table columns"
    cause = "a sink of your own whose table has columns, and neither evolve() nor lacking()"
    remedy = (
        "leave schema= out, so that a change of its columns is refused; or give the table these two methods: see "
        "tidegauge.sinks.evolving.Evolving. Nothing was begun"
    )


class SharedColumnsRefused(TidegaugeError):
    """A shared source whose owner has other columns by now, which an output here is not to take on."""

    code = "TG-0272"
    what = (
        "flow {owner!r} has other columns of source {source!r} from epoch {epoch} on, and output {output!r} has "
        "schema={how!r}: {detail}. Its rows had ({before}); they would have ({now})"
    )
    cause = "the flow that owns the source took columns on, by its code or because records have them"
    remedy = (
        "let the output take them on: flow.sink(..., schema='add'), or 'evolve'; or drop the output, and declare it "
        "anew with a select() of the columns that it is to have. No row of that epoch was written"
    )


class ColumnsRefused(Definite):
    """Rows with columns that a table does not take on, though its output may add some."""

    code = "TG-0448"
    what = (
        "the table {table} does not take on the columns of output {output!r} by schema={how!r}: {detail}. The table "
        "has ({held}); the rows have ({given})"
    )
    cause = "a step, or the columns of the source, were changed by more than schema={how!r} allows"
    remedy = (
        "give the rows the columns of the table again (select, cast) and new ones under new names; or "
        "schema='evolve', which leaves columns null that the rows no longer have; or have the table made again with "
        "the new columns: 'tidegauge outputs replace'"
    )
