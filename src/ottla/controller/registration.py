"""How a broker joins: it reads or creates the cluster id, registers, and may become the controller.

The registration and the place of the active controller are leases: they end with the broker's session, and the other
brokers see that their keys are removed.
"""

import secrets
from contextlib import suppress
from typing import Final

from ottla.env.ports import Clock, Random
from ottla.metadata.features import levels_of_new_cluster
from ottla.metadata.image import BrokerImage
from ottla.metadata.records import (
    CLUSTER_KEY,
    CONTROLLER_KEY,
    FEATURES_KEY,
    LOGIN_SECRET_KEY,
    ClusterRecord,
    ControllerRecord,
    FeaturesRecord,
    LoginSecretRecord,
    broker_key,
    broker_record,
    decode,
    encode,
)
from ottla.metadata.store import ConflictError, Lease, MetadataStore, Put
from ottla.model.base64_ids import id_text, new_id
from ottla.model.ids import BrokerId

_RETRY_SECONDS: Final = 0.2
_LOGIN_SECRET_BYTES: Final = 32


async def ensure_cluster_id(store: MetadataStore, random: Random) -> str:
    """The cluster's id, 22 characters as in Kafka; the first broker creates it, and sets the cluster's features.

    A store without a login secret, as earlier versions made it, gets one.
    """
    while True:
        _, entries = await store.snapshot()
        found = {entry.key: entry.value for entry in entries if entry.key in (CLUSTER_KEY, LOGIN_SECRET_KEY)}
        missing = []
        if CLUSTER_KEY in found:
            cluster_id = decode(CLUSTER_KEY, found[CLUSTER_KEY], ClusterRecord).id
        else:
            cluster_id = id_text(new_id(random.randbytes))
            missing += [
                Put(CLUSTER_KEY, encode(ClusterRecord(id=cluster_id)), 0),
                Put(FEATURES_KEY, encode(FeaturesRecord(levels=levels_of_new_cluster()))),
            ]
        if LOGIN_SECRET_KEY not in found:
            secret = LoginSecretRecord(secret=secrets.token_bytes(_LOGIN_SECRET_BYTES))
            missing.append(Put(LOGIN_SECRET_KEY, encode(secret), 0))
        if not missing:
            return cluster_id
        # If another broker was faster, its id is used.
        with suppress(ConflictError):
            await store.commit(missing)
            return cluster_id


async def register_broker(
    store: MetadataStore, broker: BrokerImage, clock: Clock, *, timeout_ms: int = 15_000
) -> Lease:
    """Registers a broker for as long as its session lives.

    While another session holds the id, perhaps one that died and has not expired, tries again until the timeout; then
    raises ConflictError, which names the holder.
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
    """The lease of the active controller, or None if another broker has it. Its revision fences what it commits."""
    try:
        return await store.lease(CONTROLLER_KEY, encode(ControllerRecord(broker=broker)))
    except ConflictError:
        return None
