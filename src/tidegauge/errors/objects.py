"""TG-0580 to TG-0594: object stores.

Trouble with a store is waited for as long as it takes, by the source that reads there, or the output that writes
there, alone. Bound bytes of an object are never read from another one: that is definite.

>>> print(BucketMissing(place="s3://lake/orders", bucket="s3://lake"))
TG-0580: the bucket s3://lake of s3://lake/orders is not there
  likely cause: it was removed, its name is misspelt, or AWS_ENDPOINT_URL leads to another store
  what to do:   bring the bucket back, and the flow goes on by itself; or start it with the right path
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "BucketMissing",
    "ConditionalPutIgnored",
    "CredentialsInAddress",
    "CredentialsRefused",
    "MendedOnDisksAlone",
    "ObjectLibraryMissing",
    "ObjectMovedUnclear",
    "ObjectOverwritten",
    "ObjectStoreAway",
    "ObjectsMovedToDisk",
    "UnreadableKey",
]


class BucketMissing(Transient):
    """A bucket that is gone, or was never there."""

    code = "TG-0580"
    patient = True
    what = "the bucket {bucket} of {place} is not there"
    cause = "it was removed, its name is misspelt, or AWS_ENDPOINT_URL leads to another store"
    remedy = "bring the bucket back, and the flow goes on by itself; or start it with the right path"


class CredentialsRefused(Transient):
    """Credentials that are missing, wrong, expired, or not allowed to do this."""

    code = "TG-0581"
    patient = True
    what = "the object store refuses access to {place}: {detail}"
    cause = "the credentials are missing, wrong or expired, or their role may not read, write, list and delete there"
    remedy = (
        "renew what the environment, the profile or the instance's role gives, or grant the role access to the "
        "bucket; variables of the environment are read when the flow starts, so start it again after changing them"
    )


class ObjectStoreAway(Transient):
    """An object store that does not answer, or answers that it cannot serve."""

    code = "TG-0582"
    patient = True
    what = "the object store of {place} does not serve: {detail}"
    cause = "it is down, overloaded or slow, or the network, or the endpoint in the environment, does not lead there"
    remedy = (
        "see that this machine, the driver and the tasks reach the store. A flow that runs goes on by itself once it "
        "answers; give a command again, such as a load, after which nothing was loaded"
    )


class ObjectLibraryMissing(TidegaugeError):
    """The library for object stores is not installed."""

    code = "TG-0583"
    what = "{place} is in an object store, and the library for those is not installed here"
    cause = "the extra [objects] was not asked for"
    remedy = "pip install 'tidegauge[objects]', in the driver's environment and in the tasks'"


class CredentialsInAddress(TidegaugeError):
    """An address with a user, a password or a query, which is not shown."""

    code = "TG-0584"
    what = "the {scheme}:// address holds a user, a password, or a query"
    cause = "credentials were put into the path, which is stored, shown and sent to tasks"
    remedy = (
        "give the bucket and the path alone, and the credentials in the environment, a profile or the instance's role"
    )


class ConditionalPutIgnored(Definite):
    """A store that writes over objects although it was told not to."""

    code = "TG-0585"
    what = "the object store of {place} does not keep an object from being written over: {detail}"
    cause = "it is an S3-compatible server that does not know If-None-Match, which commits and staging stand on"
    remedy = "upgrade the server and resume the output or the source; or write the table, or stage, elsewhere"


class ObjectOverwritten(Definite):
    """An object that another one has taken the place of, under its key."""

    code = "TG-0586"
    what = (
        "{path} was overwritten: {bound} bytes of it are bound, of the object with the ETag {expected}; "
        "now it is one with the ETag {found}"
    )
    cause = "a writer that puts new data under an old key"
    remedy = (
        "put each object under a key of its own; published epochs stay readable. Put the old content back, and "
        "'tidegauge resume' the source; or, to read the new object beside the rows of the old one: "
        "FileSource(..., on_data_loss=\"gap\") and 'tidegauge resume'"
    )


class UnreadableKey(Transient):
    """An object whose key no client can spell, in the way of a listing."""

    code = "TG-0587"
    patient = True
    what = "the objects of {place} cannot be listed: {detail}"
    cause = "somebody put an object there whose key has an empty part, or '.' or '..', between two slashes"
    remedy = "remove or rename that object, and the source goes on by itself; or narrow the source's path"


class ObjectMovedUnclear(Definite):
    """An object at the place of one that was bound in another bucket or folder, which may be the same or not."""

    code = "TG-0588"
    what = (
        "{path} is at the place that {known} had, and has its {size} bytes, but another ETag, {found} and not "
        "{expected}: nobody can tell whether it is the same"
    )
    cause = "the source's path has changed, and the objects were copied in parts of another size, or encrypted anew"
    remedy = (
        "copy them in parts of the same size, or give the source the old path again, and 'tidegauge resume' it. To "
        "read all of them from the start, give the source a new name and its outputs new paths"
    )


class ObjectsMovedToDisk(Definite):
    """A source that was bound in an object store, and is to read files of a disk."""

    code = "TG-0589"
    what = "the source has read objects such as {known}, and its path is now on a disk, {path}"
    cause = "the source's path has changed; which file is which of the objects nobody can tell"
    remedy = (
        "give the source the old path again, and 'tidegauge resume' it; or give it a new name and its outputs new "
        "paths, and it reads every file from the start"
    )


class MendedOnDisksAlone(Definite):
    """A Parquet table in an object store that is to be repaired in place."""

    code = "TG-0594"
    what = "the Parquet table {table} is in an object store, where it is not repaired in place"
    cause = "a repair puts whole commits in the place of others, which takes a rename"
    remedy = "make it anew: 'tidegauge outputs replace FLOW OUTPUT', as far as upstream has its records"
