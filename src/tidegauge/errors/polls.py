"""TG-038x and TG-039x: sources that are polled: what a poll brings, the log that it is staged in, and HTTP."""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "EtagReused",
    "HttpMissing",
    "HttpRefused",
    "HttpTooLarge",
    "HttpUnlike",
    "HttpUnreachable",
    "KeysUnfit",
    "NotAsked",
    "NotFetched",
    "PagesAstray",
    "PollDamaged",
    "PollFailed",
    "PollGone",
    "PollOverdue",
    "PollUnfit",
    "PollsElsewhere",
    "PollsForgotten",
    "StateCameBack",
    "StateNotKept",
]


class PollFailed(Transient):
    """A user's function that raised."""

    code = "TG-0380"
    what = "source {source!r}: its function raised {error}: {detail}"
    cause = "upstream is away or refuses, or the function has a mistake"
    remedy = (
        "if it is the function's, correct it and start the flow again. Otherwise nothing: it is called again, with "
        "the same state, after a growing delay; what it had fetched before is staged and stays"
    )


class PollOverdue(Transient):
    """A user's function that does not return."""

    code = "TG-0381"
    what = "source {source!r}: its poll has not ended for {seconds} seconds, and its time is {timeout}"
    cause = "a function that waits for upstream without a time limit of its own, or a server that never ends"
    remedy = (
        "give the requests of a function a time limit below timeout=, or raise timeout=. It is not called again "
        "before it returns; if it does, its rows count"
    )


class NotFetched(Transient):
    """A user's function that returned something else than rows with a state."""

    code = "TG-0382"
    what = "source {source!r}: its function returned {problem}"
    cause = "a mistake in the function"
    remedy = (
        "return tg.Fetched(rows, state), with rows as a pyarrow Table, a RecordBatch or a list of dicts. Nothing of "
        "it is staged; the corrected function is called with the same state"
    )


class PollUnfit(Transient):
    """Rows that are not those that were declared."""

    code = "TG-0383"
    what = "source {source!r}: the rows do not fit the declared columns: {problem}"
    cause = "upstream changed its rows, or columns= is not what it has"
    remedy = (
        "convert the rows in the function, or correct columns=. Nothing of the poll is staged; it is tried again "
        "with the same state"
    )


class StateNotKept(Transient):
    """A state that a binding cannot keep."""

    code = "TG-0384"
    what = "source {source!r}: its state cannot be kept: {problem}"
    cause = "a state is written to the store by the type of each value, and never pickled"
    remedy = (
        "return a state of None, bool, int, float, str, bytes, datetime, date, timedelta, list, tuple and dict "
        "alone, below a megabyte"
    )


class StateCameBack(Transient):
    """New rows with the state of before."""

    code = "TG-0385"
    what = "source {source!r}: a poll brought {rows} rows with the state ({kind}) that it began from"
    cause = "the function returns the state that it was given, or upstream does not change its own with its data"
    remedy = (
        "return a state that changes whenever rows come, such as a cursor, a time or a digest of the answer; or, "
        "where upstream gives all rows each time, choose merge='ledger' or merge='snapshot' and return None. "
        "Nothing of the poll is staged"
    )


class PollDamaged(Definite):
    """A file of the log that is not as it was written."""

    code = "TG-0387"
    what = "{path} is not as it was written: {detail}"
    cause = "somebody changed it, or the disk lost what it had promised to keep"
    remedy = "put it back from a backup, then tidegauge resume FLOW SOURCE"


class PollsElsewhere(TidegaugeError):
    """A staging folder that is neither on a file system nor in an object store."""

    code = "TG-0388"
    what = "staging= cannot be at a location {scheme}: polls are staged on a file system or in an object store"
    cause = "an unknown scheme, or an address that went through pathlib, which makes s3:/ of s3://"
    remedy = (
        "pass a path or a file:// URI of a disk that the flow and its tasks see, or a text that begins with s3://, "
        "gs:// or abfss://"
    )


