"""The planted bugs of share groups, one function each; see `planted.py`."""

import asyncio
from dataclasses import replace
from typing import Any, Final

from ottla.coordination.share_partitions.share_partition import ShareOutcome, SharePartition
from ottla.coordination.share_partitions.share_partition_state import (
    Outlook,
    RecordState,
    Run,
    SharePartitionState,
)
from ottla.coordination.share_state import shard_state
from ottla.sim.mutants.mutant import Mutant, always


def _answered_early(store: Any) -> Any:
    def early(self: SharePartition, persist: Any) -> Any:
        store(self, persist)
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(ShareOutcome())
        return answer

    return early


def _past_acquired(_: Any) -> Any:
    def outlook(self: SharePartitionState, write_ids: Any = ()) -> Outlook:
        return Outlook(self.next_offset, 0)

    return outlook


def _now_and_then_from_zero(outlook: Any) -> Any:
    def older(self: SharePartitionState, write_ids: Any = ()) -> Outlook:
        return Outlook(0, 0) if self._next_id % 2 else outlook(self, write_ids)

    return older


def _updated_to_any(updated: Any) -> Any:
    def back(state: Any, update: Any) -> Any:
        return replace(updated(state, update), start_offset=update.start_offset)

    return back


def _uncounted(load: Any) -> Any:
    def forgetful(self: SharePartitionState, batch: Any) -> None:
        load(self, batch._replace(delivery_count=0))

    return forgetful


def _always_ready(_: Any) -> Any:
    def is_ready(self: Run, now_ms: int) -> bool:
        return self.state in (RecordState.AVAILABLE, RecordState.ACQUIRED) and self.ready_ms <= now_ms

    return is_ready


SHARE_MUTANTS: Final = {
    "share locks never expire": Mutant(
        what="A record stays with a member that does nothing with it.",
        scenario="shares",
        patches=(
            (SharePartitionState, "on_tick", always((None, False))),
            (SharePartitionState, "next_deadline", always(None)),
        ),
    ),
    "share acknowledgements are answered early": Mutant(
        what="A member is told that its acknowledgement is stored before the share coordinator has stored it.",
        scenario="share failover",
        patches=((SharePartition, "_store", _answered_early),),
    ),
    "share start offsets pass acquired records": Mutant(
        what="The start offset that is stored is behind records that members still have.",
        scenario="share failover",
        patches=((SharePartitionState, "outlook", _past_acquired),),
    ),
    "share start offsets go back": Mutant(
        what="A leader stores an older start offset, and the share coordinator takes it.",
        scenario="shares",
        patches=(
            (SharePartitionState, "outlook", _now_and_then_from_zero),
            (shard_state, "_outlook", lambda _: lambda _, change: (change.start_offset, 0)),
            (shard_state, "_updated", _updated_to_any),
        ),
    ),
    "share delivery counts are not loaded": Mutant(
        what="A new leader of a share-partition does not know how often records were delivered.",
        scenario="share failover",
        patches=((SharePartitionState, "_load", _uncounted),),
    ),
    "share locks are ignored": Mutant(
        what="A record that a member has is given to another one, and both may acknowledge it.",
        scenario="shares",
        patches=((Run, "is_ready", _always_ready), (SharePartitionState, "_check_acknowledged", always(None))),
    ),
}
"""By name."""
