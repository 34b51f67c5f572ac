"""The parts of one broker, each built with the few things that it uses, and what happens to them on a change.

Built in order: a part takes those above it. Nothing is opened or started here; `broker.py` does that.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.broker_lifecycle import BrokerLifecycle
from ottla.broker.configs.config_view import ConfigView
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.listener_config import ListenerConfig, open_to_others
from ottla.broker.configs.sasl_config import sasl_config
from ottla.broker.configs.topic_settings import validate_topic_configs
from ottla.broker.coordinators import Coordinators, build_coordinators
from ottla.broker.failure_log import FailureLog
from ottla.broker.health import Health, HealthSources
from ottla.broker.hosted_partitions import build_partitions
from ottla.broker.listener_security import ListenerSecurity
from ottla.broker.logins.logins import BrokerLogins
from ottla.broker.metrics import MetricSources
from ottla.broker.peers import Peers
from ottla.broker.produce_gates import ProduceGates
from ottla.broker.queues import build_queues
from ottla.broker.replication import build_replication
from ottla.broker.requests.counted_quotas import CountedQuotas
from ottla.broker.requests.fetch_sessions import FetchSessions
from ottla.broker.requests.pipeline import Pipeline
from ottla.broker.requests.request_counts import RequestCounts
from ottla.broker.requests.services import Services
from ottla.broker.schema_validation.held_batches import HeldBatches
from ottla.broker.schema_validation.schema_ids import SchemaIds
from ottla.broker.telemetry.client_telemetry import ClientTelemetry
from ottla.controller.active_controller import ActiveController
from ottla.controller.controller import Controller
from ottla.controller.decisions import NewTopic
from ottla.env.world import World
from ottla.metadata.configs.broker_configs import ip_limits
from ottla.metadata.image import ClusterImage
from ottla.metadata.image_follower import ImageFollower
from ottla.metadata.store import Lease, MetadataStore
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CoordinatorNotAvailableError, MisuseError, OttlaError, TopicRefusedError
from ottla.queues.expiry import ExpiryFilter
from ottla.queues.sinks import Sinks
from ottla.replication.timers import Timers
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.authorizer import Authorizer
from ottla.security.client_quotas import ClientQuotas
from ottla.security.connection_context import ConnectionContext
from ottla.security.quotas import Quotas
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.authentication import ListenerLogin
from ottla.transport.listeners import Listener, ListenerLimits, Listeners
from ottla.transport.turn import Turn

_LOGGER: Final = logging.getLogger(__name__)
_NEVER_CREATED: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Why the controller refuses a topic, whatever the brokers do."""


