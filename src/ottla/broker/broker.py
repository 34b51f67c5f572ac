"""The broker: puts the rooms together, starts them in order and ends them in the reverse.

The composition root. Handlers get the broker and find on it what they need; what each part does is in its own room.
`ottla serve` runs one of these, and any program may: `async with Broker(config) as broker`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from ottla.broker.assignment import Assignment
from ottla.broker.configuration import BrokerConfig
from ottla.broker.dispatch import Dispatch, warm_up
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.image_follower import ImageFollower
from ottla.broker.isr_changes import IsrChanges
from ottla.broker.log_repairs import LogRepairs
from ottla.broker.lost_logs import LostLogs
from ottla.broker.markers import Markers
from ottla.broker.membership import Membership
from ottla.broker.metadata_recovery import MetadataRecovery, seen_in
from ottla.broker.office import Office
from ottla.broker.peers import Peers
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.replication_throttles import ReplicationThrottles
from ottla.broker.topic_settings import TopicSettings, validate_topic_configs
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.broker.transaction_verification import TransactionVerification
from ottla.controller.controller import Controller
from ottla.controller.decisions import TopicDefaults
from ottla.controller.elections_state import TopicRules
from ottla.controller.registration import ensure_cluster_id
from ottla.env.real_disk import RealDisk
from ottla.env.world import World, real_world
from ottla.metadata.image import NO_LEADER, BrokerImage, ClusterImage, TopicImage
from ottla.metadata.sqlite_store import SqliteStore
from ottla.metadata.store import Lease, MetadataStore
from ottla.model.errors import MisuseError, OttlaError, StorageError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.protocol.scan import Endpoint
from ottla.replication.fetch_waiter import FetchWaiter
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers
from ottla.storage.cleaner import Cleaner
from ottla.storage.config import LogConfig
from ottla.storage.housekeeping import Housekeeping
from ottla.storage.ids import parse_id
from ottla.storage.log_store import LogStore, OpeningProgress
from ottla.storage.metadata_seen import MetadataSeen
from ottla.transport.listener import Listener, ListenerLimits
from ottla.transport.turn import Turn

if TYPE_CHECKING:
    from ottla.broker.http_endpoint import HttpEndpoint
    from ottla.broker.replica_fetcher import ReplicaFetchers

_LOGGER: Final = logging.getLogger(__name__)

DEFAULT_DATA_DIR: Final = "./ottla-data"
METADATA_FILE: Final = "metadata.db"
_SETTINGS_KEPT_MAX: Final = 1000
_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})
SESSION_SLACK_SECONDS: Final = 5.0
"""A session that ended is known to have ended so much later, at the latest."""
SHUTDOWN_SECONDS: Final = 10.0
"""How long requests in the works may take to be answered when the broker stops."""


class Broker:
    """One broker. `start`, then it serves until `stop`; or use it as an async context manager.

    `on_progress` hears how far the opening of many partitions has come; `http` is where metrics and health are served.
    `store` has the cluster's metadata; without one the broker is a cluster by itself, with a store in its data dir.
    A store that is older than the data raises OlderMetadataError at the start, unless `accept_older_metadata`. Lost
    metadata is recovered from the folders of all brokers, except those in `recover_without`, whose data is lost;
    `on_waiting` is called if the start has to wait for others.
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
    ) -> None:
        self.static_config: Final = config or BrokerConfig.parse()
        self.config = self.static_config
        self.id: Final[BrokerId] = self.static_config.broker_id
        self.world: Final = world or real_world()
        self._own_disk = self.world.disk if world is None else None
        self.clock: Final = self.world.clock
        self.partitions: Final = PartitionTable(self._is_elsewhere)
        self.waiting_followers: Final[dict[BrokerId, FetchWaiter]] = {}
        """The last fetch of each follower that had to wait; it may be answered by now."""
        self.throttles: Final = ReplicationThrottles(self)
        self.is_ready = False
        self.failed_produces = 0
        """Partitions of Produce requests that were answered with an error."""
        self.failed_fetches = 0
        """The same of Fetch requests."""
        self._on_progress = on_progress
        self._http_address = http
        self._http: HttpEndpoint | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failures: set[str] = set()
        self._settings: dict[tuple[tuple[str, str], ...], TopicSettings] = {}
        self._advertised = ("", 0)
        self._membership: Final = Membership(self)
        self._given_store = store
        self._accept_older_metadata = accept_older_metadata
        self._recover_without = recover_without
        self._on_waiting = on_waiting
        self._waiting_stopped = asyncio.Event()
        self._seen = MetadataSeen(history="", revision=-1)
        self._replica_fetchers: ReplicaFetchers | None = None

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Opens everything and serves; raises with what is wrong, and leaves nothing behind."""
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        try:
            await self._start()
        except BaseException:
            with suppress(OttlaError):
                await self.stop()
            raise

    async def _start(self) -> None:
        if self._http_address is not None:
            # First, so that a long recovery can be watched.
            from ottla.broker.http_endpoint import HttpEndpoint

            self._http = HttpEndpoint(self)
            await self._http.start(*self._http_address)
        config, world = self.static_config, self.world
        data_dirs = list(config.log_dirs) or [DEFAULT_DATA_DIR]
        world.disk.make_dirs(data_dirs[0])
        self.turn = Turn()
        self.timers = Timers(self.clock)
        self.metadata_store = self._given_store or SqliteStore(f"{data_dirs[0]}/{METADATA_FILE}", self.clock)
        await self.metadata_store.open()
        await self._recover_metadata(data_dirs)
        self.cluster_id = await ensure_cluster_id(self.metadata_store, world.random)
        self.assignment = Assignment(self)
        self.repairs = LogRepairs(self, self._membership.has_heard_of)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.peers = Peers(self)
        self.markers = Markers(self)
        self.verification = TransactionVerification(self)
        self._follower = ImageFollower(self.metadata_store, self._apply_image, self._on_image)
        await self._follower.load()
        self._apply_broker_configs(self._follower.image)
        await self._open_logs(data_dirs)
        self.controller = self._make_controller()
        self.lost_logs = LostLogs(self.id, self.store, self.clock)
        await self.lost_logs.report(self._follower.image, self.controller)
        await self.assignment.apply(self._follower.image)
        self.assignment.note_applied(self._follower.image.revision)
        self.isr_changes = IsrChanges(self)
        self.office = Office(self, self._make_controller)
        self.producer_ids = ProducerIds(self.controller.allocate_producer_ids)
        # Groups first: transactions that were decided before a crash send their markers as soon as they are loaded.
        self.groups.on_image(self._follower.image)
        self.transactions.on_image()
        self.fetch_sessions = FetchSessions(world.random, config.max_incremental_fetch_session_cache_slots)
        self.dispatch = Dispatch(self)
        self.listener = Listener(world.network, self.clock, self.turn, self.dispatch.serve, _limits(self.config))
        warm_up()
        await self._open_port()
        self._run(self.listener.close_idle_forever())
        self._run(self.listener.close_stalled_forever())
        self._run(self._housekeeping.run())
        self._run(self.isr_changes.run())
        self._run(self.office.run())
        self._run(self.repairs.run())
        self._run(self.assignment.retry_forever())
        self.is_ready = True

    async def _recover_metadata(self, data_dirs: list[str]) -> None:
        recovery = MetadataRecovery(
            self.metadata_store,
            self.world.disk,
            self.clock,
            self.world.random,
            data_dirs=data_dirs,
            broker_id=self.id,
            session_seconds=self.static_config.broker_session_timeout_ms / 1000 + SESSION_SLACK_SECONDS,
            accept_older_metadata=self._accept_older_metadata,
            recover_without=self._recover_without,
            on_waiting=self._on_waiting,
            stopped=self._waiting_stopped,
        )
        await recovery.run()

    def stop_waiting(self) -> None:
        """Lets a start that waits for other brokers, to recover lost metadata, raise RecoveryStoppedError."""
        self._waiting_stopped.set()

    def _make_controller(self, lease: Lease | None = None) -> Controller:
        return Controller(
            self.metadata_store,
            lambda: self.image,
            self.world.random,
            defaults=self._topic_defaults,
            validate_configs=validate_topic_configs,
            rules_of=self._rules_of,
            lease=lease,
        )

    def _rules_of(self, topic: TopicImage) -> TopicRules:
        settings = self.settings_of(topic.configs)
        return TopicRules(
            min_in_sync=settings.min_insync_replicas, allows_unclean=settings.unclean_leader_election_enable
        )

    async def _open_logs(self, data_dirs: list[str]) -> None:
        world, config = self.world, self.config
        self.store = LogStore(
            world.disk,
            self.clock,
            world.random,
            data_dirs,
            node_id=self.id,
            cluster_id=self.cluster_id,
            owner=f"broker {self.id}",
            config_of=self._log_config,
            on_trouble=self.repairs.on_trouble,
            name_of=self._topic_name,
            metadata_seen=self._metadata_seen,
        )
        await self.store.open(self._on_progress)
        image = self._follower.image
        self.assignment.sort_out_folders(image)
        if self.store.has_other_history(image.history):
            # Revisions were counted from the start again when metadata was recovered, from the folders that are here.
            self.store.note_applied(image.revision)
        await self.store.save_metadata_seen()
        self._helper = world.start_helper()
        cleaner = Cleaner(world.disk, self._helper, self.clock, config.cleaner(world.random.randbytes(16)))
        self._housekeeping = Housekeeping(self.store, world.disk, self.clock, config.housekeeping, cleaner)

    async def _open_port(self) -> None:
        """Registers under the port's number before it is open, so that whoever connects finds the broker registered."""
        endpoint = self.static_config.endpoints[0]
        port = endpoint.port or await self.listener.open(endpoint.host, 0)
        advertised = self.static_config.advertised_endpoints
        if advertised:
            self._advertised = (advertised[0].host, advertised[0].port or port)
        else:
            # Every address of the machine is none that a client can connect to; the machine's name is.
            self._advertised = (gethostname() if endpoint.host in _ANY_ADDRESS else endpoint.host, port)
        host, advertised_port = self._advertised
        await self._membership.register(
            BrokerImage(
                id=self.id,
                host=host,
                port=advertised_port,
                rack=self.static_config.broker_rack,
                is_intact=self.store.is_intact,
            )
        )
        await self.office.take()
        self._run(self._follower.run())
        # From now on: the session may end before the cluster is seen to count on this broker.
        self._run(self._membership.keep())
        while not self._membership.is_seen or self.image.controller == NO_LEADER:
            revision = self.image.revision
            if not self.office.is_held:
                # The controller that was there when this broker looked may be gone, and nobody else may come.
                await self.office.take()
            await self._follower.wait_revision(revision + 1)
        # Nobody is shown less than was committed before the restart: what it leads is as safe as its topics ask for.
        for partition in list(self.partitions):
            await partition.wait_flushed()
        if endpoint.port:
            await self.listener.open(endpoint.host, endpoint.port)

    def on_registration_lost(self) -> None:
        """Whatever another broker may lead by now is no longer led here."""
        self.assignment.resign()
        self.follow_leaders()
        self.groups.on_image(self.image)
        self.transactions.on_image()

    async def stop(self) -> None:
        """Finishes what is being served, closes every log cleanly, and gives the registration back."""
        was_ready, self.is_ready = self.is_ready, False
        if was_ready and self.is_registered:
            await self._membership.hand_over()
        if hasattr(self, "listener"):
            self.listener.drain()
            for partition in self.partitions:
                partition.end_fetch_waits()
        if hasattr(self, "groups"):
            # Members that wait for a rebalance are told now, rather than after the last request was waited for.
            await self.groups.close()
            await self.transactions.close()
        if hasattr(self, "listener"):
            await self.listener.close(SHUTDOWN_SECONDS)
            await self.dispatch.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._replica_fetchers is not None:
            await self._replica_fetchers.close()
        if hasattr(self, "peers"):
            self.peers.close()
        if hasattr(self, "_helper"):
            await self._helper.close()
        if hasattr(self, "store"):
            await self.store.close()
        # Without the store both end with the session.
        with suppress(OttlaError):
            if hasattr(self, "office"):
                await self.office.release()
            await self._membership.leave()
        if hasattr(self, "metadata_store"):
            await self.metadata_store.close()
        if hasattr(self, "timers"):
            self.timers.close()
        if self._http is not None:
            await self._http.stop()
        if isinstance(self._own_disk, RealDisk):
            self._own_disk.close()

    def _run(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOGGER.critical("background work of the broker failed: %s", error, exc_info=error)
            if not self._failure.done():
                self._failure.set_result(error)

    async def wait_failure(self) -> BaseException:
        """Returns if work in the background has ended that must not: what this broker answers is no longer true.

        Whoever runs the broker should stop it then; another start reads everything anew.
        """
        return await asyncio.shield(self._failure)

    # What handlers find here

    @property
    def image(self) -> ClusterImage:
        """The cluster as it is known here; everything in it that concerns this broker is true already."""
        return self._follower.image

    @property
    def is_registered(self) -> bool:
        """Whether the cluster counts on this broker, as far as it knows itself."""
        return self._membership.is_registered

    @property
    def is_leaving(self) -> bool:
        """Whether it is about to stop, and hands over what it has."""
        return self._membership.is_leaving

    @property
    def broker_epoch(self) -> int:
        """Which life of this broker this is: the revision of its registration; -1 without one."""
        return self._membership.epoch

    def leader_answered_at(self, leader: BrokerId) -> float:
        """When a leader that is followed here last answered, by the monotonic clock."""
        return float("-inf") if self._replica_fetchers is None else self._replica_fetchers.answered_at(leader)

    def may_lead_since(self, revision: int) -> bool:
        """Whether a partition's record of this revision was meant for this life of the broker."""
        return -1 < self.broker_epoch < revision

    def _is_elsewhere(self, topic: str | bytes, index: int) -> bool:
        """Whether another broker leads a partition. Raises StorageError if this one should, and cannot serve it."""
        image = self.image
        found = image.topics_by_id.get(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return False
        reason = self.assignment.unserved.get(TopicPartition(found.name, index))
        if reason is not None and found.partitions[index].leader == self.id:
            raise StorageError(str(reason))
        return True

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port that clients are told."""
        return self._advertised

    @property
    def port(self) -> int:
        """The port that clients are told."""
        return self._advertised[1]

    @property
    def fetch_bytes_max(self) -> int:
        """The most that one fetch response may hold, but for a first batch that is larger."""
        return self.config.fetch_max_bytes

    async def wait_revision(self, revision: int) -> None:
        """Returns once a change that was committed is true on this broker."""
        await self._follower.wait_revision(revision)

    async def wait_news(self, revision: int) -> None:
        """Returns once there is an image newer than this revision."""
        await self._follower.wait_revision(revision + 1)

    def leader_hint(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """(leader, leader epoch) of a partition, for a client that asked the wrong broker."""
        image = self.image
        found = image.topics_by_id.get(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions) or found.partitions[index].leader == NO_LEADER:
            return None
        partition = found.partitions[index]
        return partition.leader, partition.leader_epoch

    def endpoints_of(self, results: Sequence[tuple[Any, ...]], hint_at: int) -> list[Endpoint]:
        """Where the leaders are that these results hint at, in their field of that number; mostly there are none."""
        endpoints: list[Endpoint] = []
        for result in results:
            hint = result[hint_at]
            if hint is not None:
                broker = self.image.brokers.get(BrokerId(hint[0]))
                if broker is not None and all(each[0] != broker.id for each in endpoints):
                    endpoints.append((broker.id, broker.host, broker.port, broker.rack))
        return endpoints

    def report_failure(self, error: OttlaError) -> None:
        """Tells the operator of a failure of the disk, once for each message."""
        text = str(error)
        if text not in self._failures:
            if len(self._failures) >= 1000:
                self._failures.clear()
            self._failures.add(text)
            _LOGGER.error("%s", text)

    # Configs

    def _topic_defaults(self) -> TopicDefaults:
        return TopicDefaults(
            partition_count=self.config.num_partitions, replication_factor=self.config.default_replication_factor
        )

    def _topic_name(self, topic_id: str) -> str | None:
        parsed = parse_id(topic_id)
        topic = self._follower.image.topics_by_id.get(parsed) if parsed is not None else None
        return topic.name if topic is not None else None

    def _metadata_seen(self) -> MetadataSeen:
        """What this broker has acted on; computed once for each image."""
        image = self._follower.image
        if (self._seen.history, self._seen.revision) != (image.history, image.revision):
            self._seen = seen_in(image)
        return self._seen

    def _log_config(self, partition: TopicPartition) -> LogConfig:
        topic = self._follower.image.topics.get(partition.topic)
        return self.settings_of(topic.configs if topic is not None else {}).log_of(partition)

    def settings_of(self, configs: Mapping[str, str]) -> TopicSettings:
        """What a topic with these configs of its own is told on this broker; most topics share theirs with others."""
        key = tuple(sorted(configs.items()))
        settings = self._settings.get(key)
        if settings is None:
            if len(self._settings) >= _SETTINGS_KEPT_MAX:
                self._settings.clear()
            settings = self._settings[key] = TopicSettings.resolve(self.config, configs)
        return settings

    async def _apply_image(self, image: ClusterImage) -> None:
        if image.broker_configs != self._follower.image.broker_configs:
            self._apply_broker_configs(image)
            self.assignment.settings_changed()
            self.listener.limits = _limits(self.config)
            self.groups.on_config()
        await self.assignment.apply(image)
        self.groups.on_image(image)
        self.transactions.on_image()

    def _on_image(self) -> None:
        """The image is true here, and to be seen."""
        if self.store.has_lost and self.is_registered and not self._membership.is_counted_on():
            # Until then, another start must still tell that something is missing.
            self.store.note_intact()
        self.lost_logs.on_image(self.image)
        self.office.on_image()
        self.follow_leaders()

    def on_served(self) -> None:
        """Partitions are served that were not: coordinators and copying begin where they were waiting for them."""
        self.groups.on_image(self.image)
        self.transactions.on_image()
        self.follow_leaders()

    def offline_partitions(self) -> dict[TopicPartition, OttlaError]:
        """Partitions assigned to this broker whose log cannot be used, and why."""
        if not hasattr(self, "store"):
            return {}
        failed = {
            name: partition.log.health.failure
            for name, partition in self.partitions.held.items()
            if partition.log.health.failure is not None
        }
        return {**self.store.offline, **self.assignment.unserved, **failed}

    def damaged_partitions(self) -> dict[TopicPartition, OttlaError]:
        """Partitions with a corrupt batch in their log; the rest of the log is served."""
        return {
            name: partition.log.health.damage
            for name, partition in self.partitions.held.items()
            if partition.log.health.damage is not None
        }

    def follow_leaders(self) -> None:
        """Copies from whom the partitions say; to be called when they have changed."""
        if self._replica_fetchers is None:
            if len(self.image.brokers) < 2:
                return
            from ottla.broker.replica_fetcher import ReplicaFetchers

            self._replica_fetchers = ReplicaFetchers(self)
        self._replica_fetchers.refresh()

    def _apply_broker_configs(self, image: ClusterImage) -> None:
        cluster_wide = image.broker_configs.get("", {})
        self._settings.clear()
        self.config = self.static_config.with_dynamic(cluster_wide, image.broker_configs.get(str(self.id), {}))


def _limits(config: BrokerConfig) -> ListenerLimits:
    if config.socket_request_max_bytes <= 0:
        raise MisuseError("socket.request.max.bytes must be positive")
    queued = config.queued_max_request_bytes
    return ListenerLimits(
        request_bytes_max=config.socket_request_max_bytes,
        queued_bytes_max=queued if queued > 0 else max(256 * 1024 * 1024, 2 * config.socket_request_max_bytes),
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        idle_ms=config.connections_max_idle_ms,
    )
