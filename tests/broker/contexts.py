"""Request contexts for handlers that are called without the wire."""

from ottla.broker.requests.context import RequestContext
from ottla.security.authorizer import AllowAll, Authorizer
from ottla.security.connection_context import ConnectionContext
from ottla.security.security_protocol import SecurityProtocol


def context_of(
    version: int,
    client_id: str | None = "test",
    address: str = "127.0.0.1:1",
    *,
    listener: str = "PLAINTEXT",
    authorizer: Authorizer | None = None,
) -> RequestContext:
    """A request of this version from a client that may do everything, unless an authorizer says otherwise."""
    connection = ConnectionContext(listener=listener, security_protocol=SecurityProtocol.PLAINTEXT, address=address)
    return RequestContext(version, client_id, connection, authorizer or AllowAll())
