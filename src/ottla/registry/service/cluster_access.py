"""The registry's authorizer: the cluster's users log in, the cluster's ACLs decide.

The registry has no users of its own. Name and password of basic authentication, or a bearer token, are tried at a
broker, with SASL; what a broker accepts is remembered for a short time, by a hash under a key of this process. ACLs of
subjects are ACLs of topics whose names begin with `:subject:`, which no topic's name can, so that Kafka's tools and
rules (prefixes, denials, hosts) apply. They are read from the cluster every few seconds, for which the registry's own
user needs Describe on the cluster.
"""

import asyncio
import hmac
import logging
import secrets
from base64 import b64decode, urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec

from ottla.client.admin.acl_requests import describe_acls
from ottla.client.admin.acls import ACL, ACLFilter, ACLResourceType, ResourcePatternFilter
from ottla.client.network.cluster import Cluster
from ottla.env.ports import Network
from ottla.env.real_network import RealNetwork
from ottla.model.errors import InvalidConfigError, MisuseError, OttlaError
from ottla.registry.service.authorization import Client, Operation
from ottla.registry.service.http_messages import http_error
from ottla.registry.state.errors import RegistryError
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.acls import AclBinding, PatternType, Permission
from ottla.security.connection_context import ConnectionContext
from ottla.security.principals import USER_TYPE, Principal
from ottla.security.resources import Operation as AclOperation
from ottla.security.resources import ResourceType
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection
from ottla.transport.client_security import ClientSecurity, sasl_login

_LOGGER: Final = logging.getLogger(__name__)

SUBJECT_PREFIX: Final = ":subject:"
"""The names of ACLs of subjects begin so."""
ALL_SUBJECTS: Final = f"{SUBJECT_PREFIX}*"
"""Asked for where an operation is about all subjects; an ACL for this prefix, or for all topics, covers it."""
REALM: Final = "ottla"

_OPERATIONS: Final = {
    Operation.SUBJECT_READ: AclOperation.READ,
    Operation.SUBJECT_WRITE: AclOperation.WRITE,
    Operation.SUBJECT_DELETE: AclOperation.DELETE,
    Operation.SUBJECT_COMPATIBILITY_READ: AclOperation.DESCRIBE_CONFIGS,
    Operation.SUBJECT_COMPATIBILITY_WRITE: AclOperation.ALTER_CONFIGS,
}
_REMEMBERED_SECONDS: Final = 60.0
_REMEMBERED_MAX: Final = 10_000
_LOGINS_AT_ONCE_MAX: Final = 8
_LOGINS_WAITING_MAX: Final = 64
_LOGIN_TIMEOUT_MS: Final = 10_000
_REFRESH_SECONDS: Final = 3.0
_STALE_SECONDS: Final = 300.0
"""ACLs that could not be read again for this long are not trusted any more: then only super users are allowed."""
_HEADER_BYTES_MAX: Final = 16 * 1024
_ACLS: Final = ACLFilter(resource_pattern=ResourcePatternFilter(ACLResourceType.TOPIC))


