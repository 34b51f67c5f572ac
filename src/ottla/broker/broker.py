"""The broker: assembles its parts, starts them in order and stops them in the reverse order.

What a part does is in its own module; `parts.py` builds them. `ottla serve` runs a broker, and any program can:
`async with Broker(config) as broker`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from functools import partial
from socket import gethostname
from typing import Final, Self

from ottla.broker.broker_lifecycle import SESSION_SLACK_SECONDS
from ottla.broker.configs.authorizer_config import authorizer_of
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.health import Health
from ottla.broker.metrics import Metrics
from ottla.broker.parts import BrokerParts
from ottla.broker.requests.dispatch import warm_up
from ottla.broker.startup.first_users import add_first_users
from ottla.broker.startup.metadata_recovery import MetadataRecovery, StartStoppedError
from ottla.broker.token_expiry import remove_expired_tokens_forever
from ottla.controller.registration import ensure_cluster_id
from ottla.env.real_disk import RealDisk
from ottla.env.world import World, real_world
from ottla.metadata.features import SUPPORTED_FEATURES, unsupported_levels
from ottla.metadata.image import NO_LEADER, BrokerImage, ClusterImage, ListenerEndpoint
from ottla.metadata.image_follower import ImageFollower
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import MetadataStore
from ottla.model.errors import MisuseError
from ottla.model.ids import BrokerId
from ottla.model.invariants import InvariantViolation
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers
from ottla.security.authorizer import Authorizer
from ottla.security.quotas import Quotas
from ottla.security.scram_argument import ScramUser
from ottla.storage.cleaning.cleaner import Cleaner
from ottla.storage.housekeeping import Housekeeping
from ottla.storage.log_store import OpeningProgress

_LOGGER: Final = logging.getLogger(__name__)

DEFAULT_DATA_DIR: Final = "./ottla-data"
METADATA_FILE: Final = "metadata.db"
_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})
SHUTDOWN_SECONDS: Final = 10.0
"""How long requests that are being served may take to be answered when the broker stops."""


class Broker:
    """One broker. `start`, then it serves until `stop`; or use it as an async context manager.

    `on_progress` is called while many partitions are opened; `http` is the address for metrics and health. `store` has
    the cluster's metadata; without one the broker is a cluster by itself, with a store in its data dir. A store that is
    older than the data raises OlderMetadataError at the start, unless `accept_older_metadata`. Lost metadata is
    recovered from the folders of all brokers, except those in `recover_without`, whose data is lost; `on_waiting` is
    called if the start has to wait for other brokers. `authorizer` decides what clients may do, `quotas` how
    much; by default the config and the cluster's metadata do. `first_users` are created, if they do not exist, before
    the broker listens.
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        world: World | None = None,
        on_progress: Callable[[OpeningProgress], None] = lambda progress: None,
        http: tuple[str, int] | None = None,
        store: MetadataStore | None = None,
        accept_older_metadata: bool = False,
        recover_without: Collection[BrokerId] = (),
        on_waiting: Callable[[], None] = lambda: None,
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
        first_users: Collection[ScramUser] = (),
    ) -> None:
        self.config: Final = config or BrokerConfig.parse()
        """As it was given; dynamic configs are not in it."""
        self.id: Final[BrokerId] = self.config.broker_id
        self.health: Final = Health()
        self._world: Final = world or real_world()
        self._owns_world = world is None
        self.metrics: Final = Metrics(self.id, self._world.clock, self.health)
        self._on_progress = on_progress
        self._http_address = http
        self._store = store
        self._accept_older_metadata = accept_older_metadata
        self._recover_without = recover_without
        self._on_waiting = on_waiting
        self._authorizer: Final[Authorizer] = authorizer or authorizer_of(self.config)
        self._quotas: Final = quotas
        self._first_users = tuple(first_users)
        self._waiting_stopped = asyncio.Event()
        self._endpoints: tuple[ListenerEndpoint, ...] = ()
        self._parts: BrokerParts | None = None
        self._ends = AsyncExitStack()
        """Ends what was started, in the reverse order."""
        self._starts_or_stops: Final = asyncio.Lock()

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Opens everything and serves. If something is wrong, raises and leaves nothing open."""
        async with self._starts_or_stops:
            try:
                await self._start(self._ends)
            except (Exception, asyncio.CancelledError, InvariantViolation) as error:
                try:
                    await self._ends.__aexit__(type(error), error, error.__traceback__)
                except Exception as another:
                    _LOGGER.error("broker %d: startup failed, and so did the cleanup after it: %s", self.id, another)
                raise

    async def stop(self) -> None:
        """Finishes the requests that are being served, closes every log cleanly, and gives the registration back.

        If `start` or another `stop` is under way, waits for its end first. A start that waits for the metadata store or
        for other brokers fails.
        """
        self.stop_waiting()
        async with self._starts_or_stops:
            self.health.is_ready = False
            self._waiting_stopped.clear()
            await self._ends.aclose()

    async def _start(self, ends: AsyncExitStack) -> None:
        world = self._world
        if self._owns_world and isinstance(world.disk, RealDisk):
            ends.callback(world.disk.close)
        if self._http_address is not None:
            # First, so that a long recovery can be watched.
            from ottla.broker.http_endpoint import HttpEndpoint

            http = HttpEndpoint(self.health, self.metrics, world.clock)
            ends.push_async_callback(http.stop)
            await http.start(*self._http_address)
        parts = self._parts = await self._build(ends)
        self.health.watch(parts.health_sources())
        self.metrics.watch(parts.metric_sources())
        ends.push_async_callback(parts.leave_cluster)
        ends.push_async_exit(partial(_close_logs, parts))
        await self._open_logs(parts)
        helper = world.start_helper()
        ends.push_async_callback(helper.close)
        config = parts.configs.current
        cleaner = Cleaner(world.disk, helper, world.clock, config.cleaner(world.random.randbytes(16)))
        housekeeping = Housekeeping(parts.logs, world.disk, world.clock, config.housekeeping, cleaner)
        ends.callback(parts.peers.close)
        ends.push_async_callback(parts.fetchers.close)
        ends.push_async_callback(parts.tasks.close)
        image = parts.metadata.image
        await parts.lost_logs.report(image, parts.controller)
        await parts.assignment.apply(image)
        parts.assignment.note_applied(image.revision)
        ends.push_async_callback(parts.pipeline.close)
        ends.push_async_callback(parts.listeners.close, SHUTDOWN_SECONDS)
        # Before the listeners are closed: members that wait for a rebalance are answered now, not after its timeout.
        ends.push_async_callback(parts.transactions.close)
        ends.push_async_callback(parts.groups.close)
        ends.push_async_callback(parts.shares.close)
        ends.push_async_callback(parts.share_fetching.close)
        ends.push_async_callback(parts.queues.close)
        ends.push_async_callback(parts.schema_ids.close)
        ends.callback(parts.drain)
        # Groups first: transactions that were decided before a crash send their markers as soon as they are loaded.
        parts.groups.on_image(image)
        parts.shares.on_image(image)
        parts.transactions.on_image()
        parts.queues.on_image(image)
        warm_up()
        await self._open_listeners(parts)
        for work in (
            parts.listeners.close_idle_forever(),
            parts.listeners.close_stalled_forever(),
            parts.security.reload_forever(world.clock),
            *parts.security.background_tasks(),
            housekeeping.run(),
            parts.isr_proposals.run(),
            parts.active_controller.run(),
            parts.repairs.run(),
            parts.log_dir_moves.run(),
            parts.assignment.retry_forever(parts.on_served),
        ):
            parts.tasks.run(work)
        if fetches := parts.logins.background_tasks():
            for work in fetches:
                parts.tasks.run(work)
            await parts.tasks.wait_unless_failed(parts.logins.wait_keys())
        if config.delegation_token_secret_key:
            parts.tasks.run(
                remove_expired_tokens_forever(
                    parts.controller,
                    world.clock,
                    parts.image,
                    is_active=lambda: parts.active_controller.is_active,
                    interval_ms=config.delegation_token_expiry_check_interval_ms,
                )
            )
        self.health.is_ready = True
        ends.push_async_callback(self._hand_over, parts)

    async def _build(self, ends: AsyncExitStack) -> BrokerParts:
        """Opens the metadata store, recovers lost metadata, and builds all parts."""
        world, config = self._world, self.config
        data_dirs = list(config.log_dirs) or [DEFAULT_DATA_DIR]
        world.disk.make_dirs(data_dirs[0])
        timers = Timers(world.clock)
        ends.callback(timers.close)
        store = self._store or SqliteStore(f"{data_dirs[0]}/{METADATA_FILE}", world.clock)
        ends.push_async_callback(store.close)
        await self._open_store(store)
        recovery = MetadataRecovery(
            store,
            world.disk,
            world.clock,
            world.random,
            data_dirs=data_dirs,
            broker_id=self.id,
            session_seconds=config.broker_session_timeout_ms / 1000 + SESSION_SLACK_SECONDS,
            accept_older_metadata=self._accept_older_metadata,
            recover_without=self._recover_without,
            on_waiting=self._on_waiting,
            stopped=self._waiting_stopped,
        )
        await recovery.run()
        cluster_id = await ensure_cluster_id(store, world.random)
        await add_first_users(store, self._first_users)
        metadata = ImageFollower(store)
        await metadata.load()
        _check_features(metadata.image)
        return BrokerParts(
            config,
            world,
            store,
            metadata,
            timers,
            self.health,
            self._authorizer,
            self._quotas,
            cluster_id=cluster_id,
            data_dirs=data_dirs,
            shows_metrics=self._http_address is not None,
        )

    async def _open_store(self, store: MetadataStore) -> None:
        opening = asyncio.ensure_future(store.open())
        stopping = asyncio.ensure_future(self._waiting_stopped.wait())
        try:
            await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
                raise StartStoppedError("stopped while connecting to the metadata store")
            await opening
        finally:
            opening.cancel()
            stopping.cancel()

    async def _open_logs(self, parts: BrokerParts) -> None:
        image = parts.metadata.image
        await parts.logs.open(self._on_progress)
        parts.assignment.sort_out_folders(image)
        if parts.logs.has_other_history(image.history):
            # Recovered metadata counts its revisions from the start again, and was recovered from these folders. After
            # a power cut the revision of the earlier history must not come back beside the name of this one.
            parts.logs.note_applied(image.revision, is_synced=True)
        await parts.logs.save_metadata_seen()

    async def _open_listeners(self, parts: BrokerParts) -> None:
        """Registers the broker before its ports open, so that clients find it registered.

        Ports that the system chooses are opened first: their numbers are part of the registration.
        """
        listeners = self.config.listeners
        chosen = {each.name: await parts.open_listener(each) for each in listeners if not each.port}
        # Clients cannot connect to "all interfaces"; they can to the machine's name.
        self._endpoints = tuple(
            ListenerEndpoint(
                each.name,
                each.security_protocol,
                gethostname() if each.advertised.host in _ANY_ADDRESS else each.advertised.host,
                each.advertised.port or each.port or chosen[each.name],
            )
            for each in listeners
            if each.advertised is not None
        )
        await parts.lifecycle.register(
            BrokerImage(
                id=self.id,
                host=self._endpoints[0].host,
                port=self._endpoints[0].port,
                rack=self.config.broker_rack,
                is_intact=parts.logs.is_intact,
                listeners=self._endpoints,
                features=tuple((name, *supported) for name, supported in SUPPORTED_FEATURES.items()),
            )
        )
        await parts.active_controller.stand_for_election()
        parts.tasks.run(parts.metadata.run(parts.apply_image, parts.on_image))
        # From now on: the session may end before the image has the registration.
        parts.tasks.run(
            parts.lifecycle.keep(
                is_intact=lambda: parts.logs.is_intact,
                on_lost=parts.on_registration_lost,
                on_registered=parts.active_controller.on_image,
            )
        )
        await parts.tasks.wait_unless_failed(self._wait_seen(parts))
        # Clients must not see less than was committed before the restart: flush what this broker leads.
        for partition in list(parts.partitions):
            await partition.wait_flushed()
        for each in listeners:
            if each.port:
                await parts.open_listener(each)

    async def _wait_seen(self, parts: BrokerParts) -> None:
        """Waits until the image has this broker and a controller."""
        while not parts.lifecycle.is_seen or self.image.controller == NO_LEADER:
            revision = self.image.revision
            if not parts.active_controller.is_active:
                # The controller that was there before may be gone, and no other broker may stand for election.
                await parts.active_controller.stand_for_election()
            await self.wait_revision(revision + 1)

    async def _hand_over(self, parts: BrokerParts) -> None:
        if parts.lifecycle.is_registered:
            await parts.lifecycle.hand_over(parts.controller, parts.fetchers)

    def stop_waiting(self) -> None:
        """Lets a start raise StartStoppedError if it waits for the metadata store, or for other brokers to recover lost
        metadata."""
        self._waiting_stopped.set()

    async def wait_failure(self) -> BaseException:
        """Returns the error if a background task has failed. The broker must then be stopped; a new one may start."""
        return await self.parts.tasks.wait_failure()

    # State

    @property
    def parts(self) -> BrokerParts:
        """The parts of a broker that was started, to look at. Raises MisuseError before."""
        if self._parts is None:
            raise MisuseError(f"broker {self.id} is not started")
        return self._parts

    @property
    def is_ready(self) -> bool:
        """Whether the broker has started and does not stop."""
        return self.health.is_ready

    @property
    def is_registered(self) -> bool:
        """Whether this broker is registered in its cluster, as far as it knows."""
        return self._parts is not None and self._parts.lifecycle.is_registered

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port of the first listener, as clients are told."""
        return (self._endpoints[0].host, self._endpoints[0].port) if self._endpoints else ("", 0)

    @property
    def endpoints(self) -> tuple[ListenerEndpoint, ...]:
        """The advertised listeners, as clients are told; empty before the start."""
        return self._endpoints

    @property
    def port(self) -> int:
        """The port of the first listener, as clients are told."""
        return self.advertised[1]

    @property
    def image(self) -> ClusterImage:
        """The newest image of the cluster that this broker has applied; empty before the start."""
        return ClusterImage() if self._parts is None else self._parts.metadata.image

    @property
    def partitions(self) -> PartitionTable:
        """The partitions of this broker; none before the start."""
        return PartitionTable() if self._parts is None else self._parts.partitions

    async def wait_revision(self, revision: int) -> None:
        """Returns once the image has this revision."""
        await self.parts.metadata.wait_revision(revision)


def _check_features(image: ClusterImage) -> None:
    unsupported = unsupported_levels(image.features)
    if unsupported:
        raise MisuseError(
            f"this broker cannot join the cluster: {'; '.join(unsupported)}; start a version of Ottla that supports the"
            " cluster's features"
        )


async def _close_logs(parts: BrokerParts, kind: object, error: BaseException | None, trace: object) -> None:
    if isinstance(error, InvariantViolation) or isinstance(parts.tasks.failure, InvariantViolation):
        # Nothing in memory can be trusted, so nothing may be recorded as clean.
        parts.logs.abandon()
    else:
        await parts.logs.close()
