"""Up to which offset the letters of a dead-letter topic are deleted."""

from ottla.client.admin.group_offsets import committed_offsets
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import list_offsets
from ottla.operations.dead_letters.letters import Bounds, bounds_of
from ottla.operations.dead_letters.redrive import redrive_group


async def purge_points(cluster: Cluster, topic: str, *, redriven: bool, until_ms: int | None) -> Bounds:
    """The first offset of each partition, and the one that becomes the first.

    With `redriven` that is the first letter that was not redriven, with `until_ms` the first from that time on, else
    the end of the partition.
    """
    bounds = await bounds_of(cluster, topic)
    if redriven:
        committed = await committed_offsets(cluster, redrive_group(topic))
        wanted = {each: committed[each].offset if each in committed else 0 for each in bounds}
    elif until_ms is not None:
        found = await list_offsets(cluster, dict.fromkeys(bounds, until_ms))
        wanted = {each: found[each].offset if found[each].offset >= 0 else end for each, (_, end) in bounds.items()}
    else:
        wanted = {each: end for each, (_, end) in bounds.items()}
    return {each: (start, max(start, min(wanted[each], end))) for each, (start, end) in bounds.items()}
