"""What request handlers share: the parts of one broker that they use, and nothing else of it.

`serving.py` builds one `Services` when all parts exist. What a handler knows of its client is in the request's context.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.requests.decompression import Decompression
from ottla.broker.requests.fetch_sessions import FetchSessions
from ottla.broker.requests.request_counts import RequestCounts
from ottla.broker.schema_validation.held_batches import HeldBatches
from ottla.broker.telemetry.client_telemetry import ClientTelemetry
from ottla.controller.controller import Controller
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.share_partitions.share_fetching import ShareFetching
from ottla.coordination.share_state.client import ShareStateAccess
from ottla.coordination.share_state.coordinator import ShareCoordinator
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.coordination.transactions.marker_writer import MarkerWriter
from ottla.coordination.transactions.producer_ids import ProducerIds
from ottla.coordination.transactions.verification import TransactionVerification
from ottla.env.ports import Clock, Disk, Random
from ottla.metadata.image import ClusterImage
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.queues.expiry import ExpiryFilter
from ottla.replication.fetch_waiter import FetchWaiter
from ottla.replication.isr_proposals import IsrProposals
from ottla.replication.log_dir_moves import LogDirMoves
from ottla.replication.log_repairs import LogRepairs
from ottla.replication.partition_table import PartitionTable
from ottla.replication.throttles import ReplicationThrottles
from ottla.replication.timers import Timers
from ottla.security.authorizer import Authorizer
from ottla.security.quotas import Quotas
from ottla.storage.log_store import LogStore
from ottla.transport.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Services:
    """The parts of one broker that handlers use."""

    broker_id: BrokerId
    authorizer: Authorizer
    quotas: Quotas
    clock: Clock
    random: Random
    disk: Disk
    turn: Turn
    timers: Timers
    read_image: Callable[[], ClusterImage]
    read_config: Callable[[], BrokerConfig]
    wait_revision: Callable[[int], Awaitable[None]]
    """Returns once a committed metadata change is applied on this broker."""
    controller: Controller
    partitions: PartitionTable
    logs: LogStore
    log_dir_moves: LogDirMoves
    repairs: LogRepairs
    throttles: ReplicationThrottles
    isr_proposals: IsrProposals
    decompression: Decompression
    held_batches: HeldBatches
    fetch_sessions: FetchSessions
    expiry: ExpiryFilter
    waiting_followers: dict[BrokerId, FetchWaiter]
    """The last fetch of each follower that had to wait; it may be answered by now."""
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_coordinator: ShareCoordinator
    share_state: ShareStateAccess
    share_fetching: ShareFetching
    verification: TransactionVerification
    markers: MarkerWriter
    producer_ids: ProducerIds
    telemetry: ClientTelemetry
    counts: RequestCounts
    damaged_partitions: Callable[[], Mapping[TopicPartition, OttlaError]]
    """Partitions with a corrupt batch in their log."""
    offline_partitions: Callable[[], Mapping[TopicPartition, OttlaError]]
    """Partitions of this broker whose log cannot be used."""
    report_failure: Callable[[OttlaError], None]
    """Logs a disk failure once per message."""
    check_listeners: Callable[[BrokerConfig], None] = lambda config: None
    """Raises InvalidRequestError if a changed configuration has certificates that cannot be used."""

    @property
    def image(self) -> ClusterImage:
        """The newest metadata that this broker has applied."""
        return self.read_image()

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration, dynamic values included."""
        return self.read_config()
