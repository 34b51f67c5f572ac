"""The registry's authorizer: the cluster's users log in, the cluster's ACLs decide.

The registry has no users of its own. Name and password of basic authentication, or a bearer token, are tried at a
broker, with SASL; clients take turns, and requests with the same login share one try. What a broker accepts is
remembered for a short time, by a hash under a key of this process. ACLs of
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
from typing import Any, Final, NamedTuple

import msgspec

from ottla.client.admin.acl_requests import describe_acls
from ottla.client.admin.acls import ACL, ACLFilter, ACLResourceType, ResourcePatternFilter
from ottla.client.network.cluster import Cluster
from ottla.env.ports import Network
from ottla.env.real_network import RealNetwork
from ottla.model.errors import InvalidConfigError, MisuseError, OttlaError
from ottla.registry.service.authorization import Client, Operation
from ottla.registry.service.http_messages import http_error
from ottla.registry.service.turns import TooManyWaitingError, Turns
from ottla.registry.state.errors import RegistryError
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.acls import AclBinding, PatternType, Permission
from ottla.security.connection_context import ConnectionContext
from ottla.security.principals import USER_TYPE, Principal
from ottla.security.resources import Operation as AclOperation
from ottla.security.resources import ResourceType
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.client import ClientMechanism
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection
from ottla.transport.client_security import ClientSecurity, sasl_login
from ottla.transport.refusal_log import RefusalKind, RefusalLog

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
_LOGINS_PER_ADDRESS_MAX: Final = 16
_LOGINS_WAITING_MAX: Final = 256
_LOGIN_TIMEOUT_MS: Final = 10_000
_REFRESH_SECONDS: Final = 3.0
_STALE_SECONDS: Final = 300.0
"""ACLs that could not be read again for this long are not trusted any more: then only super users are allowed."""
_HEADER_BYTES_MAX: Final = 16 * 1024
_SHOWN_MAX: Final = 200
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
        """Until when an accepted login is trusted, and its principal. Then it is tried again, apart from the addresses:
        wrong passwords do not keep out a client that could log in before, not even one with the same address."""
        self._turns = Turns(
            at_once_max=_LOGINS_AT_ONCE_MAX, waiting_max=_LOGINS_WAITING_MAX, per_client_max=_LOGINS_PER_ADDRESS_MAX
        )
        self._tries: dict[bytes, asyncio.Task[str]] = {}
        self._refusals = RefusalLog(what="request")

    # Who

    async def identify(self, client: Client) -> Client:
        """Raises `RegistryError`: 401 for a client whose password or token no broker accepts, 429 if its address has
        too many logins under way, 503 if no broker answers."""
        header = client.authorization
        if not header:
            raise _unknown()
        digest = hmac.digest(self._key, header.encode("latin-1", "replace"), "sha256")
        known = self._remembered.get(digest)
        if known is not None and known[0] > self._now():
            return replace(client, principal=known[1])
        who = "login"
        try:
            login = self._read(header)
            who = f"login of user {_shown(login.user)}"
            task = self._tries.get(digest)
            if task is None:
                address = client.host if known is None else None
                task = self._tries[digest] = asyncio.create_task(self._try(digest, login, address))
                # If all clients that wait for it have gone away, asyncio would log its error.
                task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
            # Shielded: others may wait for it, too.
            return replace(client, principal=await asyncio.shield(task))
        except (_RefusedLoginError, TooManyWaitingError) as error:
            self._refusals.add(RefusalKind.LOGIN, client.host, client.host, f"{who}: {error}", self._now())
            if isinstance(error, TooManyWaitingError):
                raise http_error(429, f"too many logins: {error}; try again later") from None
            raise _unknown() from None

    def _read(self, header: str) -> "_Login":
        """Raises `_RefusedLoginError`."""
        if len(header) > _HEADER_BYTES_MAX:
            raise _RefusedLoginError(f"its Authorization header has more than {_HEADER_BYTES_MAX} bytes")
        scheme, _, credentials = header.partition(" ")
        match scheme.lower():
            case "basic":
                user, password = _user_and_password(credentials.strip())
                return _Login(user, sasl_login(self._mechanism, username=user, password=password))
            case "bearer":
                token = credentials.strip()
                return _Login(_subject_of(token), sasl_login("OAUTHBEARER", token_provider=lambda: token))
        raise _RefusedLoginError("its Authorization header has neither Basic nor Bearer credentials")

    async def _try(self, digest: bytes, login: "_Login", address: str | None) -> str:
        """The principal, which is remembered."""
        try:
            async with self._turns.of(address):
                await self._ask_brokers(replace(self._security, sasl=login.sasl))
        except _RefusedLoginError:
            self._remembered.pop(digest, None)
            raise
        finally:
            del self._tries[digest]
        principal = str(Principal(USER_TYPE, login.user))
        self._remembered.pop(digest, None)
        if len(self._remembered) >= _REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = (self._now() + _REMEMBERED_SECONDS, principal)
        return principal

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
                raise _RefusedLoginError(f"broker {address}: {_shortened(str(error))}") from error
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
            self._refusals.report_counted(self._now())
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


class _RefusedLoginError(Exception):
    """The message says why, for the log."""


class _Login(NamedTuple):
    user: str
    sasl: Callable[[], ClientMechanism]


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _shown(user: str) -> str:
    """Quoted, so that a name cannot look like a line of the log."""
    return ascii(_shortened(user))


def _user_and_password(credentials: str) -> tuple[str, str]:
    try:
        text = b64decode(credentials, validate=True).decode()
    except (Base64Error, ValueError):
        raise _RefusedLoginError("its Basic credentials are not valid base64 of UTF-8") from None
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise _RefusedLoginError("its Basic credentials lack a name or a password")
    return user, password


def _subject_of(token: str) -> str:
    """The `sub` of a JWT. It is trusted only after a broker has accepted the token."""
    parts = token.split(".")
    try:
        claims: Any = msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        subject = claims["sub"]
    except (ValueError, LookupError, TypeError, msgspec.DecodeError):
        subject = None
    if not isinstance(subject, str) or not subject:
        raise _RefusedLoginError("its bearer token is not a JWT with a sub claim")
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
