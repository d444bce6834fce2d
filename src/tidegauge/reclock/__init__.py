"""Reclocking: moving ranges, batches and frontiers from a source's clock to the flow's timeline of epochs.

Definition. A source `S` is a collection of records, each at a time `s` of the source's own (FromTime), partially
ordered, with a least one. A time is *beyond* a frontier when some element of the frontier is at or before it; and of
two frontiers, `A <= B` iff whatever is beyond `B` is beyond `A`. The remap table gives each epoch `e` (IntoTime) a
frontier `R(e)`. The reclocked source is

    T(e) = { s in S : s is not beyond R(e) },

and the one demand on `R` is that it never goes back: `d <= e` implies `R(d) <= R(e)`.

Simplifying assumption. Epochs are the integers from 0 up. So an epoch has one epoch before it, and its own content is

    dT(e) = T(e) without T(e - 1) = { s in S : s is beyond R(e - 1), and not beyond R(e) },

where `R(-1)` is the frontier at the least time, beyond which everything is: before the first binding nothing is in
(law 7). Were epochs partially ordered, a record could enter at several epochs that do not compare, and no row could
carry the number of its epoch.

Unique mapping. A record is in `dT(e)` for at most one `e`. For let `s` be in `T(d)`, and `d <= e`. If `s` were beyond
`R(e)`, it would be beyond `R(d)`, which is at or before it; but it is not. So `s` is in `T(e)`: once in, always in.
The epochs that have `s` are thus none, or all from a least one on, and `s` is in `dT(e)` iff `e` is that least one:

    epoch_of(s) = min { e : s is not beyond R(e) }.

It follows that the epoch of a record depends on `R` alone, which is durable, and on nothing that happened on the way:
no batch size, retry or restart (law 1); that a record can be forgotten as soon as it is sent, for no later binding
says anything of it; and that records at one time are in one epoch, so a transaction at one time is never torn apart.

The top. Nothing is beyond the empty frontier, so it is the greatest, and with it everything is in (law 5). `Frontier`
has it as `sealed`.

Partitions. The times of a source with partitions are `(p, n)`, and only those of one partition compare. A frontier is
one next position for each partition, 0 where it names none; `(p, n)` is beyond it iff `n` is at or beyond that.

Range law. Each partition is totally ordered, so `dT(e)` is, partition by partition, the range

    [R(e - 1)[p], R(e)[p]),

and a record is in `dT(e)` iff its position is in that range, iff `epoch_of(s) = e`. So to reclock a source that can
be read by range no record has to be looked at: the ranges between two epochs *are* the work list, and what is read
for one carries one constant epoch.

Pushed records. What cannot be asked for by range is cut as it comes, by one search for each batch and partition among
the bounds of these ranges; `stream` has the operator, and says why its frontier is right. Both forms give the same.

Coalescing. Ranges of different epochs are disjoint. A job may read many of them at once without changing any record's
epoch; what must never happen is binding anew or cutting an epoch's commit.

Compaction. If all epochs before `since` count as `since`, a record's epoch becomes `max(epoch_of(s), since)`: the
same whether the bindings are compacted or the records reclocked by them.

Resuming. `inverse(e) = R(e - 1)`, and `epoch_of(s) >= e iff s is beyond inverse(e)`. So `T` before `e` together with
the records from `inverse(e)` on is the whole, without loss and without duplicates; and the records that every output
holds durably before `e` are exactly those that upstream may be told to forget (law 4).
"""

from typing import TYPE_CHECKING

from tidegauge.lazy import names

if TYPE_CHECKING:
    from tidegauge.reclock.columns import EPOCH as EPOCH
    from tidegauge.reclock.columns import epochs_of as epochs_of
    from tidegauge.reclock.columns import frontier_to_epoch as frontier_to_epoch
    from tidegauge.reclock.columns import pieces as pieces
    from tidegauge.reclock.columns import stamp as stamp
    from tidegauge.reclock.slices import as_of as as_of
    from tidegauge.reclock.slices import begins as begins
    from tidegauge.reclock.slices import held as held
    from tidegauge.reclock.slices import resumption as resumption
    from tidegauge.reclock.slices import span as span
    from tidegauge.reclock.slices import walk as walk
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "columns": "EPOCH epochs_of frontier_to_epoch pieces stamp",
            "slices": "as_of begins held resumption span walk",
        },
    )
