"""SQL that lasts: it gives the same whenever Spark plans it, so a plan of it may stand from job to job.

While Spark plans a query it fixes whatever must not change within that query: the time, the user, the seed of random
numbers, the files of a table in a subquery, the meaning of `CAST('now' AS TIMESTAMP)`. A standing plan would repeat
these in later jobs. So Spark's own analysis of the steps has to show that there is nothing like it:

- The class of every expression is known to depend on its arguments alone (`_LASTING`).
- A text without a column in it that becomes a date or a time begins with a digit, and so do literals of such types,
  which the parser has replaced before the analysis. No special text does (`now`, `today`, ...).

Invariant: an expression that is not known to last does not. So SQL with functions of the user's never lasts.

>>> at = {"class": "org.apache.spark.sql.catalyst.expressions.AttributeReference", "num-children": 0}
>>> md5 = {"class": "org.apache.spark.sql.catalyst.expressions.Md5", "num-children": 1}
>>> now = {"class": "org.apache.spark.sql.catalyst.expressions.CurrentTimestamp", "num-children": 0}
>>> lasting([md5, at]), lasting([md5, now])
(True, False)
>>> [written_out(text) for text in ("DATE '2026-11-27'", "date 'today'", "md5(user) -- DATE")]
[True, False, False]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from tidegauge.engine.spelling import Projection, SparkStep
from tidegauge.job.plan import Filter

__all__ = ["lasting", "lasts", "written_out"]

_PACKAGE: Final = "org.apache.spark.sql.catalyst.expressions."
_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical."
_TYPED: Final = re.compile(r"\b(?:date|time|timestamp\w*)\s*r?['\"](?!\s*\d)", re.IGNORECASE)
_HIDING: Final = ("--", "/*", "${")
"""What may stand in the middle of a literal, or for one: comments, and variables of a session."""
_TIMES: Final = ("date", "time")
"""How the names of types with special texts begin."""
_PARSERS: Final = frozenset({"Cast", "ParseToDate", "ParseToTimestamp", "ToUnixTimestamp", "UnixTimestamp"})
"""What may read a text as a time."""
_VARYING: Final = frozenset({"AttributeReference", "CommonExpressionRef", "NamedLambdaVariable"})
_LASTING: Final = frozenset(
    """
    Alias AttributeReference Cast Literal LambdaFunction NamedLambdaVariable CommonExpressionDef CommonExpressionRef
    With And Or Not EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual Between In InSet
    IsNull IsNotNull IsNaN Coalesce CaseWhen If NullIf Nvl Nvl2 NaNvl NullIfZero ZeroIfNull Greatest Least Add
    Subtract Multiply Divide IntegralDivide Remainder Pmod UnaryMinus UnaryPositive Abs TryAdd TrySubtract
    TryMultiply TryDivide BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseCount BitwiseGet ShiftLeft ShiftRight
    ShiftRightUnsigned Ceil CeilExpressionBuilder Floor Round BRound Rint Signum Sqrt Cbrt Exp Expm1 Log Log10 Log1p
    Log2 Logarithm Pow Sin Cos Tan Cot Sec Csc Asin Acos Atan Atan2 Sinh Cosh Tanh Asinh Acosh Atanh ToDegrees
    ToRadians Hypot Factorial Hex Unhex Bin Conv WidthBucket Upper Lower InitCap Concat ConcatWs Substring
    SubstringIndex Left Right StringTrim StringTrimLeft StringTrimRight StringTrimBoth StringLPad StringRPad
    StringRepeat StringReplace StringTranslate StringSpace StringSplit SplitPart StringInstr StringLocate FindInSet
    Length OctetLength BitLength Reverse Ascii Chr SoundEx Levenshtein Overlay FormatNumber FormatString Contains
    StartsWith EndsWith Like ILike LikeAll LikeAny NotLikeAll NotLikeAny RLike RegExpReplace RegExpExtract
    RegExpExtractAll RegExpCount RegExpInStr RegExpSubStr Base64 UnBase64 Encode Decode StringDecode ToNumber
    TryToNumber ToCharacter Luhncheck Mask ParseUrl TryParseUrl UrlEncode UrlDecode TypeOf Md5 Sha1 Sha2 Crc32
    Murmur3Hash XxHash64 Year Quarter Month DayOfMonth DayOfWeek WeekDay DayOfYear WeekOfYear YearOfWeek Hour Minute
    Second SecondWithFraction Extract DatePart TruncDate TruncTimestamp DateAdd DateSub DateDiff AddMonths
    MonthsBetween LastDay NextDay DateAddInterval TimeAdd TimestampAddInterval TimestampAdd TimestampDiff
    SubtractDates SubtractTimestamps TimestampAddYMInterval DateAddYMInterval MakeDate MakeTimestamp DateFormatClass
    DateFromUnixDate UnixDate UnixSeconds UnixMillis UnixMicros SecondsToTimestamp MillisToTimestamp
    MicrosToTimestamp FromUnixTime ToUTCTimestamp FromUTCTimestamp ConvertTimezone ParseToDate ParseToTimestamp
    ToUnixTimestamp UnixTimestamp GetStructField GetArrayItem GetArrayStructFields GetMapValue ElementAt
    TryElementAt CreateArray CreateMap CreateNamedStruct Size ArraySize ArrayContains ArrayPosition ArrayDistinct
    ArrayExcept ArrayIntersect ArrayUnion ArrayJoin ArrayMax ArrayMin ArrayRemove ArrayRepeat ArrayAppend
    ArrayPrepend ArrayInsert ArrayCompact ArraysOverlap ArraysZip Flatten Slice SortArray ArraySort Get
    ArrayTransform ArrayFilter ArrayExists ArrayForAll ArrayAggregate ZipWith MapKeys MapValues MapEntries MapConcat
    MapFromArrays MapFromEntries MapContainsKey MapFilter TransformKeys TransformValues MapZipWith StringToMap
    GetJsonObject JsonToStructs StructsToJson LengthOfJsonArray JsonObjectKeys CsvToStructs StructsToCsv EulerNumber
    Pi Elt Sentences
    """.split()  # noqa: SIM905 - four hundred quotation marks less
)
"""The classes that give the same for the same arguments, whenever and for whomever they are planned."""


def lasts(frame: Any, steps: Iterable[SparkStep]) -> bool:
    """Whether filters and projections give the same in each job that they are planned for.

    frame: a frame of a classic session after the steps.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    if not all(map(written_out, chain.from_iterable(map(_texts, steps)))):
        return False
    try:
        node, *nodes = json.loads(frame._jdf.queryExecution().analyzed().toJSON())  # noqa: SLF001 - no public way
    except (Py4JError, ValueError):  # it is for debugging, so some version may not tell everything
        return False
    while node["class"] in (_PLANS + "Project", _PLANS + "Filter"):
        if not all(map(lasting, node["projectList"] if "projectList" in node else [node["condition"]])):
            return False
        node, *nodes = nodes
    return bool(node["class"] == _PLANS + "MapInArrow")  # with which the steps begin


