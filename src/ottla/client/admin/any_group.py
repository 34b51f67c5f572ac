"""Describes a group of any type: classic, consumer, share or streams."""

from collections.abc import Awaitable, Callable
from typing import Final

from ottla.client.admin.group_requests import GroupDescription, describe_group
from ottla.client.admin.share_group_requests import describe_share_group
from ottla.client.admin.streams_group_requests import describe_streams_group
from ottla.client.errors import AnswerError, UnsupportedByBrokerError
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode

_OTHER_TYPES: Final[tuple[Callable[[Cluster, str], Awaitable[GroupDescription]], ...]] = (
    describe_share_group,
    describe_streams_group,
)
_NOT_THIS_TYPE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


async def describe_any_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """Describes a group. Raises `AnswerError` with GROUP_ID_NOT_FOUND if no group of any type has this id."""
    try:
        return await describe_group(cluster, group_id)
    except AnswerError as error:
        if error.error_code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        missing = error
    for describe in _OTHER_TYPES:
        try:
            return await describe(cluster, group_id)
        except UnsupportedByBrokerError:
            continue
        except AnswerError as error:
            if error.error_code not in _NOT_THIS_TYPE:
                raise
    raise missing
