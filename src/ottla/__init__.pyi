"""Types of the package's front door; what it does is in `__init__.py`."""

from ottla.broker.broker import Broker as Broker
from ottla.broker.configuration import BrokerConfig as BrokerConfig
from ottla.model.ids import TopicPartition as TopicPartition
from ottla.version import __version__ as __version__

__all__ = ["Broker", "BrokerConfig", "TopicPartition", "__version__"]
