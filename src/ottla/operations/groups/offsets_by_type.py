"""The offsets of a group by its type: committed offsets, or the start offsets of a share group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.client.admin.group_offsets import CommittedOffset, commit_offsets, committed_offsets, delete_offsets
from ottla.client.admin.share_group_requests import (
    SHARE,
    alter_share_group_offsets,
    delete_share_group_offsets,
    share_group_offsets,
)
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition


class WholeTopicsError(InvalidRequestError):
    """The offsets of share groups can only be deleted for whole topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """Where a group is in each partition."""

    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    """As the coordinator counts them, for share groups: records between start and end may be done already."""


async def offsets_of(cluster: Cluster, group_type: str, group_id: str) -> GroupOffsets:
    """All offsets of a group."""
    if group_type != SHARE:
        return GroupOffsets(offsets=await committed_offsets(cluster, group_id))
    found = await share_group_offsets(cluster, group_id)
    return GroupOffsets(
        offsets={
            each: CommittedOffset(offset=place.start_offset, leader_epoch=place.leader_epoch, metadata="")
            for each, place in found.items()
        },
        lags={each: place.lag for each, place in found.items() if place.lag is not None},
    )


async def alter_offsets(
    cluster: Cluster, group_type: str | None, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, AnswerError]:
    """Sets offsets of a group without members; None is the type of a group that does not exist. Returns the errors."""
    if group_type == SHARE:
        return await alter_share_group_offsets(cluster, group_id, offsets)
    return await commit_offsets(cluster, group_id, offsets)


async def remove_offsets(
    cluster: Cluster, group_type: str, group_id: str, choices: Sequence[str], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, AnswerError]:
    """Deletes offsets of a group in the chosen partitions; returns the errors. Raises `WholeTopicsError`."""
    if group_type != SHARE:
        return await delete_offsets(cluster, group_id, partitions)
    some = next((each for each in choices if ":" in each), None)
    if some is not None:
        raise WholeTopicsError(
            f"{some}: the offsets of a share group can only be deleted for whole topics; pass"
            f" --topic {some.partition(':')[0]}"
        )
    refused = await delete_share_group_offsets(cluster, group_id, choices)
    return {each: refused[each.topic] for each in partitions if each.topic in refused}
