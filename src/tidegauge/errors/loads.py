"""TG-0679, TG-0689, TG-0694 to TG-0699, TG-0975, TG-0977, TG-0978: loads of files into a flow, once.

After each of them nothing was loaded, but for TG-0977, after which nobody knows.
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError, Transient

__all__ = [
    "FileChangedMeanwhile",
    "FileNotLoadable",
    "LoadForgotten",
    "LoadInDoubt",
    "LoadNotStaged",
    "LoadedAlready",
    "LoadsNotTaken",
    "NoSuchColumns",
    "NothingToLoad",
    "UrlGivesNoData",
    "ValuesInFolders",
]


class FileChangedMeanwhile(TidegaugeError):
    """A file that is not the one any more that was found."""

    code = "TG-0679"
    what = "nothing was loaded: {path} has changed since it was found, {detail}"
    cause = "somebody writes, moves or removes it"
    remedy = "load once it is written to its end"


class LoadForgotten(TidegaugeError):
    """A source whose folder does not say any more which files were loaded."""

    code = "TG-0975"
    what = "nothing was loaded: {path} is gone, which named the {inputs} files of a load that the flow has read"
    cause = "somebody has removed the load, or the folder of the source was put back to an older copy"
    remedy = (
        "put the file back: without it nobody can tell whether files of that load are among those that you load now. "
        "If it is gone for good and they are others, write [] into it"
    )


class LoadInDoubt(Transient):
    """A load whose last request to an object store had no answer."""

    code = "TG-0977"
    what = "nobody knows whether {load} is loaded: {place} did not answer the request that makes it a load: {detail}"
    cause = "the object store, or the network to it, went away in that moment"
    remedy = "load the same again once the store answers: files that are loaded already are refused then (TG-0695)"


class LoadNotStaged(Transient):
    """A folder that rows cannot be staged in."""

    code = "TG-0689"
    what = "nothing was loaded: the rows cannot be staged in {folder}: {detail}"
    cause = "the disk is full, the folder may not be written, or it is not mounted on this machine"
    remedy = "make room, or load on a machine that has the folder of the source, as the flow's driver has it"


class LoadsNotTaken(TidegaugeError):
    """An output whose rows come from no source that takes loads, or from several."""

    code = "TG-0694"
    what = "nothing was loaded: output {output!r} takes no loads: {detail}"
    cause = "a load goes into a BatchSource, its place in the flow; other sources have rows of upstream alone"
    remedy = (
        "declare history = flow.source('history', tg.BatchSource('a folder', columns='...')), and an output of a new "
        "name and path from flow.source('all', tg.union(history, ...)), which begins with the past of the sources "
        "that it unites; or let a FileSource find the files. See the how-to 'Load history once'"
    )


class LoadedAlready(TidegaugeError):
    """Files that were loaded before."""

    code = "TG-0695"
    what = "nothing was loaded: {count} of the {files} files have been loaded by {load} already, {path} first"
    cause = "the same load was started again, or a pattern names files of an earlier load, too"
    remedy = "nothing, if all is in; otherwise name the files that are new. Files with new content count as new"


class NothingToLoad(TidegaugeError):
    """Addresses that name no file, or files without a row."""

    code = "TG-0696"
    what = "nothing was loaded: {detail}"
    cause = "the pattern is misspelt, or its files are somewhere else, or empty"
    remedy = "give the path of a file, a pattern such as 'history/*.parquet', or an https:// URL of one file"


class FileNotLoadable(TidegaugeError):
    """A file that cannot be read to its end."""

    code = "TG-0697"
    what = "nothing was loaded: {path} cannot be read: {detail}"
    cause = "the file is damaged, of another format, or has a record or a column that does not fit the declared ones"
    remedy = "mend the file or leave it out, or declare other columns; then load again"


class UrlGivesNoData(Transient):
    """A URL that does not answer with a file."""

    code = "TG-0698"
    what = "nothing was loaded: {address} gives no data: {detail}"
    cause = "the address is wrong or wants a login, or the server or the network is in trouble"
    remedy = "look at the address with curl -I; then load again, which does no harm"


class NoSuchColumns(TidegaugeError):
    """A file whose rows have a value in none of the columns."""

    code = "TG-0699"
    what = "nothing was loaded: {path} has {rows} rows with no value in any of the columns {columns}"
    cause = "its columns have other names, or it is another file than you think: columns are found by name"
    remedy = "declare the columns as the file has them, or name the right file"


class ValuesInFolders(TidegaugeError):
    """A file that lacks a column whose value the name of its folder has."""

    code = "TG-0978"
    what = "nothing was loaded: {path} has {rows} rows without a value of {column}, which the name of a folder has"
    cause = "a table was written in partitions, as Spark's partitionBy does: such a column is in no file"
    remedy = (
        "read the table with the tool that wrote it, write the files with the column, and load those; or leave the "
        "column out of those of the source"
    )
