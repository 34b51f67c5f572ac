"""Ottla: a distributed, replicated log that speaks Apache Kafka's wire protocol.

`Broker` runs a broker within any program: `async with Broker(config) as broker`. The rooms of the house, bottom first:
`model`, `records`, `env`, `protocol`, `storage`, `metadata`, `transport`, `controller`, `replication`, `broker`,
`client`, `cli`. `docs/architecture.md` has the map and the walks; each package's docstring is its front door.
"""

from importlib import import_module
from typing import Any, Final

from ottla.model.ids import TopicPartition
from ottla.version import __version__

__all__ = ["Broker", "BrokerConfig", "TopicPartition", "__version__"]

_LAZY: Final = {"Broker": "ottla.broker.broker", "BrokerConfig": "ottla.broker.configuration"}


def __getattr__(name: str) -> Any:
    """Loads what is large when it is first asked for: a client need not pay for the broker."""
    if name not in _LAZY:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