class PollGone(Definite):
    """A poll that is bound, and whose object a store has not any more."""

    code = "TG-0992"
    what = "{path} is gone: it is the last poll of source {source!r} that is bound"
    cause = "a lifecycle rule of the bucket removed it, or somebody did; or staging= leads elsewhere than before"
    remedy = (
        "take the place out of the rule. Put the objects back, such as out of a bucket with versions, then "
        "tidegauge resume FLOW {source}. Where they are gone for good, go on with a new log: tidegauge resume FLOW "
        "{source} --new-incarnation, which asks upstream from its beginning"
    )


class KeysUnfit(Transient):
    """Rows whose keys do not tell them apart."""

    code = "TG-0389"
    what = "source {source!r}: the rows have no sound key {key}: {problem}"
    cause = "upstream gives rows without a key, or two rows of one key in a snapshot"
    remedy = "choose a key that each row has, and no two in a snapshot. Nothing is staged; the poll is tried again"


class HttpMissing(TidegaugeError):
    """The HTTP client is not installed."""

    code = "TG-0390"
    what = "HTTP needs the Python package 'httpx2', which cannot be imported: {detail}"
    cause = "the HTTP client is an extra"
    remedy = "pip install 'tidegauge[http]'"


class HttpRefused(Transient):
    """An answer that is no data."""

    code = "TG-0391"
    what = "source {source!r}: {url} answers {status} {reason}"
    cause = (
        "the server is busy or refuses: 401 and 403 a login, 404 and 410 an address, 429 and 503 too many requests"
    )
    remedy = (
        "for a login or an address, correct the source and start the flow again. Otherwise nothing: it is asked "
        "again after a growing delay, and not before the server's Retry-After ({retry_after} seconds)"
    )

    @property
    def retry_after(self) -> float:
        """The seconds that the server asks for."""
        return float(self.evidence["retry_after"])


class HttpUnlike(Transient):
    """A body that is not of the declared format."""

    code = "TG-0392"
    what = "source {source!r}: the answer of {url} cannot be read as {format}: {problem}"
    cause = "a page for people in the place of data, such as a login, or an upstream that changed its format"
    remedy = "look at what the address answers, and correct format=, rows= or the address. Nothing of it is staged"


class HttpTooLarge(Transient):
    """A body beyond the bound."""

    code = "TG-0393"
    what = "source {source!r}: the answer of {url} has more than {limit} bytes"
    cause = "more data than was expected, or an answer without end"
    remedy = "raise max_bytes= if that is right: an answer is held in the driver's memory. Or ask for less at a time"


class HttpUnreachable(Transient):
    """A connection that failed, or an answer that did not come whole in time."""

    code = "TG-0394"
    patient = True
    what = "source {source!r}: {url} did not answer: {error}: {detail}"
    cause = "the server or the network is away or slow, an answer was cut off, or redirects lead in a circle"
    remedy = "nothing, if it passes; it is asked again after a growing delay. For slow answers raise timeout="


class EtagReused(Transient):
    """An ETag that came back with another body."""

    code = "TG-0395"
    what = "source {source!r}: {url} answers with another body under the same ETag"
    cause = "the server does not change the ETag with the data, so it may say that nothing changed where it did"
    remedy = "tell its operators; or choose conditional=False, with which bodies are compared and ETags are not used"


class PollsForgotten(Definite):
    """A log that lacks what a run has to read of it."""

    code = "TG-0547"
    what = "source {source!r}: what begins at {poll} is gone from its log in {folder}, and {why} all of it"
    cause = "somebody, or a tool that clears away old files, has removed it"
    remedy = (
        "put its files back, and tidegauge resume FLOW {source}; or let all rows come anew, as a new incarnation: "
        "tidegauge resume FLOW {source} --new-incarnation"
    )


class NotAsked(Transient):
    """A 304 to a question without a condition."""

    code = "TG-0396"
    what = "source {source!r}: {url} answers 304, and was asked without a condition"
    cause = "a cache in between that answers for others, or a server with a mistake"
    remedy = "nothing, if it passes; otherwise tell the operators of the server or cache"


class PagesAstray(Transient):
    """Pages that do not end, or lead elsewhere."""

    code = "TG-0397"
    what = "source {source!r}: the pages of {url} {problem}"
    cause = "a server with a mistake, or an address that was taken over"
    remedy = "look at the Link header or the cursor of its answers. Nothing of them is staged"
