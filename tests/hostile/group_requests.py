"""What the APIs of groups ask for, so that a spoiled request gets as far as it can."""

from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, Final
from uuid import UUID

from ottla.protocol.apis import ApiKey

SESSION: Final = timedelta(seconds=6)
_COUNTER: Final = count()
REBALANCE: Final = timedelta(milliseconds=200)


def _who(random: Random) -> dict[str, Any]:
    """Somebody in one of a few groups."""
    return {
        "group_id": f"hostile-{random.randrange(4)}",
        "member_id": random.choice(("", "nobody")),
        "generation_id": random.randrange(-1, 3),
        "generation_id_or_member_epoch": random.choice((-1, -1, 0, 1)),
        "group_instance_id": random.choice((None, None, "static")),
    }


def group_values(api_key: ApiKey, topic: str, topic_id: UUID, random: Random) -> dict[str, Any]:
    """A request of any API of groups, with fields of all of them."""
    metadata = b"\0\1\0\0\0\1" + len(topic).to_bytes(2) + topic.encode() + b"\xff\xff\xff\xff\0\0\0\0"
    offsets = [{"partition_index": index, "committed_offset": 4, "committed_metadata": "m"} for index in (0, 1, 9)]
    indexes = [0, 1, 9]
    topics = [{"name": topic, "topic_id": topic_id, "partitions": offsets, "partition_indexes": indexes}]
    who = _who(random)
    if api_key is ApiKey.JOIN_GROUP and not who["member_id"]:
        # A second one would wait for the first to join again, which it never does.
        who["group_id"] = f"joined-{next(_COUNTER)}"
    values = {
        **who,
        "session_timeout": SESSION,
        "rebalance_timeout": REBALANCE,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "protocols": [{"name": "range", "metadata": metadata}, {"name": "other", "metadata": b""}],
        "assignments": [{"member_id": who["member_id"], "assignment": b"\0\0\0\0\0\0"}],
        "members": [who, _who(random)],
        "topics": topics,
        "groups_names": [who["group_id"], "none"],
        "group_ids": [who["group_id"], "none"],
        "states_filter": ["Stable", "Empty"],
        "types_filter": ["classic"],
        "member_epoch": random.randrange(-2, 3),
        "subscribed_topic_names": [topic],
        "subscribed_topic_regex": random.choice((None, "tar.*|x{2,3}")),
        "topic_partitions": [{"topic_id": topic_id, "partitions": [0, 1]}] if random.random() < 0.5 else [],
    }
    groups: dict[ApiKey, Any] = {
        ApiKey.OFFSET_FETCH: [{**who, "topics": topics}, {**who, "topics": None}],
        ApiKey.DESCRIBE_GROUPS: [who["group_id"], "none"],
    }
    return {**values, "groups": groups.get(api_key, [])}


GROUP_APIS: Final = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
)
