"""Decides what remains of a broker that will not come back. Pure.

A registration ends with the broker's session. What stays are its dynamic configs and the count of its starts, by which
a data dir that is an older copy is recognised.
"""

from ottla.controller.decisions import ControllerDecision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import broker_configs_key, starts_key
from ottla.metadata.store import Delete
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import BrokerId


class BrokerNotRegisteredError(InvalidRequestError):
    """The cluster does not know a broker with this id."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


def decide_unregister(image: ClusterImage, broker: BrokerId) -> ControllerDecision[None]:
    """Forgets a broker. Raises BrokerNotRegisteredError, and InvalidRequestError while it is registered or has
    replicas: a broker that returned with them would not be recognised as an older copy."""
    if broker not in image.brokers and broker not in image.starts:
        raise BrokerNotRegisteredError(f"the cluster has no broker {broker}")
    if broker in image.brokers:
        raise InvalidRequestError(f"broker {broker} is running; stop it first")
    replicas = sum(broker in partition.replicas for topic in image.topics.values() for partition in topic.partitions)
    if replicas:
        raise InvalidRequestError(
            f"broker {broker} has {replicas} replicas; move them to other brokers first (ottla cluster reassign)"
        )
    keys = [key for key in (starts_key(broker), broker_configs_key(str(broker))) if image.revision_of(key)]
    return ControllerDecision(operations=tuple(Delete(key, image.revision_of(key)) for key in keys))
