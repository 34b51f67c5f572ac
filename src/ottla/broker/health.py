"""Whether a broker serves clients, and if not, why not: for the HTTP endpoint, the metrics and requests about logs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.metadata.image import ClusterImage
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.replication.lost_logs import LostLogs
from ottla.replication.partition_table import PartitionTable
from ottla.storage.log_store import LogStore

REASONS_MAX: Final = 20
"""Partitions that are named as a reason for not being ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSources:
    """The parts of a broker that its health depends on."""

    image: Callable[[], ClusterImage]
    partitions: PartitionTable
    logs: LogStore
    lost_logs: LostLogs
    unregistered_because: Callable[[], str | None]
    """Why the broker is not registered in the cluster; None if it is."""


class Health:
    """The health of one broker; exists before its parts do, since a long start can be watched."""

    def __init__(self) -> None:
        self.is_ready = False
        """Whether the broker has started and does not stop."""
        self._sources: HealthSources | None = None

    def watch(self, sources: HealthSources) -> None:
        """From now on tells about these parts."""
        self._sources = sources

    def unready_reasons(self) -> list[str]:
        """Why clients should not be sent to this broker; empty if they may."""
        reasons = [] if self.is_ready else ["the broker is starting or stopping"]
        if self._sources is not None:
            dirs = self._sources.logs.dirs
            reasons += [f"data dir {each.path}: {each.failure}" for each in dirs if each.failure is not None]
        offline = self.offline_partitions()
        reasons += [f"partition {name}: {offline[name]}" for name in sorted(offline)[:REASONS_MAX]]
        if len(offline) > REASONS_MAX:
            reasons.append(f"{len(offline) - REASONS_MAX} more partitions are offline")
        return reasons

    def warnings(self) -> list[str]:
        """What an operator should know of, although clients are served."""
        sources = self._sources
        if sources is None:
            return []
        warnings = list(sources.lost_logs.warnings(sources.image()))
        if (why := sources.unregistered_because()) is not None:
            warnings.append(f"the broker is not registered and leads no replicated partitions: {why}")
        return warnings

    def offline_partitions(self) -> dict[TopicPartition, OttlaError]:
        """Partitions assigned to this broker whose log cannot be used, and why."""
        if self._sources is None:
            return {}
        partitions = self._sources.partitions
        failed = {
            name: partition.log.health.failure
            for name, partition in partitions.held.items()
            if partition.log.health.failure is not None
        }
        return {**self._sources.logs.offline, **partitions.unserved, **failed}

    def damaged_partitions(self) -> dict[TopicPartition, OttlaError]:
        """Partitions with a corrupt batch in their log; the rest of the log is served."""
        if self._sources is None:
            return {}
        return {
            name: partition.log.health.damage
            for name, partition in self._sources.partitions.held.items()
            if partition.log.health.damage is not None
        }