class BrokerParts:
    """The parts of a broker whose metadata store is open. `metadata` has the cluster's image from the store.

    `health` and `timers` may outlive the parts. `shows_metrics` says whether /metrics is served.
    """

    def __init__(
        self,
        static_config: BrokerConfig,
        world: World,
        store: MetadataStore,
        metadata: ImageFollower,
        timers: Timers,
        health: Health,
        authorizer: Authorizer,
        quotas: Quotas | None,
        *,
        cluster_id: str,
        data_dirs: Sequence[str],
        shows_metrics: bool = False,
    ) -> None:
        me, clock, image = static_config.broker_id, world.clock, self.image
        self.metadata_store: Final = store
        self.metadata: Final = metadata
        self.timers: Final = timers
        self.tasks: Final = BackgroundTasks()
        self.turn: Final = Turn()
        self.failures: Final = FailureLog()
        self.configs: Final = ConfigView(static_config, image)
        self.configs.apply(metadata.image)
        self.security: Final = ListenerSecurity(self.configs.current, clock)
        self.lifecycle: Final = BrokerLifecycle(
            me, store, metadata, clock, session_timeout_ms=static_config.broker_session_timeout_ms
        )

        # Controller
        self._world = world
        self.controller: Final = self._controller_for(None)
        self.active_controller: Final = ActiveController(
            me,
            store,
            image,
            clock,
            controller_for=self._controller_for,
            is_registered=lambda: self.lifecycle.is_registered,
            rebalance_seconds=static_config.leader_imbalance_check_interval_seconds
            if static_config.auto_leader_rebalance_enable
            else None,
        )

        # Partitions
        trouble = asyncio.Event()
        self.schema_ids: Final = SchemaIds(clock, lambda: self.configs.current.schema_registry_urls)
        gates = ProduceGates(self.configs.settings_of, clock, lambda name: self.queues.get(name), self.schema_ids)
        hosted = build_partitions(
            me,
            world,
            self.configs,
            self.turn,
            cluster_id=cluster_id,
            data_dirs=data_dirs,
            image=image,
            gate_of=gates.gate_of,
            may_lead_since=self.lifecycle.may_lead_since,
            on_trouble=trouble.set,
        )
        self.logs: Final = hosted.logs
        self.log_dir_moves: Final = hosted.log_dir_moves
        self.lost_logs: Final = hosted.lost_logs
        self.partitions: Final = hosted.partitions
        self.assignment: Final = hosted.assignment

        # Replication
        replication = build_replication(
            me,
            world,
            store,
            metadata,
            self.configs,
            hosted,
            lifecycle=self.lifecycle,
            controller=self.controller,
            security=self.security.inter_broker,
            on_fetch_failure=self.failures.report,
            trouble=trouble,
        )
        self.throttles: Final = replication.throttles
        self.fetchers: Final = replication.fetchers
        self.isr_proposals: Final = replication.isr_proposals
        self.repairs: Final = replication.repairs

        # Coordinators
        self.peers: Final = Peers(
            me, image, world.network, static_config.inter_broker_listener, self.security.inter_broker
        )
        sinks = Sinks(me, self.partitions, image=image, ask=self.peers.ask_bytes)
        coordinators = build_coordinators(
            me,
            world,
            timers,
            self.partitions,
            configs=self.configs,
            sinks=sinks,
            image=image,
            create_topic=self._create_internal_topic,
            allocate_producer_ids=self.controller.allocate_producer_ids,
            ask_peer=self.peers.ask,
            has_other_replicas=self.repairs.has_others,
        )
        self.groups: Final = coordinators.groups
        self.shares: Final = coordinators.shares
        self.share_fetching: Final = coordinators.share_fetching
        self.transactions: Final = coordinators.transactions

        # Queues
        self.queues: Final = build_queues(
            world,
            timers,
            self.partitions,
            self.configs,
            sinks=sinks,
            image=image,
            next_producer_id=coordinators.producer_ids.next,
        )

        # Quotas
        self.client_quotas: Final = ClientQuotas()
        self._quotas = counted = CountedQuotas(
            self.client_quotas,
            clock,
            authorizer,
            lambda: self.image().brokers,
            inter_broker_listener=static_config.inter_broker_listener,
        )
        counted.replace(metadata.image.client_quotas)

        # Requests
        self.telemetry: Final = ClientTelemetry(clock, world.disk, image, is_exposed=shows_metrics)
        self.authorizer: Final = authorizer
        self._apply_acls(metadata.image)
        self.services: Final = self._services(coordinators, quotas or counted, health)
        self.pipeline: Final = Pipeline(self.services)
        self.logins: Final = BrokerLogins(
            image,
            clock,
            lambda: self.configs.current.delegation_token_secret_key,
            broker_id=me,
            with_telemetry=shows_metrics,
        )
        self.listeners: Final = Listeners(
            world.network,
            clock,
            self.turn,
            self.pipeline.serve,
            _limits(self.configs.current),
            throttle_connection=counted.connection_throttle_ms,
            on_closed=self._on_closed,
        )

    def _services(self, coordinators: Coordinators, quotas: Quotas, health: Health) -> Services:
        """What the handlers of requests share."""
        config, world = self.configs.static, self._world
        return Services(
            broker_id=config.broker_id,
            authorizer=self.authorizer,
            quotas=quotas,
            clock=world.clock,
            random=world.random,
            disk=world.disk,
            turn=self.turn,
            timers=self.timers,
            read_image=self.image,
            read_config=lambda: self.configs.current,
            wait_revision=self.metadata.wait_revision,
            controller=self.controller,
            partitions=self.partitions,
            logs=self.logs,
            log_dir_moves=self.log_dir_moves,
            repairs=self.repairs,
            throttles=self.throttles,
            isr_proposals=self.isr_proposals,
            held_batches=HeldBatches(),
            fetch_sessions=FetchSessions(world.random, config.max_incremental_fetch_session_cache_slots),
            expiry=ExpiryFilter(world.clock),
            waiting_followers={},
            groups=self.groups,
            share_coordinator=coordinators.shares,
            share_state=coordinators.share_state,
            share_fetching=coordinators.share_fetching,
            transactions=self.transactions,
            verification=coordinators.verification,
            markers=coordinators.markers,
            producer_ids=coordinators.producer_ids,
            telemetry=self.telemetry,
            counts=RequestCounts(),
            damaged_partitions=health.damaged_partitions,
            offline_partitions=health.offline_partitions,
            report_failure=self.failures.report,
            check_listeners=self.security.check,
        )

    def image(self) -> ClusterImage:
        """The newest image that this broker has applied."""
        return self.metadata.image

    async def open_listener(self, config: ListenerConfig) -> int:
        """Opens one listener; returns its port."""
        is_protected = config.name == self.configs.static.inter_broker_listener
        listener = Listener(
            config.name,
            config.security_protocol,
            tls=self.security.tls_of(config.name),
            is_protected=is_protected,
            login=self._login_for(config),
        )
        warning = open_to_others(self.configs.static.values, config)
        if warning is not None:
            _LOGGER.warning("%s", warning)
        return await self.listeners.open(config.host, config.port, listener)

    def _login_for(self, config: ListenerConfig) -> ListenerLogin | None:
        if config.security_protocol not in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL):
            return None
        return self.logins.login_for(sasl_config(self.configs.static.values, config.name))

    def health_sources(self) -> HealthSources:
        """The parts that the broker's health depends on."""
        return HealthSources(image=self.image, partitions=self.partitions, logs=self.logs, lost_logs=self.lost_logs)

    def metric_sources(self) -> MetricSources:
        """The parts that count something."""
        return MetricSources(
            image=self.image,
            partitions=self.partitions,
            logs=self.logs,
            listeners=self.listeners,
            counts=self.services.counts,
            fetch_sessions=self.services.fetch_sessions,
            timers=self.timers,
            isr_proposals=self.isr_proposals,
            active_controller=self.active_controller,
            groups=self.groups,
            transactions=self.transactions,
            share_fetching=self.share_fetching,
            queues=self.queues,
            schema_ids=self.schema_ids,
            held_batches=self.services.held_batches,
            client_quotas=self.client_quotas,
            telemetry=self.telemetry,
        )

    # What parts ask for

    def _controller_for(self, lease: Lease | None) -> Controller:
        return Controller(
            self.metadata_store,
            self.image,
            self._world.random,
            defaults=self.configs.topic_defaults,
            validate_configs=lambda configs: validate_topic_configs(configs, self.configs.current),
            rules_of=self.configs.rules_of,
            lease=lease,
        )

    async def _create_internal_topic(self, topic: NewTopic) -> None:
        committed = await self.controller.create_topics([topic])
        outcome = committed.outcomes[0]
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            kind = TopicRefusedError if outcome.error in _NEVER_CREATED else CoordinatorNotAvailableError
            raise kind(f"topic {topic.name} cannot be created: {outcome.message}")
        await self.metadata.wait_revision(committed.revision)

    def _on_closed(self, context: ConnectionContext) -> None:
        connection = context.listener, context.address
        self.share_fetching.on_connection_closed(connection)
        self.telemetry.on_closed(connection)

    # What follows from what

    async def apply_image(self, image: ClusterImage) -> None:
        """Applies a newer image to the parts; it becomes visible afterwards."""
        self._apply_acls(image)
        if image.broker_configs != self.image().broker_configs:
            self.configs.apply(image)
            self.security.apply(self.configs.current)
            self.assignment.settings_changed()
            self.listeners.limits = _limits(self.configs.current)
            self.groups.on_config()
        if image.client_quotas != self.image().client_quotas:
            self._quotas.replace(image.client_quotas)
        await self.assignment.apply(image)
        self.groups.on_image(image)
        self.shares.on_image(image)
        self.share_fetching.partitions.refresh()
        self.transactions.on_image()

    def _apply_acls(self, image: ClusterImage) -> None:
        if isinstance(self.authorizer, AclAuthorizer):
            self.authorizer.apply(image.acls)

    def on_image(self) -> None:
        """To be called when an image that was applied has become visible."""
        if self.logs.has_lost and self.lifecycle.is_registered and not self.lifecycle.is_counted_on():
            # Until then, another start must still tell that something is missing.
            self.logs.note_intact()
        self.lost_logs.on_image(self.image())
        self.queues.on_image(self.image())
        self.active_controller.on_image()
        self.fetchers.refresh()

    def on_served(self) -> None:
        """To be called when partitions are served that were not: their coordinators load, their replicas fetch."""
        self.groups.on_image(self.image())
        self.shares.on_image(self.image())
        self.share_fetching.partitions.refresh()
        self.transactions.on_image()
        self.queues.on_image(self.image())
        self.fetchers.refresh()

    def on_registration_lost(self) -> None:
        """Resigns leadership of all partitions that another broker may lead by now."""
        self.assignment.resign()
        self.fetchers.refresh()
        self.groups.on_image(self.image())
        self.shares.on_image(self.image())
        self.share_fetching.partitions.refresh()
        self.transactions.on_image()
        self.queues.on_image(self.image())

    def drain(self) -> None:
        """Accepts no connection and no request any more, and answers all fetches that wait."""
        self.listeners.drain()
        for partition in self.partitions:
            partition.end_fetch_waits()

    async def leave_cluster(self) -> None:
        """Gives the controller's lease and the registration back."""
        # If the metadata store cannot be reached, both end with the session.
        with suppress(OttlaError):
            await self.active_controller.resign()
            await self.lifecycle.leave()


def _limits(config: BrokerConfig) -> ListenerLimits:
    if config.socket_request_max_bytes <= 0:
        raise MisuseError("socket.request.max.bytes must be positive")
    queued = config.queued_max_request_bytes
    return ListenerLimits(
        request_bytes_max=config.socket_request_max_bytes,
        queued_bytes_max=queued if queued > 0 else max(256 * 1024 * 1024, 2 * config.socket_request_max_bytes),
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_of_ip_max=ip_limits(config.max_connections_per_ip_overrides),
        idle_ms=config.connections_max_idle_ms,
    )
