"""DescribeGroups, ListGroups and DeleteGroups: groups as people and tools see them."""

from collections.abc import Sequence
from typing import Final

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroup as WireDescribedGroup
from kio.schema.describe_groups.v6.response import DescribedGroupMember, DescribeGroupsResponse
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup as WireListedGroup
from kio.schema.list_groups.v5.response import ListGroupsResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32

from ottla.broker.handlers.long_requests import with_pauses
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.requests import DeleteGroupRequest, DeleteGroupResponse, DescribedGroup, ListedGroup
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotCoordinatorError, OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.protocol.newer_messages import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.security.resources import Operation, ResourceType

_FILTER_WORDS_MAX: Final = 100
"""Of ListGroups, more than there are states and types: each of the coordinator's partitions reads them again."""
_NOT_FOUND_SINCE: Final = 6
"""The version of DescribeGroups that says of a missing group that it is missing, and not only dead."""
_DELETION_ERRORS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.INVALID_GROUP_ID: "the group id is not valid",
}


# DescribeGroups


async def describe_groups(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Each group with its members; one that does not exist is dead."""
    asks = request.include_authorized_operations
    groups = [
        _described(context, _describe(services, context, group_id), asks_operations=asks)
        async for group_id in with_pauses(request.groups)
    ]
    return DescribeGroupsResponse(throttle_time=milliseconds(0), groups=tuple(groups))


def _describe(services: Services, context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        context.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        shard = services.groups.shard_of(group_id)
        shard.check_active()
    except OttlaError as error:
        return DescribedGroup(group_id=group_id, error=error.code, error_message=str(error), state="")
    group = shard.machine.describe_group(group_id)
    if group.error is ErrorCode.GROUP_ID_NOT_FOUND and context.version < _NOT_FOUND_SINCE:
        return DescribedGroup(group_id=group_id, state=group.state)
    return group


def _described(context: RequestContext, group: DescribedGroup, *, asks_operations: bool) -> WireDescribedGroup:
    has_operations = asks_operations and group.error is ErrorCode.NONE
    return WireDescribedGroup(
        error_code=wire_error(group.error),
        error_message=group.error_message,
        group_id=GroupId(group.group_id),
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=i32(context.operations(ResourceType.GROUP, group.group_id, requested=has_operations)),
    )


# ListGroups


def list_groups(services: Services, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """All groups that this broker coordinates, in one of the states and of one of the types that are asked for."""
    listed: list[ListedGroup] = []
    if len(request.states_filter) + len(request.types_filter) > _FILTER_WORDS_MAX:
        return _listed(ErrorCode.INVALID_REQUEST)
    for shard in services.groups.shards():
        try:
            shard.check_active()
        except NotCoordinatorError:
            continue
        except OttlaError as error:
            # A list that lacks groups would be taken for the truth.
            return _listed(error.code)
        listed += shard.machine.list_groups(request.states_filter, request.types_filter)
    if not context.sees_cluster(Operation.DESCRIBE):
        listed = [each for each in listed if context.sees(Operation.DESCRIBE, ResourceType.GROUP, each.group_id)]
    return _listed(ErrorCode.NONE, listed)


def _listed(error: ErrorCode, groups: Sequence[ListedGroup] = ()) -> ListGroupsResponse:
    return ListGroupsResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        groups=tuple(
            WireListedGroup(
                group_id=GroupId(group.group_id),
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in groups
        ),
    )


# DeleteGroups


async def delete_groups(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Deletes groups without members, and their offsets; one that is named twice has one answer."""
    names = dict.fromkeys(request.groups_names)
    results = [await _delete(services, context, group_id) async for group_id in with_pauses(names)]
    return DeleteGroupsResponse(
        throttle_time=milliseconds(0),
        results=tuple(
            DeletableGroupResult(
                group_id=GroupId(each.group_id),
                error_code=wire_error(each.error),
                error_message=why or _DELETION_ERRORS.get(each.error),
            )
            for each, why in results
        ),
    )


async def _delete(services: Services, context: RequestContext, group_id: str) -> tuple[DeleteGroupResponse, str | None]:
    """The outcome, and why the group was refused, if that is known here."""
    asked = DeleteGroupRequest(group_id=group_id)
    try:
        context.check(Operation.DELETE, ResourceType.GROUP, group_id)
        shard = services.groups.shard_of(group_id)
        answer: DeleteGroupResponse = await shard.ask(
            lambda now_ms, token: shard.machine.delete_group(asked, now_ms, token)
        )
    except OttlaError as error:
        return DeleteGroupResponse(group_id=group_id, error=error.code), str(error)
    return answer, None
