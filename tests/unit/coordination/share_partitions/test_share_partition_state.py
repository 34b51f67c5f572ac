"""Which records of a share-partition a member acquires together, depending on how often they were delivered."""

import pytest

from ottla.coordination.share_partitions.settings import SharePartitionSettings
from ottla.coordination.share_partitions.share_partition_state import Acquired, RecordState, SharePartitionState, Span
from ottla.coordination.share_state.state_batches import StateBatch


@pytest.mark.parametrize(
    ("limit", "counts"),
    [
        # From half of the limit on half as many, then a quarter, and so on; for the last time each one alone.
        (10, {0: 32, 4: 32, 5: 16, 6: 8, 7: 4, 8: 2, 9: 1}),
        (5, {2: 32, 3: 16, 4: 1}),
        (3, {1: 32, 2: 1}),
        (2, {0: 32, 1: 32}),
    ],
)
def test_records_that_failed_often_are_delivered_with_fewer_others(limit: int, counts: dict[int, int]) -> None:
    for delivery_count, together in counts.items():
        state = SharePartitionState(
            SharePartitionSettings(delivery_count_limit=limit),
            0,
            [StateBatch(0, 31, RecordState.AVAILABLE, delivery_count)],
        )
        acquired = state.acquire("m", 0, [Span(0, 63)], now_ms=0, max_records=32)
        assert [Acquired(0, together - 1, delivery_count + 1)] == acquired, (limit, delivery_count)
