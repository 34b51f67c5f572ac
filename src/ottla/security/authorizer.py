"""The `Authorizer` port, and the authorizer of a cluster without access control."""

from typing import Final, Protocol

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError
from ottla.security.audit import audit
from ottla.security.connection_context import ConnectionContext
from ottla.security.resources import Operation, ResourceType

_DECISIONS_KEPT_MAX: Final = 2000
"""Per connection; for a client that uses more topics, the authorizer is asked again."""
_NAME_LENGTH_KEPT_MAX: Final = 249
"""The longest name of a topic. Clients choose the names that they ask about, up to 32 KiB each: with both limits, the
decisions of a connection take less than a mebibyte."""


class Authorizer(Protocol):
    """Decides what a client may do."""

    @property
    def allows_all(self) -> bool:
        """Whether every operation is allowed: then nothing else needs to be asked."""

    @property
    def version(self) -> int:
        """Grows whenever a decision may have changed."""

    def allows(
        self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> bool:
        """Whether the client may do this to the resource."""

    def allows_any(self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, /) -> bool:
        """Whether the client may do this to at least one resource of the type, existing or not."""


class AllowAll:
    """Allows everything to everyone."""

    allows_all: Final = True
    version: Final = 0

    def allows(
        self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> bool:
        """True."""
        return True

    def allows_any(self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, /) -> bool:
        """True."""
        return True


class TopicAuthorizationError(DeniedError):
    """The client may not do this to the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationError(DeniedError):
    """The client may not do this to the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationError(DeniedError):
    """The client may not do this to the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationError(DeniedError):
    """The client may not do this to the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class DelegationTokenAuthorizationError(DeniedError):
    """The client may not do this to the delegation token, or to the tokens of the user."""

    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class BrokerDeniedError(ClusterAuthorizationError):
    """Another broker does not authorize this one: the configuration of the cluster is not complete."""

    def __init__(self, broker: int) -> None:
        super().__init__(
            f"broker {broker} does not authorize this broker for CLUSTER_ACTION: the user as which brokers connect to "
            "each other must be in super.users of all brokers, or have an ACL that allows CLUSTER_ACTION on the cluster"
        )


_DENIED: Final[dict[ResourceType, type[DeniedError]]] = {
    ResourceType.TOPIC: TopicAuthorizationError,
    ResourceType.GROUP: GroupAuthorizationError,
    ResourceType.CLUSTER: ClusterAuthorizationError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationError,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationError,
    ResourceType.USER: DelegationTokenAuthorizationError,
}


def denied(client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str) -> DeniedError:
    """The error of an operation that is not allowed; its code is the resource type's."""
    kind = resource_type.name.lower().replace("_", " ")
    return _DENIED[resource_type](f"{client.principal} is not authorized for {operation.name} on {kind} {name!r}")


def allows_cached(
    authorizer: Authorizer, client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str
) -> bool:
    """`Authorizer.allows` with the decisions kept on the connection, for Produce and Fetch."""
    if authorizer.allows_all:
        return True
    decisions = client.decisions
    version = authorizer.version
    if decisions.version != version:
        decisions.by_question.clear()
        decisions.version = version
    question = (operation, resource_type, name)
    known = decisions.by_question.get(question)
    if known is None:
        known = authorizer.allows(client, *question)
        audit(client, *question, is_allowed=known)
        if len(name) > _NAME_LENGTH_KEPT_MAX:
            return known
        if len(decisions.by_question) >= _DECISIONS_KEPT_MAX:
            decisions.by_question.clear()
        decisions.by_question[question] = known
    return known
