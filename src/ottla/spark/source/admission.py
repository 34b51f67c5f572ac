"""How much a micro-batch reads: from the end of the last one to the end of the partitions, within the limits. Pure.

A limit is divided over the partitions in proportion to what waits in each, as in Spark's Kafka connector. Every
partition with records gets at least one offset, so that each batch makes progress whatever gaps there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor

from ottla.model.ids import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most offsets and bytes of a micro-batch, and the least offsets with the longest wait for them."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    delay_ms: int = 0

    @property
    def are_none(self) -> bool:
        """Whether there is no limit."""
        return self.offsets_max is None and self.bytes_max is None and self.offsets_min is None


def limited_end(
    starts: Offsets, ends: Offsets, limits: Limits, bytes_per_offset: Mapping[TopicPartition, float] | None = None
) -> dict[TopicPartition, int]:
    """The end of a micro-batch in every partition of `ends`: its end, or less by the limits."""
    found = dict(ends)
    sizes = {each: end - starts[each] for each, end in ends.items() if each in starts and end > starts[each]}
    for partition, share in _shares(sizes, limits.offsets_max).items():
        found[partition] = min(found[partition], starts[partition] + share)
    if limits.bytes_max is not None and bytes_per_offset is not None:
        averages = {each: max(bytes_per_offset.get(each, 0.0), 0.0) for each in sizes}
        weights = {each: size * averages[each] for each, size in sizes.items()}
        total = sum(weights.values())
        if total > limits.bytes_max:
            for partition, weight in weights.items():
                if weight > 0:
                    fitting = floor(limits.bytes_max * (weight / total) / averages[partition])
                    found[partition] = min(found[partition], starts[partition] + max(1, fitting))
    return found


def _shares(sizes: Mapping[TopicPartition, int], most: int | None) -> dict[TopicPartition, int]:
    total = sum(sizes.values())
    if most is None or total <= most:
        return dict(sizes)
    shares = {partition: most * size / total for partition, size in sizes.items()}
    return {partition: ceil(share) if share < 1 else floor(share) for partition, share in shares.items()}


def must_wait(starts: Offsets, ends: Offsets, limits: Limits, waited_ms: float) -> bool:
    """Whether there are too few records for a micro-batch, and the wait for more is not over."""
    if limits.offsets_min is None or waited_ms >= limits.delay_ms:
        return False
    return sum(max(0, end - starts.get(partition, end)) for partition, end in ends.items()) < limits.offsets_min
