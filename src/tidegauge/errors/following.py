"""TG-026x: flows whose sources are another flow's.

>>> print(OwnerNotThere(flow="billing", owner="shop", store="sqlite:////var/shop.db").summary)
flow 'billing' follows flow 'shop', which has not run in the store sqlite:////var/shop.db
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError, Transient

__all__ = [
    "CannotShare",
    "FollowedDiffers",
    "NotAFollower",
    "OwnerCompacted",
    "OwnerDiffers",
    "OwnerLacksSource",
    "OwnerNotThere",
    "OwnerRecreated",
    "OwnerWentBack",
    "SharedBeside",
]


class CannotShare(TidegaugeError):
    """A source of another flow that cannot be shared as it was declared."""

    code = "TG-0260"
    what = "source {source!r} of flow {flow!r} cannot be shared: {why}"
    cause = "two drivers read a shared source, each the ranges that one of them has bound in the store of both"
    remedy = "{remedy}"


class SharedBeside(TidegaugeError):
    """A source beside shared ones that cannot move with them."""

    code = "TG-0261"
    what = "flow {flow!r} cannot have source {source!r} beside {known}: {why}"
    cause = (
        "the epochs of a flow with shared sources are those of their owner, one for one, so whatever it reads has to "
        "be bound by that owner"
    )
    remedy = "declare the source in the owner and share it, too, or put it into a flow of its own"


class OwnerNotThere(Transient):
    """A flow that is to be followed and has never run in the store."""

    code = "TG-0262"
    what = "flow {flow!r} follows flow {owner!r}, which has not run in the store {store}"
    cause = "the owner was not started yet, or it has another name or another store by now"
    remedy = "start the owner first; if it has run, compare its name and its store with what this flow's code says"


class OwnerLacksSource(Transient):
    """A flow that is followed and does not have the source that is shared."""

    code = "TG-0263"
    what = "flow {flow!r} shares source {source!r} of flow {owner!r}, which has run without it. It has: {known}"
    cause = "the source is new in the owner's code, and the owner has not been started since; or it was renamed"
    remedy = "start the owner with the code that this flow shares, and start this flow again"


class OwnerDiffers(TidegaugeError):
    """A shared source that its owner runs with other options than this flow's code has."""

    code = "TG-0264"
    what = "flow {flow!r} reads source {source!r} of flow {owner!r} with other options than the owner: {differences}"
    cause = "the owner was started with newer or older code than this flow"
    remedy = (
        "start the owner with the same code, then this flow. Until then nothing more is bound here, so that no rows "
        "differ from the owner's; the epochs so far stay"
    )


class OwnerRecreated(TidegaugeError):
    """A flow that is followed, and that is another one of the same name by now."""

    code = "TG-0265"
    what = (
        "flow {owner!r} is not the one that flow {flow!r} has followed: that was {known}, and the one in the store "
        "is {found}"
    )
    cause = "the owner was removed from the store and made again, or the store was made again for it alone"
    remedy = (
        "give this flow another name, and other tables, to follow the new owner from its beginning; or bring the old "
        "owner back (tidegauge recover) and start this flow again. Nothing was written"
    )


class OwnerWentBack(TidegaugeError):
    """A flow that is followed and knows fewer epochs than were followed already."""

    code = "TG-0266"
    what = "flow {owner!r} has bound {upper} epochs, and flow {flow!r} has followed {followed}"
    cause = "the owner was recovered from tables that did not hold its newest epochs"
    remedy = (
        "recover the owner from a backup or from tables that hold them, or give this flow another name, and other "
        "tables, to follow it anew. Nothing was written"
    )


class FollowedDiffers(TidegaugeError):
    """An epoch that the owner has bound otherwise than it was followed."""

    code = "TG-0267"
    what = "epoch {epoch} of flow {owner!r} is not what flow {flow!r} has followed: {differences}"
    cause = (
        "the owner was recovered to before this epoch and has bound it again since; or one of the two was restored"
    )
    remedy = (
        "bring back the owner's history of before, or give this flow another name, and other tables, to follow it "
        "anew: the tables of both flows would not agree from epoch {epoch} on. Nothing was written"
    )


class OwnerCompacted(TidegaugeError):
    """An owner that can no longer tell apart epochs which a follower lacks."""

    code = "TG-0268"
    what = (
        "flow {owner!r} can no longer tell apart the epochs before {since}, and flow {flow!r} has followed it up to "
        "epoch {last} only"
    )
    cause = "this flow's hold on the owner was released, and the owner was compacted"
    remedy = (
        "give this flow another name, and other tables: it begins with epoch {since} then, which has everything up "
        "to there"
    )


class NotAFollower(TidegaugeError):
    """A flow that bound its sources itself and is to follow another one from now on."""

    code = "TG-0269"
    what = "flow {flow!r} cannot follow flow {owner!r} with source {source!r}: {before}"
    cause = "its epochs were bound otherwise, so they are not the epochs of that owner"
    remedy = "give this flow another name, and other tables, to follow the owner; or declare the source as before"
