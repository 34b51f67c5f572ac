"""What is known of a client for as long as its connection, or its authentication, lasts."""

from dataclasses import dataclass, field

from ottla.security.principals import ANONYMOUS, Principal
from ottla.security.resources import Operation, ResourceType
from ottla.security.security_protocol import SecurityProtocol


class ClientSoftware:
    """What a client said of itself when it asked for the API versions; `unknown`, as in Kafka, if it did not."""

    __slots__ = ("name", "version")

    def __init__(self) -> None:
        self.name = "unknown"
        self.version = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConnectionContext:
    """One client connection. An authentication replaces it by one with another principal."""

    listener: str
    """The name of the listener that accepted the connection."""
    security_protocol: SecurityProtocol
    address: str
    """The client's address and port."""
    principal: Principal = ANONYMOUS
    is_token_login: bool = False
    """Whether the client logged in with a delegation token."""
    software: ClientSoftware = field(default_factory=ClientSoftware)
    """Shared by all contexts of the connection."""
    decisions: "Decisions" = field(default_factory=lambda: Decisions())


class DeniedNames:
    """The resources of one type on which one operation was denied, until they are logged."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []
        """The names that will be in the log."""


class Decisions:
    """The answers of an authorizer to one principal, kept for the requests that ask the same again and again."""

    __slots__ = ("by_question", "denied", "version")

    def __init__(self) -> None:
        self.version = -1
        """The version of the authorizer that gave these answers."""
        self.by_question: dict[tuple[Operation, ResourceType, str], bool] = {}
        self.denied: dict[tuple[Operation, ResourceType], DeniedNames] = {}
        """What the audit log still lacks of the request that is being served."""
