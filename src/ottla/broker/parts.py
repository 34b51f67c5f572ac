"""The parts of one broker, each built with the few things that it uses, and what happens to them on a change.

Built in order: a part takes those above it. Groups of parts are assembled in modules of their own, named in
`ottla.broker`. Nothing is opened or started here; `broker.py` does that.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.broker_lifecycle import BrokerLifecycle
from ottla.broker.configs.config_view import ConfigView
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.listener_config import ListenerConfig, open_to_others
from ottla.broker.configs.sasl_config import sasl_config
from ottla.broker.controllers import build_controllers
from ottla.broker.coordinators import Coordinators, build_coordinators
from ottla.broker.failure_log import FailureLog
from ottla.broker.health import Health, HealthSources
from ottla.broker.hosted_partitions import HostedPartitions, build_partitions
from ottla.broker.internal_topics import create_internal_topic
from ottla.broker.listener_security import ListenerSecurity
from ottla.broker.metrics import MetricSources
from ottla.broker.peers import Peers
from ottla.broker.produce_gates import ProduceGates
from ottla.broker.queues import build_queues
from ottla.broker.replication import Replication, build_replication
from ottla.broker.requests.counted_quotas import CountedQuotas
from ottla.broker.requests.services import Services
from ottla.broker.schema_validation.schema_ids import SchemaIds
from ottla.broker.serving import build_services, build_serving, listener_limits
from ottla.broker.telemetry.client_telemetry import ClientTelemetry
from ottla.coordination.transactions.producer_ids import ProducerIds
from ottla.env.world import World
from ottla.metadata.image import ClusterImage
from ottla.metadata.image_follower import ImageFollower
from ottla.metadata.store import MetadataStore
from ottla.model.errors import OttlaError
from ottla.queues.queue_shards import QueueShards
from ottla.queues.sinks import Sinks
from ottla.replication.timers import Timers
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.authorizer import Authorizer
from ottla.security.client_quotas import ClientQuotas
from ottla.security.quotas import Quotas
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.authentication import ListenerLogin
from ottla.transport.listeners import Listener
from ottla.transport.turn import Turn

_LOGGER: Final = logging.getLogger(__name__)


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
        self._world = world
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
        controllers = build_controllers(
            me, world, store, self.configs, image=image, is_registered=lambda: self.lifecycle.is_registered
        )
        self.controller: Final = controllers.controller
        self.active_controller: Final = controllers.active

        trouble = asyncio.Event()
        self.schema_ids: Final = SchemaIds(clock, lambda: self.configs.current.schema_registry_urls)
        hosted = self._build_partitions(cluster_id, data_dirs, on_trouble=trouble.set)
        self.logs: Final = hosted.logs
        self.log_dir_moves: Final = hosted.log_dir_moves
        self.lost_logs: Final = hosted.lost_logs
        self.partitions: Final = hosted.partitions
        self.assignment: Final = hosted.assignment
        replication = self._build_replication(hosted, trouble)
        self.throttles: Final = replication.throttles
        self.fetchers: Final = replication.fetchers
        self.isr_proposals: Final = replication.isr_proposals
        self.repairs: Final = replication.repairs

        listener = static_config.inter_broker_listener
        self.peers: Final = Peers(me, image, world.network, listener, self.security.inter_broker)
        sinks = Sinks(me, self.partitions, image=image, ask=self.peers.ask_bytes)
        coordinators = self._build_coordinators(sinks)
        self.groups: Final = coordinators.groups
        self.shares: Final = coordinators.shares
        self.share_fetching: Final = coordinators.share_fetching
        self.transactions: Final = coordinators.transactions
        self.queues: Final = self._build_queues(sinks, coordinators.producer_ids)

        self.authorizer: Final = authorizer
        self._apply_acls(metadata.image)
        self.client_quotas: Final = ClientQuotas()
        self._quotas = CountedQuotas(
            self.client_quotas, clock, authorizer, lambda: image().brokers, inter_broker_listener=listener
        )
        self._quotas.replace(metadata.image.client_quotas)
        self.telemetry: Final = ClientTelemetry(clock, world.disk, image, is_exposed=shows_metrics)
        self.services: Final = self._build_services(
            hosted, replication, coordinators, health, quotas=quotas or self._quotas
        )
        serving = build_serving(world, self.services, self._quotas.connection_throttle_ms)
        self.pipeline: Final = serving.pipeline
        self.logins: Final = serving.logins
        self.listeners: Final = serving.listeners

    # Groups of parts, each built from those above it

    def _build_partitions(
        self, cluster_id: str, data_dirs: Sequence[str], *, on_trouble: Callable[[], None]
    ) -> HostedPartitions:
        clock = self._world.clock
        gates = ProduceGates(self.configs.settings_of, clock, lambda name: self.queues.get(name), self.schema_ids)
        return build_partitions(
            self.configs.static.broker_id,
            self._world,
            self.configs,
            self.turn,
            cluster_id=cluster_id,
            data_dirs=data_dirs,
            image=self.image,
            gate_of=gates.gate_of,
            may_lead_since=self.lifecycle.may_lead_since,
            on_trouble=on_trouble,
        )

    def _build_replication(self, hosted: HostedPartitions, trouble: asyncio.Event) -> Replication:
        return build_replication(
            self.configs.static.broker_id,
            self._world,
            self.metadata_store,
            self.metadata,
            self.configs,
            hosted,
            lifecycle=self.lifecycle,
            controller=self.controller,
            security=self.security.inter_broker,
            on_fetch_failure=self.failures.report,
            trouble=trouble,
        )

    def _build_coordinators(self, sinks: Sinks) -> Coordinators:
        return build_coordinators(
            self.configs.static.broker_id,
            self._world,
            self.timers,
            self.partitions,
            configs=self.configs,
            sinks=sinks,
            image=self.image,
            create_topic=partial(create_internal_topic, self.controller, self.metadata.wait_revision),
            allocate_producer_ids=self.controller.allocate_producer_ids,
            ask_peer=self.peers.ask,
            has_other_replicas=self.repairs.has_others,
        )

    def _build_queues(self, sinks: Sinks, producer_ids: ProducerIds) -> QueueShards:
        return build_queues(
            self._world,
            self.timers,
            self.partitions,
            self.configs,
            sinks=sinks,
            image=self.image,
            next_producer_id=producer_ids.next,
        )

    def _build_services(
        self,
        hosted: HostedPartitions,
        replication: Replication,
        coordinators: Coordinators,
        health: Health,
        *,
        quotas: Quotas,
    ) -> Services:
        return build_services(
            self._world,
            self.metadata,
            self.configs,
            self.timers,
            self.turn,
            controller=self.controller,
            hosted=hosted,
            replication=replication,
            coordinators=coordinators,
            telemetry=self.telemetry,
            health=health,
            authorizer=self.authorizer,
            quotas=quotas,
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
        return HealthSources(
            image=self.image,
            partitions=self.partitions,
            logs=self.logs,
            lost_logs=self.lost_logs,
            unregistered_because=lambda: self.lifecycle.unregistered_because,
        )

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

    # What follows from what

    async def apply_image(self, image: ClusterImage) -> None:
        """Applies a newer image to the parts; it becomes visible afterwards."""
        self._apply_acls(image)
        before = self.image()
        if (image.broker_configs, image.features) != (before.broker_configs, before.features):
            self.configs.apply(image)
            self.security.apply(self.configs.current)
            self.assignment.settings_changed()
            self.listeners.limits = listener_limits(self.configs.current)
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
