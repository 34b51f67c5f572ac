"""What a page may use of the cluster: the clients of the signed-in user, and the one gate for changes.

`UserClients` belong to a session and live as long as it, or as long as a job that uses them. An `Access` belongs to one
request: the same clients, and what the audit log has to know of the request.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.console.cluster.audit import AuditLog, Outcome
from ottla.console.cluster.jobs import Job, Jobs, Work
from ottla.console.cluster.remembered import Remembered
from ottla.console.cluster.sampler import Sampler
from ottla.console.cluster.scans import Scans
from ottla.console.history.prometheus import Prometheus
from ottla.console.settings import ConsoleSettings
from ottla.model.errors import DeniedError, StorageError

if TYPE_CHECKING:
    from ottla.registry.serde.registry_client import AsyncRegistryClient, RegistryClient
    from ottla.registry.serde.schema_reader import SchemaReader

_CLIENT_ID: Final = "ottla-console"
_REQUEST_TIMEOUT_MS: Final = 10_000
_CONNECT_TIMEOUT_MS: Final = 3_000
_REGISTRY_TIMEOUT_SECONDS: Final = 10.0
ANONYMOUS: Final = "anonymous"


class ReadOnlyError(DeniedError):
    """The console was started with --read-only."""


class UserClients:
    """The clients of one user; they connect when they are used first."""

    def __init__(
        self,
        settings: ConsoleSettings,
        options: Mapping[str, Any],
        registry_login: tuple[str, str] | Callable[[], str] | None,
    ) -> None:
        """`registry_login` is a user and a password, or a function that returns a bearer token."""
        self._options: dict[str, Any] = {
            "bootstrap_servers": settings.bootstrap,
            "client_id": _CLIENT_ID,
            "socket_connection_setup_timeout_ms": _CONNECT_TIMEOUT_MS,
            **options,
        }
        self._settings = settings
        self._registry_login: dict[str, Any] = {}
        if registry_login is not None:
            self._registry_login = {"auth" if isinstance(registry_login, tuple) else "token": registry_login}
        self._admin: AsyncAdmin | None = None
        self._registry: AsyncRegistryClient | None = None
        self._blocking_registry: RegistryClient | None = None
        self._schema_reader: SchemaReader | None = None
        self.ended: Final = asyncio.Event()
        """Set when the session is over: streams of its pages end, while jobs go on."""
        self.streams = 0
        """Streams that are open (`ottla.console.web.events`)."""
        self.scans: Final = Scans()
        self._uses = 1
        self.remembered: Final = Remembered()

    def admin(self) -> AsyncAdmin:
        """The admin that all pages of this user share."""
        if self._admin is None:
            self._admin = AsyncAdmin(request_timeout_ms=_REQUEST_TIMEOUT_MS, **self._options)
        return self._admin

    def consumer(self, *topics: str, **options: Any) -> AsyncConsumer:
        """A new consumer, for `async with`."""
        return AsyncConsumer(*topics, **{**self._options, **options})

    def producer(self, **options: Any) -> AsyncProducer:
        """A new producer, for `async with`."""
        return AsyncProducer(**{**self._options, **options})

    def registry(self) -> "AsyncRegistryClient | None":
        """A client of the registry with this user's login; None if no registry is configured."""
        url = self._settings.registry_url
        if url is None:
            return None
        if self._registry is None:
            from ottla.registry.serde.registry_client import AsyncRegistryClient

            # A page does not wait for a registry that is away: each instance is asked once.
            self._registry = AsyncRegistryClient(
                url, timeout_seconds=_REGISTRY_TIMEOUT_SECONDS, retries=url.count(","), **self._registry_login
            )
        return self._registry

    def schema_reader(self) -> "SchemaReader | None":
        """Reads keys and values by their schemas; None if no registry is configured. It blocks: call it in a thread."""
        registry = self.blocking_registry()
        if registry is None:
            return None
        if self._schema_reader is None:
            from ottla.registry.serde.schema_reader import SchemaReader

            self._schema_reader = SchemaReader(registry)
        return self._schema_reader

    def blocking_registry(self) -> "RegistryClient | None":
        """As `registry`, for serializers. It blocks: call it in a thread."""
        url = self._settings.registry_url
        if url is None:
            return None
        if self._blocking_registry is None:
            from ottla.registry.serde.registry_client import RegistryClient

            self._blocking_registry = RegistryClient(
                url, timeout_seconds=_REGISTRY_TIMEOUT_SECONDS, retries=0, **self._registry_login
            )
        return self._blocking_registry

    def hold(self) -> None:
        """Keeps the clients open until `release`: for a job that outlives the session."""
        self._uses += 1

    def drop(self) -> None:
        """Takes `hold` back: the session still has the clients."""
        self._uses -= 1

    async def release(self) -> None:
        """Closes the clients when the last user of them has released them."""
        self._uses -= 1
        if self._uses:
            return
        self.remembered.close()
        self.scans.close()
        if self._admin is not None:
            await self._admin.close()
        if self._registry is not None:
            await self._registry.close()
        if self._blocking_registry is not None:
            self._blocking_registry.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one request may use."""

    settings: ConsoleSettings
    user: str
    """The signed-in user; "anonymous" without a login."""
    origin: str
    """The address of the browser."""
    clients: UserClients
    audit: AuditLog
    jobs: Jobs
    sampler: Sampler
    prometheus: Prometheus | None = None
    """Where charts get their past from, if one is configured."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Added to the details of each audit entry."""

    @property
    def read_only(self) -> bool:
        """Whether changes are refused; templates leave out their forms then."""
        return self.settings.read_only

    def admin(self) -> AsyncAdmin:
        """The user's admin, shared by all requests: never close it."""
        return self.clients.admin()

    @property
    def cluster(self) -> Cluster:
        """The connections of `admin()`, for functions of `ottla.client.admin`."""
        return self.clients.admin().cluster

    @property
    def scans(self) -> Scans:
        """Where the user's records are looked through."""
        return self.clients.scans

    def consumer(self, *topics: str, **options: Any) -> AsyncConsumer:
        """A new consumer with the user's rights; use it with `async with`."""
        return self.clients.consumer(*topics, **options)

    def producer(self, **options: Any) -> AsyncProducer:
        """A new producer with the user's rights; use it with `async with`, inside `change`."""
        return self.clients.producer(**options)

    def registry(self) -> "AsyncRegistryClient | None":
        """The user's client of the schema registry; None if there is none. Changes pass through `change`."""
        return self.clients.registry()

    def schema_reader(self) -> "SchemaReader | None":
        """Reads keys and values by their schemas; None if no registry is configured. It blocks: call it in a thread."""
        return self.clients.schema_reader()

    @asynccontextmanager
    async def change(self, action: str, target: str, details: Mapping[str, Any] | None = None) -> AsyncIterator[None]:
        """Every change of the cluster happens inside this. `action` is a verb and a noun ("delete topic"), `target` the
        name of the thing; `details` never hold secrets.

        Raises `ReadOnlyError`, and `StorageError` if the audit log cannot be written: nothing is changed then.
        """
        described = {**self.details, **(details or {})}
        about = {"user": self.user, "origin": self.origin, "action": action, "target": target, "details": described}
        if self.read_only:
            await self.audit.begin(**about, outcome=Outcome.REFUSED)  # type: ignore[arg-type]
            raise ReadOnlyError(
                f"cannot {action} {target}: this console is read-only (it was started with --read-only)"
            )
        entry = await self.audit.begin(**about, outcome=Outcome.STARTED)  # type: ignore[arg-type]
        try:
            yield
        except BaseException as error:
            with suppress(StorageError):
                # What the person has to know is why the change failed; the next change is refused.
                await self.audit.end(entry, Outcome.FAILED, str(error) or type(error).__name__)
            raise
        try:
            await self.audit.end(entry, Outcome.DONE)
        except StorageError as error:
            raise StorageError(f"the change was made ({action} {target}), but not recorded as done: {error}") from None

    def start_job(self, kind: str, title: str, work: Work) -> Job:
        """Runs long work in the background with this user's clients, which stay open until it ends."""
        self.clients.hold()

        async def held(job: Job) -> str:
            try:
                return await work(job)
            finally:
                await self.clients.release()

        try:
            return self.jobs.start(kind, title, self.user, held)
        except BaseException:
            self.clients.drop()
            raise
