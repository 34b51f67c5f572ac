"""A share group over the wire, and a member of it."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.groups import unused_group
from tests.wire.world import batch, create_topic, produce, unused_name

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
SOON = timedelta(milliseconds=200)
LONG = timedelta(seconds=30)


class Member:
    """A member of a share group that has one partition, over one connection."""

    def __init__(self, connection: RawConnection, group_id: str, topic_id: UUID, member_id: str = "m") -> None:
        self.connection = connection
        self.group_id = group_id
        self.topic_id = topic_id
        self.member_id = member_id
        self.epoch = 0

    def _values(self, acknowledged: list[tuple[int, int, list[int]]], **values: Any) -> dict[str, Any]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, types in acknowledged
        ]
        part = {"partition_index": 0, "acknowledgement_batches": batches}
        epoch = values.pop("share_session_epoch", self.epoch)
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": epoch,
            "topics": [{"topic_id": self.topic_id, "partitions": [part]}],
            **values,
        }

    def ask_fetch(self, *acknowledged: tuple[int, int, list[int]], version: int = 2, **values: Any) -> Any:
        # The first fetch loads the share-partition.
        max_wait = SOON if self.epoch else LONG
        wish = {"max_wait": max_wait, "min_bytes": 1, "max_bytes": 1_000_000, "max_records": 100, "batch_size": 100}
        asked = self._values(list(acknowledged), **{"forgotten_topics_data": [], **wish, **values})
        answer = self.connection.ask(ApiKey.SHARE_FETCH, version, asked)
        if answer.error_code is ErrorCode.none:
            self.epoch += 1
        return answer

    def fetch(self, *acknowledged: tuple[int, int, list[int]], **values: Any) -> list[tuple[int, int, int]]:
        """The ranges that were acquired, each with its delivery count."""
        answer = self.ask_fetch(*acknowledged, **values)
        assert ErrorCode.none is answer.error_code, answer.error_message
        parts = [part for topic in answer.responses for part in topic.partitions]
        assert all(part.error_code is ErrorCode.none for part in parts), parts
        assert all(part.acknowledge_error_code == 0 for part in parts), parts
        assert all(bool(part.records) == bool(part.acquired_records) for part in parts)
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for part in parts
            for each in part.acquired_records
        ]

    def ask_acknowledge(self, *acknowledged: tuple[int, int, list[int]], **values: Any) -> Any:
        answer = self.connection.ask(ApiKey.SHARE_ACKNOWLEDGE, 2, self._values(list(acknowledged), **values))
        if answer.error_code is ErrorCode.none:
            self.epoch += 1
        return answer

    def acknowledge(self, *acknowledged: tuple[int, int, list[int]], **values: Any) -> list[ErrorCode]:
        """The request's error, or those of its partitions."""
        answer = self.ask_acknowledge(*acknowledged, **values)
        if answer.error_code is not ErrorCode.none:
            return [answer.error_code]
        return [part.error_code for topic in answer.responses for part in topic.partitions]


def set_configs(connection: RawConnection, group_id: str, **configs: str) -> None:
    """Sets configs of a group; underscores stand for dots."""
    changes = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in configs.items()
    ]
    resource = {"resource_type": 32, "resource_name": group_id, "configs": changes}
    altered = connection.ask_newest(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    assert ErrorCode.none is altered.responses[0].error_code, altered.responses[0].error_message


def set_up(
    connection: RawConnection, records: int = 10, *, name: str | None = None, partitions: int = 1, **configs: str
) -> tuple[str, UUID]:
    """A new topic with this number of batches in each partition, and a share group that starts at the first."""
    name = name or unused_name()
    topic_id = create_topic(connection, name, partitions)
    group_id = unused_group(connection)
    set_configs(connection, group_id, share_auto_offset_reset="earliest", **configs)
    for partition in range(partitions):
        for _ in range(records):
            produce(connection, topic_id, batch(), partition)
    join(connection, group_id, name, partitions)
    return group_id, topic_id


def join(connection: RawConnection, group_id: str, name: str, partitions: int = 1) -> None:
    """A member joins a share group; returns once the group has initialized the topic's partitions."""
    joined = {"group_id": group_id, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": [name]}
    answer = connection.ask_newest(ApiKey.SHARE_GROUP_HEARTBEAT, joined)
    assert ErrorCode.none is answer.error_code, answer.error_message

    def has_all() -> bool:
        parts = answer.assignment.topic_partitions if answer.assignment else ()
        return partitions == sum(len(each.partitions) for each in parts)

    def is_assigned() -> bool:
        nonlocal answer
        beat = {**joined, "member_epoch": answer.member_epoch}
        answer = connection.ask_newest(ApiKey.SHARE_GROUP_HEARTBEAT, beat)
        assert ErrorCode.none is answer.error_code, answer.error_message
        return has_all()

    if not has_all():
        wait_until(is_assigned, "the share coordinator has initialized the partitions")
