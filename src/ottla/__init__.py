"""Ottla: a distributed, replicated log that speaks Apache Kafka's wire protocol.

The rooms of the house, bottom first: `model`, `records`, `env`, `storage`. `docs/architecture.md` has the map and the
walks; each package's docstring is its front door.
"""

from ottla.model.ids import TopicPartition
from ottla.version import __version__

__all__ = ["TopicPartition", "__version__"]
