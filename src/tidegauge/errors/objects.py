"""TG-058x: object stores.

Trouble with a store is waited for as long as it takes, on the output that writes there alone.

>>> print(BucketMissing(place="s3://lake/orders", bucket="s3://lake"))
TG-0580: the bucket s3://lake of s3://lake/orders is not there
  likely cause: it was removed, its name is misspelt, or AWS_ENDPOINT_URL leads to another store
  what to do:   bring the bucket back, and the output goes on by itself; or start the flow with the right path
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "BucketMissing",
    "ConditionalPutIgnored",
    "CredentialsInAddress",
    "CredentialsRefused",
    "ObjectLibraryMissing",
    "ObjectStoreAway",
]


class BucketMissing(Transient):
    """A bucket that is gone, or was never there."""

    code = "TG-0580"
    patient = True
    what = "the bucket {bucket} of {place} is not there"
    cause = "it was removed, its name is misspelt, or AWS_ENDPOINT_URL leads to another store"
    remedy = "bring the bucket back, and the output goes on by itself; or start the flow with the right path"


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
    cause = "it is down, overloaded or slow, or the network or AWS_ENDPOINT_URL does not lead there"
    remedy = "see that the driver and the tasks reach the store; the output goes on by itself once it answers"


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
    cause = "it is an S3-compatible server that does not know If-None-Match, which commits stand on"
    remedy = "upgrade the server and resume the output, or write the table elsewhere"