def _texts(step: SparkStep) -> Sequence[str]:
    return step.expressions if isinstance(step, Projection) else (step.condition,) if isinstance(step, Filter) else ()


def written_out(text: str) -> bool:
    """Whether each literal of a time in a text begins with a digit, and none can be hidden."""
    return _TYPED.search(text) is None and not any(mark in text for mark in _HIDING)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression. varies: whether there is a column in it. fixed: whether it is a constant that is the
    same time whenever Spark reads it as one."""

    varies: bool
    fixed: bool


def lasting(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an expression gives the same whenever it is planned. nodes: its tree in preorder, as Spark tells it."""
    waiting: list[_Part] = []
    for node in reversed(nodes):
        kind = node["class"].removeprefix(_PACKAGE)
        if kind not in _LASTING:
            return False
        parts = [waiting.pop() for _ in range(node["num-children"])]
        varies = kind in _VARYING or any(part.varies for part in parts)
        if kind == "CommonExpressionDef" and not varies:
            return False  # what refers to it is taken for something that varies
        if not varies and _reads_times(kind, node) and not all(part.fixed for part in parts):
            return False
        waiting.append(_Part(varies, kind == "Literal" and _fixed(node)))
    return True


def _reads_times(kind: str, node: Mapping[str, Any]) -> bool:
    return kind in _PARSERS and str(node.get("dataType", "time")).startswith(_TIMES)


def _fixed(literal: Mapping[str, Any]) -> bool:
    """Whether a literal is no special text."""
    return not str(literal["dataType"]).startswith("string") or str(literal["value"]).lstrip()[:1].isdigit()
