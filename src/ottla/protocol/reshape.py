"""Messages whose old versions differ in shape, not only in fields: a list of names that became a list of objects.

Covers what matching fields by name (`messages.py`) cannot convert. Each pair of functions takes the message in the
version on the wire and in the newest version, and completes the newest, or the old one, from the other.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final, get_args

from ottla.protocol.apis import ApiKey

Reshape = Callable[[Any, Any], Any]


def _field_names(message: Any) -> set[str]:
    return {field.name for field in fields(message)}


def _delete_topics_up(old: Any, new: Any) -> Any:
    """Names became topics, each with a name or an id."""
    if "topic_names" not in _field_names(old):
        return new
    from kio.schema.delete_topics.v6.request import DeleteTopicState

    return replace(new, topics=tuple(DeleteTopicState(name=name, topic_id=None) for name in old.topic_names))


def _delete_topics_down(old: Any, new: Any) -> Any:
    if "topic_names" not in _field_names(old):
        return old
    return replace(old, topic_names=tuple(topic.name for topic in new.topics))


def _find_coordinator_up(old: Any, new: Any) -> Any:
    """One key became several."""
    return new if "key" not in _field_names(old) else replace(new, coordinator_keys=(old.key,))


def _find_coordinator_down(old: Any, new: Any) -> Any:
    is_same = "key" not in _field_names(old) or not new.coordinator_keys
    return old if is_same else replace(old, key=new.coordinator_keys[0])


def _coordinators_up(old: Any, new: Any) -> Any:
    """One coordinator became several, each with its key and its error."""
    if "coordinators" in _field_names(old):
        return new
    from kio.schema.find_coordinator.v6.response import Coordinator

    return replace(
        new,
        coordinators=(
            Coordinator(
                key="",
                node_id=old.node_id,
                host=old.host,
                port=old.port,
                error_code=old.error_code,
                error_message=getattr(old, "error_message", None),
            ),
        ),
    )


def _coordinators_down(old: Any, new: Any) -> Any:
    if "coordinators" in _field_names(old) or not new.coordinators:
        return old
    names = _field_names(old) & {"node_id", "host", "port", "error_code", "error_message"}
    return replace(old, **{name: getattr(new.coordinators[0], name) for name in names})


def _joined_up(old: Any, new: Any) -> Any:
    return new


def _joined_down(old: Any, new: Any) -> Any:
    """A refused member gets no protocol: null, or an empty name in versions where it is not nullable."""
    may_be_null = "protocol_type" in _field_names(old)
    return old if may_be_null or old.protocol_name is not None else replace(old, protocol_name="")


def _leave_group_up(old: Any, new: Any) -> Any:
    """One member became several."""
    if "member_id" not in _field_names(old):
        return new
    from kio.schema.leave_group.v5.request import MemberIdentity

    return replace(new, members=(MemberIdentity(member_id=old.member_id),))


def _leave_group_down(old: Any, new: Any) -> Any:
    is_same = "member_id" not in _field_names(old) or not new.members
    return old if is_same else replace(old, member_id=new.members[0].member_id)


def _left_group_up(old: Any, new: Any) -> Any:
    return new


def _left_group_down(old: Any, new: Any) -> Any:
    """The only member's error is the request's."""
    if "members" in _field_names(old) or not new.members or new.error_code.value:
        return old
    return replace(old, error_code=new.members[0].error_code)


def _offset_fetch_up(old: Any, new: Any) -> Any:
    """One group became several."""
    if "groups" in _field_names(old):
        return new
    from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup, OffsetFetchRequestTopics

    topics = None
    if old.topics is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in old.topics
        )
    return replace(new, groups=(OffsetFetchRequestGroup(group_id=old.group_id, topics=topics),))


def _offset_fetch_down(old: Any, new: Any) -> Any:
    if "groups" in _field_names(old):
        return old
    if not new.groups:
        return replace(old, topics=())
    group = new.groups[0]
    return replace(old, group_id=group.group_id, topics=_renamed(old, group.topics))


def _fetched_offsets_up(old: Any, new: Any) -> Any:
    """One group became several, each with its error."""
    if "groups" in _field_names(old):
        return new
    from kio.schema.errors import ErrorCode as WireErrorCode
    from kio.schema.offset_fetch.v9.response import (
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartitions,
        OffsetFetchResponseTopics,
    )
    from kio.schema.types import GroupId

    topics = tuple(
        OffsetFetchResponseTopics(
            name=topic.name, partitions=tuple(_as(OffsetFetchResponsePartitions, part) for part in topic.partitions)
        )
        for topic in old.topics
    )
    error = getattr(old, "error_code", WireErrorCode.none)
    return replace(new, groups=(OffsetFetchResponseGroup(group_id=GroupId(""), topics=topics, error_code=error),))


def _fetched_offsets_down(old: Any, new: Any) -> Any:
    if "groups" in _field_names(old) or not new.groups:
        return old
    group = new.groups[0]
    if "error_code" in _field_names(old):
        old = replace(old, error_code=group.error_code)
    return replace(old, topics=_renamed(old, group.topics))


def _add_partitions_up(old: Any, new: Any) -> Any:
    """One transaction became several."""
    if "transactions" in _field_names(old):
        return new
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction

    transaction = AddPartitionsToTxnTransaction(
        transactional_id=old.v3_and_below_transactional_id,
        producer_id=old.v3_and_below_producer_id,
        producer_epoch=old.v3_and_below_producer_epoch,
        topics=tuple(_as(AddPartitionsToTxnTopic, topic) for topic in old.v3_and_below_topics),
    )
    return replace(new, transactions=(transaction,))


def _add_partitions_down(old: Any, new: Any) -> Any:
    if "transactions" in _field_names(old) or not new.transactions:
        return old
    transaction = new.transactions[0]
    topic_class = _element_class(old, "v3_and_below_topics")
    return replace(
        old,
        v3_and_below_transactional_id=transaction.transactional_id,
        v3_and_below_producer_id=transaction.producer_id,
        v3_and_below_producer_epoch=transaction.producer_epoch,
        v3_and_below_topics=tuple(_as(topic_class, topic) for topic in transaction.topics),
    )


def _added_partitions_up(old: Any, new: Any) -> Any:
    """One transaction's outcomes became those of several."""
    if "results_by_transaction" in _field_names(old):
        return new
    from kio.schema.add_partitions_to_txn.v5.response import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResult,
        AddPartitionsToTxnTopicResult,
    )
    from kio.schema.types import TransactionalId

    topics = tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                _as(AddPartitionsToTxnPartitionResult, part) for part in topic.results_by_partition
            ),
        )
        for topic in old.results_by_topic_v3_and_below
    )
    result = AddPartitionsToTxnResult(transactional_id=TransactionalId(""), topic_results=topics)
    return replace(new, results_by_transaction=(result,))


