"""Leaders as Produce and Fetch responses name them to clients that asked the wrong broker."""

from collections.abc import Sequence
from uuid import UUID

from ottla.metadata.image import NO_LEADER, ClusterImage, TopicImage
from ottla.model.ids import BrokerId
from ottla.protocol.results import FetchResult, ProduceResult
from ottla.protocol.scan import Endpoint


def topic_name(image: ClusterImage, topic: str | bytes) -> str | None:
    """The name of a topic that is given by its name or by its id as 16 bytes; None for an unknown id."""
    if isinstance(topic, str):
        return topic
    found = _find(image, topic)
    return None if found is None else found.name


def leader_hint(image: ClusterImage, topic: str | bytes, index: int) -> tuple[int, int] | None:
    """(leader, leader epoch) of a partition, by the topic's name or its id as 16 bytes; None if it has no leader."""
    found = _find(image, topic)
    if found is None or not 0 <= index < len(found.partitions) or found.partitions[index].leader == NO_LEADER:
        return None
    partition = found.partitions[index]
    return partition.leader, partition.leader_epoch


def endpoints_of(
    image: ClusterImage, listener: str, results: Sequence[ProduceResult] | Sequence[FetchResult]
) -> list[Endpoint]:
    """The addresses, on a listener, of the leaders that these results name."""
    endpoints: list[Endpoint] = []
    for result in results:
        hint = result.leader
        if hint is not None and all(each[0] != hint[0] for each in endpoints):
            broker = image.brokers.get(BrokerId(hint[0]))
            address = None if broker is None else broker.endpoint(listener)
            if broker is not None and address is not None:
                endpoints.append((broker.id, address.host, address.port, broker.rack))
    return endpoints


def _find(image: ClusterImage, topic: str | bytes) -> TopicImage | None:
    return image.topics_by_id.get(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topics.get(topic)
