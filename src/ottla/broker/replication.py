"""Assembles replication: what a broker copies from leaders, and what it does as a leader for its followers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.broker_lifecycle import BrokerLifecycle
from ottla.broker.configs.config_view import ConfigView
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.hosted_partitions import HostedPartitions
from ottla.controller.controller import Controller
from ottla.env.world import World
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.image_follower import ImageFollower
from ottla.metadata.store import MetadataStore
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId
from ottla.protocol.replica_fetch_frames import Follower
from ottla.replication.isr_proposals import IsrProposals
from ottla.replication.log_repairs import LogRepairs
from ottla.replication.replica_fetcher import ReplicaFetchConfig, ReplicaFetcher, ReplicaFetchers
from ottla.replication.throttles import ReplicationThrottles
from ottla.transport.client_security import ClientSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """What keeps the replicas of a broker's partitions equal."""

    throttles: ReplicationThrottles
    fetchers: ReplicaFetchers
    isr_proposals: IsrProposals
    repairs: LogRepairs


def build_replication(
    broker_id: BrokerId,
    world: World,
    store: MetadataStore,
    metadata: ImageFollower,
    configs: ConfigView,
    hosted: HostedPartitions,
    *,
    lifecycle: BrokerLifecycle,
    controller: Controller,
    security: Callable[[], ClientSecurity | None],
    on_fetch_failure: Callable[[OttlaError], None],
    trouble: asyncio.Event,
) -> Replication:
    """Replication of the hosted partitions; it fetches nothing yet.

    `security` is that of connections to other brokers; `trouble` is set when a log has a problem.
    """
    clock = world.clock
    throttles = ReplicationThrottles(broker_id, clock, configs.throttled_rate, configs.throttled_replicas)

    def image() -> ClusterImage:
        return metadata.image

    def identity() -> Follower:
        return Follower(broker_id, lifecycle.epoch, lifecycle.is_leaving)

    def fetcher_for(leader: BrokerImage) -> ReplicaFetcher:
        return ReplicaFetcher(
            leader,
            world.network,
            clock,
            _fetch_config(configs.static),
            image,
            throttles,
            identity=identity,
            on_failure=on_fetch_failure,
            security=security,
        )

    fetchers = ReplicaFetchers(
        hosted.partitions,
        image,
        clock,
        fetcher_for=fetcher_for,
        identity=identity,
        wait_max_ms=configs.static.replica_fetch_wait_max_ms,
    )
    return Replication(
        throttles=throttles,
        fetchers=fetchers,
        isr_proposals=IsrProposals(
            broker_id,
            store,
            metadata,
            hosted.partitions,
            clock,
            lag_time_max_ms=configs.static.replica_lag_time_max_ms,
        ),
        repairs=LogRepairs(
            broker_id,
            hosted.logs,
            hosted.partitions,
            metadata,
            controller,
            fetchers,
            clock,
            trouble=trouble,
            is_registered=lambda: lifecycle.is_registered,
            bring_back=hosted.assignment.bring_back,
        ),
    )


def _fetch_config(config: BrokerConfig) -> ReplicaFetchConfig:
    return ReplicaFetchConfig(
        listener=config.inter_broker_listener,
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_max_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
    )