def _added_partitions_down(old: Any, new: Any) -> Any:
    if "results_by_transaction" in _field_names(old) or not new.results_by_transaction:
        return old
    topic_class = _element_class(old, "results_by_topic_v3_and_below")
    part_class = _element_class(topic_class, "results_by_partition")
    topics = tuple(
        topic_class(
            name=topic.name,
            results_by_partition=tuple(_as(part_class, part) for part in topic.results_by_partition),
        )
        for topic in new.results_by_transaction[0].topic_results
    )
    return replace(old, results_by_topic_v3_and_below=topics)


def _update_features_up(old: Any, new: Any) -> Any:
    """A flag that allows downgrades became a type of upgrade; the flag means safe downgrades."""
    if not old.feature_updates or "allow_downgrade" not in _field_names(old.feature_updates[0]):
        return new
    from kio.static.primitive import i8

    updates = zip(old.feature_updates, new.feature_updates, strict=True)
    return replace(
        new,
        feature_updates=tuple(
            replace(after, upgrade_type=i8(2 if before.allow_downgrade else 1)) for before, after in updates
        ),
    )


def _update_features_down(old: Any, new: Any) -> Any:
    if not old.feature_updates or "allow_downgrade" not in _field_names(old.feature_updates[0]):
        return old
    updates = zip(old.feature_updates, new.feature_updates, strict=True)
    return replace(
        old,
        feature_updates=tuple(replace(before, allow_downgrade=after.upgrade_type > 1) for before, after in updates),
    )


def _renamed(message: Any, topics: Any) -> Any:
    """Topics of the newer version as those of the older message, whose classes differ in their names alone."""
    if topics is None:
        return None
    topic_class = _element_class(message, "topics")
    part_class = _element_class(topic_class, "partitions")
    if part_class is None:
        return tuple(_as(topic_class, topic) for topic in topics)
    return tuple(
        topic_class(name=topic.name, partitions=tuple(_as(part_class, part) for part in topic.partitions))
        for topic in topics
    )


def _streams_heartbeat_up(old: Any, new: Any) -> Any:
    """Version 0 has the recovery lag as a number of 32 bits, where 0 stands for none."""
    return new if old.__version__ > 0 else replace(new, acceptable_recovery_lag=-1)


def _streams_heartbeat_down(old: Any, new: Any) -> Any:
    return old if old.__version__ > 0 else replace(old, acceptable_recovery_lag=max(new.acceptable_recovery_lag, 0))


def _element_class(message: Any, name: str) -> Any:
    """The class of an array's elements; None if there is no such field."""
    annotation = next((field.type for field in fields(message) if field.name == name), None)
    while annotation is not None and get_args(annotation):
        annotation = get_args(annotation)[0]
    return annotation


def _as(target: Any, source: Any) -> Any:
    """A message of one class as another with the same fields, or some of them."""
    there = _field_names(source)
    return target(**{field.name: getattr(source, field.name) for field in fields(target) if field.name in there})


REQUESTS: Final[dict[ApiKey, tuple[Reshape, Reshape]]] = {
    ApiKey.DELETE_TOPICS: (_delete_topics_up, _delete_topics_down),
    ApiKey.FIND_COORDINATOR: (_find_coordinator_up, _find_coordinator_down),
    ApiKey.LEAVE_GROUP: (_leave_group_up, _leave_group_down),
    ApiKey.OFFSET_FETCH: (_offset_fetch_up, _offset_fetch_down),
    ApiKey.ADD_PARTITIONS_TO_TXN: (_add_partitions_up, _add_partitions_down),
    ApiKey.UPDATE_FEATURES: (_update_features_up, _update_features_down),
}
"""By API: (old request, new one as far as fields match) → new; (old one as far as fields match, new request) → old."""

RESPONSES: Final[dict[ApiKey, tuple[Reshape, Reshape]]] = {
    ApiKey.FIND_COORDINATOR: (_coordinators_up, _coordinators_down),
    ApiKey.JOIN_GROUP: (_joined_up, _joined_down),
    ApiKey.LEAVE_GROUP: (_left_group_up, _left_group_down),
    ApiKey.OFFSET_FETCH: (_fetched_offsets_up, _fetched_offsets_down),
    ApiKey.ADD_PARTITIONS_TO_TXN: (_added_partitions_up, _added_partitions_down),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (_streams_heartbeat_up, _streams_heartbeat_down),
}
"""The same for responses."""
