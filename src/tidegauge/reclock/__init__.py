"""Reclocking: moving ranges, batches and frontiers from a source's clock to the flow's timeline of epochs.

Definition. A source is a collection `S` of records at places `s = (partition, position)`, partially ordered. The
remap table gives each epoch `e` a frontier `R(e)`, and never goes back. The reclocked source is

    T(e) = { s in S : s is not beyond R(e) },    dT(e) = T(e) without T(e - 1).

Range law. Epochs are totally ordered and so is each partition, so `dT(e)` is, partition by partition, the range

    [R(e - 1)[p], R(e)[p]),

and a record is in `dT(e)` iff its position is in that range, iff `epoch_of(s) = e`. So to reclock a source that can
be read by range no record has to be looked at: the ranges between two epochs *are* the work list, and what is read
for one carries one constant epoch.

Coalescing. Ranges of different epochs are disjoint. A job may read many of them at once without changing any record's
epoch; what must never happen is binding anew or cutting an epoch's commit.

Resuming. `inverse(e) = R(e - 1)`, and `epoch_of(s) >= e iff s is beyond inverse(e)`. So `T` before `e` together with
what is read on from `inverse(e)` is the whole, without loss and without duplicates; and what every output holds
durably before `e` is exactly what upstream may be told to forget (law 4).
"""

from tidegauge.reclock.columns import EPOCH, frontier_to_epoch, stamp
from tidegauge.reclock.slices import held, plan_span, resumption, span

__all__ = ["EPOCH", "frontier_to_epoch", "held", "plan_span", "resumption", "span", "stamp"]
