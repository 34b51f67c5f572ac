"""Decides what is stored of configs, producer ids and starts of brokers. Pure.

Which configs exist and what they may be is decided before, by the one who asks; here a whole map takes the place of
another, so `expected` guards against changing a map that was read and has changed since.
"""

from collections.abc import Mapping
from typing import Final

from ottla.controller.decisions import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    PRODUCER_IDS_KEY,
    ConfigsRecord,
    ProducerIdsRecord,
    StartsRecord,
    broker_configs_key,
    encode,
    starts_key,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Check, ConflictError, Delete, Operation, Put
from ottla.model.errors import InvalidRequestError, StorageError, UnknownTopicError
from ottla.model.ids import BrokerId

PRODUCER_IDS_PER_BLOCK: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1


def decide_topic_configs(
    image: ClusterImage, name: str, configs: Mapping[str, str], expected: int | None = None
) -> Decision[None]:
    """A topic's own configs become this map. Raises UnknownTopicError, and ConflictError unless the map in place is of
    revision `expected`, where one is given."""
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicError(f"there is no topic {name!r}")
    guard = Check(topic_key(name), image.revision_of(topic_key(name)))
    return _decide(image, topic_configs_key(name), topic.configs, configs, expected, guard)


def decide_broker_configs(
    image: ClusterImage, broker: str, configs: Mapping[str, str], expected: int | None = None
) -> Decision[None]:
    """The dynamic configs of a broker, or with "" of all brokers, become this map; `expected` as for a topic."""
    if broker and not (broker.isascii() and broker.isdigit()):
        raise InvalidRequestError(f"{broker!r} is no broker id: a number, or empty for all brokers")
    return _decide(image, broker_configs_key(broker), image.broker_configs.get(broker, {}), configs, expected)


def _decide(
    image: ClusterImage,
    key: str,
    present: Mapping[str, str],
    wanted: Mapping[str, str],
    expected: int | None,
    *guards: Check,
) -> Decision[None]:
    revision = image.revision_of(key)
    if expected is not None and expected != revision:
        raise ConflictError(
            f"{key!r} is at revision {revision}, not at {expected}: it was changed meanwhile; read it again and "
            "decide anew"
        )
    if dict(present) == dict(wanted):
        return Decision()
    change: Operation = Put(key, encode(ConfigsRecord(configs=dict(wanted))), revision)
    if not wanted:
        change = Delete(key, revision)
    return Decision(operations=(*guards, change))


def decide_start(image: ClusterImage, broker: BrokerId, count: int) -> Decision[int]:
    """Notes how often a broker has started."""
    key = starts_key(broker)
    return Decision(
        operations=(Put(key, encode(StartsRecord(count=count)), image.revision_of(key)),), outcomes=(count,)
    )


def decide_producer_ids(image: ClusterImage) -> Decision[range]:
    """The next block of producer ids, which nobody else will be given."""
    first = image.next_producer_id
    if first > _PRODUCER_ID_MAX - PRODUCER_IDS_PER_BLOCK:
        raise StorageError(f"no producer ids are left after {first}: the value under {PRODUCER_IDS_KEY!r} is damaged")
    block = range(first, first + PRODUCER_IDS_PER_BLOCK)
    value = encode(ProducerIdsRecord(next_id=block.stop))
    return Decision(operations=(Put(PRODUCER_IDS_KEY, value, image.revision_of(PRODUCER_IDS_KEY)),), outcomes=(block,))
