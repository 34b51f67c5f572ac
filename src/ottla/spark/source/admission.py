"""How much a micro-batch reads: from where the last one ended to what there is, within the limits. Pure.

Limits are shared out over the partitions in proportion to what waits in each, as Spark's Kafka connector does, and
every partition that has something gets a little: each batch moves on, whatever gaps there are, so reading ends.
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
        """Whether everything that there is may be read."""
        return self.offsets_max is None and self.bytes_max is None and self.offsets_min is None


def limited_end(
    starts: Offsets, ends: Offsets, limits: Limits, bytes_per_offset: Mapping[TopicPartition, float] | None = None
) -> dict[TopicPartition, int]:
    """The end of a micro-batch: `ends`, or less where the limits say so; for every partition of `ends`."""
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
    """Whether there is too little for a micro-batch, and still time to wait for more."""
    if limits.offsets_min is None or waited_ms >= limits.delay_ms:
        return False
    return sum(max(0, end - starts.get(partition, end)) for partition, end in ends.items()) < limits.offsets_min