class ClusterAccess:
    """Users and ACLs of a cluster. `security` is how the registry itself connects; it must log in with SASL.

    `mechanism` is the one of basic authentication. `now` is a clock in seconds.
    """

    allows_all: Final = False

    def __init__(
        self,
        addresses: Iterable[Address],
        security: ClientSecurity | None,
        *,
        mechanism: str = "SCRAM-SHA-512",
        super_users: Iterable[str] = (),
        network: Network | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        if security is None or not security.security_protocol.has_login:
            raise InvalidConfigError(
                "the registry checks its clients' passwords at the brokers: connect it with SASL_SSL or SASL_PLAINTEXT"
                " (--command-config)"
            )
        self._addresses = list(addresses)
        self._security = security
        self._mechanism = mechanism
        self._network = network or RealNetwork()
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._acls = AclAuthorizer(super_users=super_users)
        self._acls_read_at: float | None = None
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, tuple[float, str]] = {}
        self._logins = asyncio.Semaphore(_LOGINS_AT_ONCE_MAX)
        self._waiting = 0

    # Who

    async def identify(self, client: Client) -> Client:
        """Raises `RegistryError`: 401 for a client whose password or token no broker accepts, 503 if none answers."""
        header = client.authorization
        if not header or len(header) > _HEADER_BYTES_MAX:
            raise _unknown()
        digest = hmac.digest(self._key, header.encode("latin-1", "replace"), "sha256")
        known = self._remembered.get(digest)
        if known is not None and known[0] > self._now():
            return replace(client, principal=known[1])
        principal = await self._log_in(header)
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[digest] = (self._now() + _REMEMBERED_SECONDS, principal)
        return replace(client, principal=principal)

    async def _log_in(self, header: str) -> str:
        scheme, _, credentials = header.partition(" ")
        match scheme.lower():
            case "basic":
                user, password = _user_and_password(credentials.strip())
                sasl = sasl_login(self._mechanism, username=user, password=password)
            case "bearer":
                token = credentials.strip()
                user = _subject_of(token)
                sasl = sasl_login("OAUTHBEARER", token_provider=lambda: token)
            case _:
                raise _unknown()
        if self._waiting >= _LOGINS_WAITING_MAX:
            raise http_error(503, "too many logins are under way")
        self._waiting += 1
        try:
            async with self._logins:
                await self._ask_brokers(replace(self._security, sasl=sasl))
        finally:
            self._waiting -= 1
        return str(Principal(USER_TYPE, user))

    async def _ask_brokers(self, security: ClientSecurity) -> None:
        problem: OttlaError | None = None
        for address in self._addresses:
            try:
                connection = await Connection.open(
                    self._network,
                    address,
                    client_id="registry-login",
                    timeout_ms=_LOGIN_TIMEOUT_MS,
                    security=security,
                )
                connection.close()
                return
            except (AuthenticationError, MisuseError) as error:
                # MisuseError: a name that the mechanism cannot send.
                _LOGGER.info("a login was refused by %s", address)
                raise _unknown() from error
            except OttlaError as error:
                problem = error
        _LOGGER.warning("no broker can check logins: %s", problem)
        raise http_error(503, "no broker can be reached to check the login") from problem

    # What

    def allows(self, client: Client, operation: Operation, subject: str | None) -> bool:
        """Asks the ACLs of the cluster as they were last read."""
        if operation is Operation.DESCRIBE:
            return True
        is_fresh = self._acls_read_at is not None and self._now() - self._acls_read_at < _STALE_SECONDS
        if not is_fresh and client.principal not in self._acls.super_users:
            return False
        kind, _, name = client.principal.partition(":")
        host = f"[{client.host}]" if ":" in client.host else client.host
        asking = ConnectionContext(
            listener="REGISTRY",
            security_protocol=SecurityProtocol.SASL_PLAINTEXT,
            address=f"{host}:0",
            principal=Principal(kind, name),
        )
        resource = ALL_SUBJECTS if subject is None else f"{SUBJECT_PREFIX}{subject}"
        return self._acls.allows(asking, _OPERATIONS[operation], ResourceType.TOPIC, resource)

    async def read_acls(self, cluster: Cluster) -> None:
        """Reads the ACLs once. Raises an `OttlaError` if that fails."""
        found = await describe_acls(cluster, _ACLS)
        self._acls.apply(frozenset(map(_binding, found)))
        self._acls_read_at = self._now()

    async def read_acls_forever(self, cluster: Cluster) -> None:
        """Reads the ACLs every few seconds, until cancelled."""
        has_failed = False
        while True:
            try:
                await self.read_acls(cluster)
                if has_failed:
                    _LOGGER.info("ACLs can be read again")
                has_failed = False
            except OttlaError as error:
                if not has_failed:
                    _LOGGER.warning(
                        "cannot read the cluster's ACLs: %s; the registry's user needs Describe on the cluster", error
                    )
                has_failed = True
            await asyncio.sleep(_REFRESH_SECONDS)


def _unknown() -> RegistryError:
    return http_error(401, "log in with basic authentication, or with a bearer token")


def _user_and_password(credentials: str) -> tuple[str, str]:
    try:
        text = b64decode(credentials, validate=True).decode()
    except (Base64Error, ValueError):
        raise _unknown() from None
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise _unknown()
    return user, password


def _subject_of(token: str) -> str:
    """The `sub` of a JWT. It is trusted only after a broker has accepted the token."""
    parts = token.split(".")
    try:
        claims: Any = msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        subject = claims["sub"]
    except (ValueError, LookupError, TypeError, msgspec.DecodeError):
        raise _unknown() from None
    if not isinstance(subject, str) or not subject:
        raise _unknown()
    return subject


def _binding(acl: ACL) -> AclBinding:
    pattern = acl.resource_pattern
    return AclBinding(
        resource_type=ResourceType(int(pattern.resource_type)),
        pattern_type=PatternType(int(pattern.pattern_type)),
        name=pattern.resource_name,
        principal=acl.principal,
        host=acl.host,
        operation=AclOperation(int(acl.operation)),
        permission=Permission(int(acl.permission_type)),
    )
