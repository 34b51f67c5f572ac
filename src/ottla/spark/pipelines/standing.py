"""Where a project stands, running or not, without Spark: by checkpoints, the last progress, the cluster's offsets."""

from dataclasses import dataclass, field
from typing import Any

from ottla.client.admin.async_admin import OffsetSpec
from ottla.client.admin.blocking_admin import Admin
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.spark.pipelines.checkpoints import QueryState, read_checkpoint
from ottla.spark.pipelines.project import Project
from ottla.spark.pipelines.queries import DEAD_LETTERS, query_names
from ottla.spark.pipelines.run_files import checkpoint_folder, read_progress, running_process


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStanding:
    """One partition of a topic that a query reads."""

    topic: str
    partition: int
    read: int | None
    """Up to where finished batches have read, exclusive, by the checkpoint; None without one."""
    committed: int | None
    """What the consumer group of the query has committed."""
    end: int | None

    @property
    def lag(self) -> int | None:
        """Records from what is done to the end; None if either is not known."""
        done = self.committed if self.read is None else self.read
        return None if done is None or self.end is None else max(self.end - done, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStanding:
    """One query."""

    name: str
    to: str
    group_id: str
    checkpoint: QueryState | None
    progress: dict[str, Any]
    """What the run said last about it; empty if it never did."""
    partitions: list[PartitionStanding] = field(default_factory=list)

    @property
    def lag(self) -> int | None:
        """Of all partitions together; None if nothing is known."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A whole project."""

    process: int | None
    """Which process runs it; None if none does."""
    queries: list[QueryStanding]
    remark: str | None
    """Why the cluster's offsets are missing, if they are."""


def standing_of(project: Project, *, request_timeout_ms: int = 3_000) -> Standing:
    """Where each query of a project stands. A cluster that cannot be reached is a remark, not an error."""
    told = {each["name"]: each for each in read_progress(project).get("queries", [])}
    found = []
    for name in query_names(project):
        folder = checkpoint_folder(project, name)
        checkpoint = None if folder is None else read_checkpoint(folder)
        if checkpoint is None and name not in told and name.startswith(DEAD_LETTERS):
            # A view that rejects nothing has no such query.
            continue
        to = told.get(name, {}).get("to") or _target(project, name)
        found.append((name, to, checkpoint, told.get(name, {})))
    remark = None
    partitions: dict[str, list[PartitionStanding]] = {}
    try:
        with Admin(bootstrap_servers=project.settings.bootstrap, request_timeout_ms=request_timeout_ms) as admin:
            for name, _, checkpoint, _ in found:
                partitions[name] = _partitions(admin, project.group_id(name), checkpoint)
    except OttlaError as error:
        remark = f"the cluster was not asked: {error}"
    return Standing(
        process=running_process(project),
        remark=remark,
        queries=[
            QueryStanding(
                name=name,
                to=to,
                group_id=project.group_id(name),
                checkpoint=checkpoint,
                progress=progress,
                partitions=partitions.get(name) or _from_checkpoint(checkpoint),
            )
            for name, to, checkpoint, progress in found
        ],
    )


def forget_groups(project: Project, names: list[str]) -> None:
    """Deletes the consumer groups of these queries, so that a new checkpoint begins where the project says."""
    with Admin(bootstrap_servers=project.settings.bootstrap) as admin:
        there = {each.group_id for each in admin.list_consumer_groups()}
        wanted = [project.group_id(name) for name in names if project.group_id(name) in there]
        if wanted:
            admin.delete_consumer_groups(wanted)


def _target(project: Project, name: str) -> str:
    sink = project.settings.sinks.get(name)
    if sink is not None:
        return sink.topic or sink.parquet or sink.delta or ""
    return project.settings.dead_letters.topic if project.settings.dead_letters is not None else ""


def _partitions(admin: Admin, group_id: str, checkpoint: QueryState | None) -> list[PartitionStanding]:
    committed = {each: found.offset for each, found in admin.list_consumer_group_offsets(group_id).items()}
    read = {(each.topic, each.partition): each.read for each in _from_checkpoint(checkpoint)}
    wanted = sorted({*(TopicPartition(*each) for each in read), *committed})
    ends = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST), raise_errors=False) if wanted else {}
    return [
        PartitionStanding(
            topic=each.topic,
            partition=each.partition,
            read=read.get((each.topic, each.partition)),
            committed=committed.get(each),
            end=ends[each].offset if each in ends else None,
        )
        for each in wanted
    ]


def _from_checkpoint(checkpoint: QueryState | None) -> list[PartitionStanding]:
    offsets = {} if checkpoint is None else checkpoint.offsets
    return [
        PartitionStanding(topic=topic, partition=partition, read=offset, committed=None, end=None)
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    ]
