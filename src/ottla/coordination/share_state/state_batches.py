"""State batches of a share-partition: ranges of offsets with a delivery state and a delivery count.

Pure. Batches that are written later may overlap those before; `combined` makes them disjoint again. Of two states of an
offset the one with the higher delivery count is the later one, and with equal counts the higher state.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple


class StateBatch(NamedTuple):
    """A range of offsets, both ends included, in one delivery state: 0 available, 2 acknowledged, 3 archiving, or 4
    archived."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches from the start offset on (-1: all), disjoint, ascending, neighbours with an equal state as one."""
    ordered = sorted(
        each._replace(first_offset=max(each.first_offset, start_offset))
        for each in batches
        if each.last_offset >= max(start_offset, each.first_offset)
    )
    found: list[StateBatch] = []
    active: list[tuple[int, int, int]] = []
    """Of the batches that reach the current offset: minus count, minus state, last offset; the first one counts."""
    at = 0
    position = 0
    while at < len(ordered) or active:
        if not active:
            position = ordered[at].first_offset
        while at < len(ordered) and ordered[at].first_offset <= position:
            each = ordered[at]
            heapq.heappush(active, (-each.delivery_count, -each.delivery_state, each.last_offset))
            at += 1
        count, state, last_offset = active[0]
        if last_offset < position:
            heapq.heappop(active)
            continue
        # Up to the next batch, which may have a later state.
        end = last_offset if at == len(ordered) else min(last_offset, ordered[at].first_offset - 1)
        _add(found, StateBatch(position, end, -state, -count))
        position = end + 1
    return tuple(found)


def _add(found: list[StateBatch], batch: StateBatch) -> None:
    if found:
        last = found[-1]
        if last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            found[-1] = last._replace(last_offset=batch.last_offset)
            return
    found.append(batch)
