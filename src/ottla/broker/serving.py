"""Assembles what serves requests: what the handlers share, the pipeline to them, logins and listeners."""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.configs.config_view import ConfigView
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.coordinators import Coordinators
from ottla.broker.health import Health
from ottla.broker.hosted_partitions import HostedPartitions
from ottla.broker.logins.logins import BrokerLogins
from ottla.broker.replication import Replication
from ottla.broker.requests.decompression import Decompression
from ottla.broker.requests.fetch_sessions import FetchSessions
from ottla.broker.requests.pipeline import Pipeline
from ottla.broker.requests.request_counts import RequestCounts
from ottla.broker.requests.services import Services
from ottla.broker.schema_validation.held_batches import HeldBatches
from ottla.broker.telemetry.client_telemetry import ClientTelemetry
from ottla.controller.controller import Controller
from ottla.env.world import World
from ottla.metadata.configs.broker_configs import ip_limits
from ottla.metadata.image_follower import ImageFollower
from ottla.model.errors import MisuseError, OttlaError
from ottla.queues.expiry import ExpiryFilter
from ottla.replication.timers import Timers
from ottla.security.authorizer import Authorizer
from ottla.security.connection_context import ConnectionContext
from ottla.security.quotas import Quotas
from ottla.transport.listeners import ListenerLimits, Listeners
from ottla.transport.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What brings a client's requests to the handlers, and their answers back."""

    pipeline: Pipeline
    logins: BrokerLogins
    listeners: Listeners


def build_services(
    world: World,
    metadata: ImageFollower,
    configs: ConfigView,
    timers: Timers,
    turn: Turn,
    *,
    controller: Controller,
    hosted: HostedPartitions,
    replication: Replication,
    coordinators: Coordinators,
    telemetry: ClientTelemetry,
    health: Health,
    authorizer: Authorizer,
    quotas: Quotas,
    report_failure: Callable[[OttlaError], None],
    check_listeners: Callable[[BrokerConfig], None],
) -> Services:
    """What the handlers of requests share."""
    return Services(
        broker_id=configs.static.broker_id,
        authorizer=authorizer,
        quotas=quotas,
        clock=world.clock,
        random=world.random,
        disk=world.disk,
        turn=turn,
        timers=timers,
        read_image=lambda: metadata.image,
        read_config=lambda: configs.current,
        wait_revision=metadata.wait_revision,
        controller=controller,
        partitions=hosted.partitions,
        logs=hosted.logs,
        log_dir_moves=hosted.log_dir_moves,
        repairs=replication.repairs,
        throttles=replication.throttles,
        isr_proposals=replication.isr_proposals,
        decompression=Decompression(world.clock, world.disk),
        held_batches=HeldBatches(),
        fetch_sessions=FetchSessions(world.random, configs.static.max_incremental_fetch_session_cache_slots),
        expiry=ExpiryFilter(world.clock),
        waiting_followers={},
        groups=coordinators.groups,
        share_coordinator=coordinators.shares,
        share_state=coordinators.share_state,
        share_fetching=coordinators.share_fetching,
        transactions=coordinators.transactions,
        verification=coordinators.verification,
        markers=coordinators.markers,
        producer_ids=coordinators.producer_ids,
        telemetry=telemetry,
        counts=RequestCounts(),
        damaged_partitions=health.damaged_partitions,
        offline_partitions=health.offline_partitions,
        report_failure=report_failure,
        check_listeners=check_listeners,
    )


def build_serving(world: World, services: Services, throttle_connection: Callable[[str], int]) -> Serving:
    """The way from the listeners to the handlers; no listener is open.

    `throttle_connection` says after how many milliseconds a new connection from a host must be closed; 0 if never.
    """
    telemetry, share_fetching = services.telemetry, services.share_fetching

    def on_closed(context: ConnectionContext) -> None:
        connection = context.listener, context.address
        share_fetching.on_connection_closed(connection)
        telemetry.on_closed(connection)

    pipeline = Pipeline(services)
    logins = BrokerLogins(
        services.read_image,
        world.clock,
        lambda: services.config.delegation_token_secret_key,
        broker_id=services.broker_id,
        with_telemetry=telemetry.is_exposed,
    )
    listeners = Listeners(
        world.network,
        world.clock,
        services.turn,
        pipeline.serve,
        listener_limits(services.config),
        throttle_connection=throttle_connection,
        on_closed=on_closed,
    )
    return Serving(pipeline=pipeline, logins=logins, listeners=listeners)


def listener_limits(config: BrokerConfig) -> ListenerLimits:
    """What clients may use at most. Raises MisuseError if the configs make no sense."""
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
