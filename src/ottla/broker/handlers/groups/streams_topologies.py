"""StreamsGroupTopologyDescriptionUpdate (KIP-1331): a member sends the whole processing graph of its application.

The coordinator of the group keeps it for StreamsGroupDescribe, in `ottla.coordination.groups.streams`.
"""

from collections.abc import Iterator
from typing import Final

from kio.static.primitive import i16

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.streams.requests import DescriptionUpdate, DescriptionUpdateResponse
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.protocol.messages import milliseconds
from ottla.protocol.newer_streams_messages import (
    DescribedProcessor,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
)
from ottla.security.resources import Operation, ResourceType

_NODE_TYPES: Final = frozenset({1, 2, 3})
_NODE_SIZE: Final = 64
"""What a node counts besides its texts."""


async def update_topology_description(
    services: Services, context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Keeps the description, if it comes from a member of the group and is for the group's topology."""
    try:
        context.check(Operation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id or not request.member_id:
            raise InvalidRequestError("a group id and a member id must not be empty")
        update = DescriptionUpdate(
            group_id=request.group_id,
            member_id=request.member_id,
            topology_epoch=request.topology_epoch,
            description=request.topology_description,
            size=_checked_size(request.topology_description),
        )
        shard = services.groups.shard_of(update.group_id)
        answer = await shard.ask(lambda _, token: shard.machine.update_topology_description(update, token))
    except OttlaError as error:
        answer = DescriptionUpdateResponse(error=error.code, error_message=str(error))
    return StreamsGroupTopologyDescriptionUpdateResponse(
        throttle_time=milliseconds(0), error_code=i16(answer.error), error_message=answer.error_message
    )


def topics_of_description(description: TopologyDescription) -> set[str]:
    """The topics that a description names."""
    found: set[str] = set()
    for node in _nodes(description):
        found.update(node.source_topics)
        if node.sink_topic is not None:
            found.add(node.sink_topic)
    return found


def _checked_size(description: TopologyDescription) -> int:
    """About what the description takes in memory. Raises InvalidRequestError for a node of an unknown type."""
    size = sum(len(each.subtopology_id) + _NODE_SIZE for each in description.subtopologies)
    for node in _nodes(description):
        if node.node_type not in _NODE_TYPES:
            raise InvalidRequestError(f"node type {node.node_type} does not exist; it must be 1, 2 or 3")
        texts = (node.name, node.sink_topic or "", *node.source_topics, *node.stores, *node.successors)
        size += sum(map(len, texts)) + _NODE_SIZE * len(texts)
    return size


def _nodes(description: TopologyDescription) -> Iterator[DescribedProcessor]:
    for subtopology in description.subtopologies:
        yield from subtopology.nodes
    for store in description.global_stores:
        yield from (store.source, store.processor)
