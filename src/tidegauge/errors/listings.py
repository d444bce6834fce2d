"""TG-0386, TG-0398, TG-0399, TG-0545: files and objects that are listed, and read later."""

from __future__ import annotations

from tidegauge.errors.base import Definite, Transient

__all__ = ["ListedFileChanged", "ListedFileGone", "ListedFileOvertaken", "ListingUnordered"]


class ListingUnordered(Definite):
    """A store that lists objects in another order than that of their keys."""

    code = "TG-0386"
    what = "the objects of {place} are listed out of order: {path} came after {before}"
    cause = "a store that does not list by key, such as a directory bucket of S3 Express"
    remedy = "copy the objects to a bucket that is listed in the order of the keys, and give the source a new name"


class ListedFileGone(Definite):
    """A file that was removed between its listing and the reading."""

    code = "TG-0398"
    what = (
        "{path} is gone: it is file {number} of those that source {source!r} has listed, and not in every output yet"
    )
    cause = "it was deleted or moved before every output held its rows; or a disk that is not mounted now"
    remedy = (
        "bring it back, with the time of its last change, and 'tidegauge resume' the source. Or go on without it, "
        "which is then a row of the view gaps: 'tidegauge skip FLOW {source} polls {number} {after}'; or, for all "
        "that is lost so, ListingSource(..., on_data_loss=\"gap\") and 'tidegauge resume'"
    )


class ListedFileChanged(Definite):
    """A file that is another one than was listed under its path."""

    code = "TG-0399"
    what = "{path} was listed as {known}, and is now {found}"
    cause = "a writer that puts new data under an old name, or that goes on with a file after a pause"
    remedy = (
        "give each file a name of its own, and move it into place when it is complete. To read the new file under an "
        'old name beside the rows of before, ListingSource(..., on_change="again"); to leave it unread, '
        "on_change=\"ignore\"; then 'tidegauge resume' the source. If it changed before it was read, its first rows "
        'are lost: go on without them with on_data_loss="gap"'
    )


class ListedFileOvertaken(Transient):
    """A file that changed between the planning of its range and the reading. The range is planned again."""

    code = "TG-0545"
    patient = True
    what = "{path} has changed since its range was planned: {detail}"
    cause = "it was removed or overwritten just now; or a worker does not see the driver's files"
    remedy = (
        "the flow looks for it again by itself; if this goes on, check that every worker has the folder under the "
        "same path"
    )
