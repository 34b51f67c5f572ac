"""The status of a project, without Spark: from checkpoints, the last progress, and the offsets of the cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.client.admin.async_admin import OffsetSpec
from ottla.client.admin.blocking_admin import Admin
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.spark.pipelines.declaration.project import Project
from ottla.spark.pipelines.running.checkpoints import QueryState, read_checkpoint
from ottla.spark.pipelines.running.query_names import DEAD_LETTERS, query_names
from ottla.spark.pipelines.running.run_files import checkpoint_folder, read_progress, running_process


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition of a topic that a query reads."""

    topic: str
    partition: int
    read: int | None
    """End offset of the completed batches (exclusive); None without a checkpoint."""
    committed: int | None
    """The committed offset of the consumer group of the query."""
    end: int | None

    @property
    def lag(self) -> int | None:
        """Offsets between what is completed and the end; None if either is not known."""
        done = self.committed if self.read is None else self.read
        return None if done is None or self.end is None else max(self.end - done, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """One query."""

    name: str
    to: str
    group_id: str
    checkpoint: QueryState | None
    progress: dict[str, Any]
    """The last progress of the query; empty if there is none."""
    partitions: list[PartitionStatus] = field(default_factory=list)

    @property
    def lag(self) -> int | None:
        """The sum over all partitions; None if none is known."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectStatus:
    """A whole project."""

    process: int | None
    """The process that runs the project; None if it is not running."""
    queries: list[QueryStatus]
    remark: str | None
    """Why the offsets of the cluster are missing, if they are."""


def read_status(project: Project, *, request_timeout_ms: int = 3_000) -> ProjectStatus:
    """The status of each query. A cluster that cannot be reached is a remark, not an error."""
    found = local_status(project)
    remark = None
    queries = found.queries
    try:
        with Admin(**project.admin_options(), request_timeout_ms=request_timeout_ms) as admin:
            queries = [_compared(admin, query) for query in queries]
    except OttlaError as error:
        remark = f"cannot read offsets from the cluster: {error}"
    return replace(found, queries=queries, remark=remark)


def local_status(project: Project) -> ProjectStatus:
    """What the files of this machine say: checkpoints, the last progress, and the process. Asks no cluster."""
    told = {each["name"]: each for each in read_progress(project).get("queries", [])}
    queries = []
    for name in query_names(project):
        folder = checkpoint_folder(project, name)
        checkpoint = None if folder is None else read_checkpoint(folder)
        if checkpoint is None and name not in told and name.startswith(DEAD_LETTERS):
            # A view that cannot reject rows has no dead-letter query.
            continue
        queries.append(
            QueryStatus(
                name=name,
                to=told.get(name, {}).get("to") or _target(project, name),
                group_id=project.group_id(name),
                checkpoint=checkpoint,
                progress=told.get(name, {}),
                partitions=_from_checkpoint(checkpoint),
            )
        )
    return ProjectStatus(process=running_process(project), queries=queries, remark=None)


def wanted_partitions(query: QueryStatus, committed: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions whose end offsets tell how far behind a query is."""
    return sorted({*(TopicPartition(each.topic, each.partition) for each in query.partitions), *committed})


def compared(
    query: QueryStatus, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> QueryStatus:
    """The query with the committed offsets of its group, and the ends of its partitions, as the cluster has them."""
    read = {TopicPartition(each.topic, each.partition): each.read for each in query.partitions}
    partitions = [
        PartitionStatus(
            topic=each.topic,
            partition=each.partition,
            read=read.get(each),
            committed=committed.get(each),
            end=ends.get(each),
        )
        for each in wanted_partitions(query, committed)
    ]
    return replace(query, partitions=partitions)


def delete_groups(project: Project, names: list[str]) -> None:
    """Deletes the consumer groups of queries, so that a new checkpoint begins at the starting offsets."""
    with Admin(**project.admin_options()) as admin:
        there = {each.group_id for each in admin.list_consumer_groups()}
        wanted = [project.group_id(name) for name in names if project.group_id(name) in there]
        if wanted:
            admin.delete_consumer_groups(wanted)


def _target(project: Project, name: str) -> str:
    sink = project.settings.sinks.get(name)
    if sink is not None:
        return sink.topic or sink.parquet or sink.delta or ""
    return project.settings.dead_letters.topic if project.settings.dead_letters is not None else ""


def _compared(admin: Admin, query: QueryStatus) -> QueryStatus:
    committed = {each: found.offset for each, found in admin.list_consumer_group_offsets(query.group_id).items()}
    wanted = wanted_partitions(query, committed)
    ends = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST), raise_errors=False) if wanted else {}
    return compared(query, committed, {each: found.offset for each, found in ends.items()})


def _from_checkpoint(checkpoint: QueryState | None) -> list[PartitionStatus]:
    offsets = {} if checkpoint is None else checkpoint.offsets
    return [
        PartitionStatus(topic=topic, partition=partition, read=offset, committed=None, end=None)
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    ]
