"""How a broker joins: it learns or founds its cluster, registers, and may become the controller.

Registration and office are leases: they end with the broker's session, and the other brokers see their keys go.
"""

from typing import Final

from ottla.controller.topics_state import id_text, new_id
from ottla.env.ports import Clock, Random
from ottla.metadata.image import BrokerImage
from ottla.metadata.records import (
    CLUSTER_KEY,
    CONTROLLER_KEY,
    ClusterRecord,
    ControllerRecord,
    broker_key,
    broker_record,
    decode,
    encode,
)
from ottla.metadata.store import ConflictError, Lease, MetadataStore, Put
from ottla.model.ids import BrokerId

_RETRY_SECONDS: Final = 0.2


async def ensure_cluster_id(store: MetadataStore, random: Random) -> str:
    """The cluster's id, 22 characters as Kafka writes them; the first broker ever to ask makes it."""
    while True:
        _, entries = await store.snapshot()
        for entry in entries:
            if entry.key == CLUSTER_KEY:
                return decode(entry.key, entry.value, ClusterRecord).id
        made = id_text(new_id(random))
        try:
            await store.commit([Put(CLUSTER_KEY, encode(ClusterRecord(id=made)), 0)])
        except ConflictError:
            # Another broker was first, and its id is there now.
            continue
        return made


async def register_broker(
    store: MetadataStore, broker: BrokerImage, clock: Clock, *, timeout_ms: int = 15_000
) -> Lease:
    """Announces a broker for as long as its session lives.

    While another session holds the id, perhaps one that died and has not expired, tries again until the timeout; then
    raises ConflictError, which says who holds it.
    """
    deadline = clock.monotonic() + timeout_ms / 1000
    while True:
        try:
            return await store.lease(broker_key(broker.id), encode(broker_record(broker)))
        except ConflictError as error:
            if clock.monotonic() >= deadline:
                raise ConflictError(f"broker id {broker.id} is taken: {error}; or choose another id") from error
        await clock.sleep(_RETRY_SECONDS)


async def become_controller(store: MetadataStore, broker: BrokerId) -> Lease | None:
    """The controller's office, or None while another broker has it. Its revision fences what the controller commits."""
    try:
        return await store.lease(CONTROLLER_KEY, encode(ControllerRecord(broker=broker)))
    except ConflictError:
        return None
