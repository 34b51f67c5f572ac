"""What a broker says of places in its logs: where partitions end, for whom, and how far a group has come."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.crash.load import LOST
from tests.crash.transaction_client import GROUP_KEY, find_coordinator
from tests.wire.exchange import RawConnection

NEWEST: Final = -1
GROUPS_NAMED: Final = 8
"""The OffsetFetch version from which on it asks for groups, with their topics by name."""
LIST_VERSION: Final = 7
BEGINNING: Final = {ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator}
"""What a coordinator says that has just begun; Kafka's, whose topic has just been made, too."""


def end_offsets(address: str, topic: str, partitions: int, *, is_committed: bool) -> list[int]:
    """Where each partition ends for a reader: at its high watermark, or before the first open transaction."""
    parts = [{"partition_index": index, "timestamp": NEWEST, "current_leader_epoch": -1} for index in range(partitions)]
    topics = [{"name": topic, "partitions": parts}]
    with RawConnection(address) as connection:
        answer = connection.ask(
            ApiKey.LIST_OFFSETS,
            LIST_VERSION,
            {"replica_id": -1, "isolation_level": int(is_committed), "topics": topics},
        )
    found = {part.partition_index: part for each in answer.topics for part in each.partitions}
    assert {ErrorCode.none} == {part.error_code for part in found.values()}
    return [int(found[index].offset) for index in range(partitions)]


def committed_offsets(address: str, group: str, topic: str, partitions: int) -> list[int] | None:
    """How far the group has come in each partition; None while a transaction over it is open, or nobody can say."""
    try:
        answer = fetch_offsets(address, group, topic, range(partitions))
    except LOST:
        return None
    if answer.error_code is not ErrorCode.none:
        return None
    found = {part.partition_index: part for each in answer.topics for part in each.partitions}
    if any(part.error_code is not ErrorCode.none for part in found.values()):
        return None
    return [int(found[index].committed_offset) for index in range(partitions)]


def fetch_offsets(address: str, group: str, topic: str, indexes: Sequence[int], *, is_stable: bool = True) -> Any:
    """The group's part of the answer; unless told otherwise no offset is given while another may replace it."""
    topics = [{"name": topic, "partition_indexes": list(indexes)}]
    values = {"groups": [{"group_id": group, "topics": topics}], "require_stable": is_stable}
    with RawConnection(address) as connection:
        (found,) = connection.ask(ApiKey.OFFSET_FETCH, GROUPS_NAMED, values).groups
    return found


def commit_offsets(address: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Says for a group without members how far it has come."""
    parts = [
        {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": -1}
        for index, offset in offsets.items()
    ]
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": parts}],
    }
    with RawConnection(address) as connection:
        find_coordinator(connection, GROUP_KEY, group)
        while True:
            answer = connection.ask(ApiKey.OFFSET_COMMIT, GROUPS_NAMED, values)
            codes = {part.error_code for each in answer.topics for part in each.partitions}
            if not codes & BEGINNING:
                break
    assert {ErrorCode.none} == codes
