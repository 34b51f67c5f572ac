"""`ottla topics`: lists, describes, creates, deletes and changes topics."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import application, examples, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.deletions import delete_each
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, DryRun, Profile, TopicName, UsageError, parse_pairs
from ottla.cli.output import human_bytes, human_count, print_facts, print_json, print_list, print_table, say, tell
from ottla.operations.durations import human_duration

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster
    from ottla.client.network.cluster_view import TopicView

app = application("List, describe, create and delete topics; add partitions; delete records.")

VISIBLE_TIMEOUT_MS: Final = 10_000
"""How long to wait until brokers show a new topic; it exists all the same."""

Partitions = Annotated[
    int,
    typer.Option(
        "--partitions", "-p", metavar="N", help="Number of partitions.", min=-1, show_default="set by the broker"
    ),
]
ReplicationFactor = Annotated[
    int,
    typer.Option(
        "--replication-factor",
        "-r",
        metavar="N",
        help="Replicas of each partition.",
        min=-1,
        show_default="set by the broker",
    ),
]
TopicConfigs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="Config of the topic; may be repeated."),
]
IfNotExists = Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")]


@app.command("list", epilog=examples("ottla topics list", "ottla topics list --json | jq -r '.[].name'"))
def list_topics(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    internal: Annotated[
        bool,
        typer.Option(
            "--internal",
            help="Also list internal topics, such as __consumer_offsets and the companions that only the broker reads.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the topics with their number of partitions and replicas."""

    async def work(cluster: "Cluster") -> None:
        view = await cluster.refresh()
        topics = [view.topics[name] for name in sorted(view.topics) if internal or not view.topics[name].is_internal]
        if as_json:
            print_json([_summary(topic) for topic in topics])
        else:
            rows = [(topic.name, len(topic.partitions), _replicas(topic), _problems(topic)) for topic in topics]
            print_table(("topic", "partitions", "replicas", "problems"), rows)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "describe",
    epilog=examples(
        "ottla topics describe events", "ottla topics describe orders --schema-registry http://localhost:8081"
    ),
)
def describe(
    topic: TopicName,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="URL",
            help="Also show the topic's subjects in this schema registry.",
            show_default="OTTLA_REGISTRY, if it is set",
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show a topic: its configs, and the leader, in-sync replicas, offsets and size of each partition."""

    async def work(cluster: "Cluster") -> None:
        description = await _describe(cluster, await cluster.topic(topic))
        subjects = await _subjects(topic, schema_registry, bootstrap, profile)
        if subjects is not None:
            description["subjects"] = subjects
        if as_json:
            print_json(description)
            return
        print_facts(
            {
                "topic": topic,
                "id": description["id"],
                "partitions": len(description["partitions"]),
                "records": f"at most {sum(each['records'] or 0 for each in description['partitions']):,}",
                "size": human_bytes(sum(each["size_bytes"] or 0 for each in description["partitions"])),
                "retention": _retention_story(description),
                "configs": ", ".join(f"{key}={value}" for key, value in description["configs"].items()) or "defaults",
            }
        )
        print()
        columns = ("partition", "leader", "epoch", "replicas", "isr", "start", "end", "size")
        print_table(columns, [_row(each) for each in description["partitions"]])
        if subjects is not None:
            print()
            facts = ("subject", "version", "id", "type", "compatibility")
            print_table(facts, [[each[name] for name in facts] for each in subjects])

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "create",
    epilog=examples(
        "ottla topics create events --partitions 6", "ottla topics create users --config cleanup.policy=compact"
    ),
)
def create(
    topic: TopicName,
    partitions: Partitions = -1,
    replication_factor: ReplicationFactor = -1,
    config: TopicConfigs = None,
    if_not_exists: IfNotExists = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    configs = parse_pairs(config or [], "--config")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.topic_requests import create_topic, wait_for_topics
        from ottla.client.errors import AnswerError
        from ottla.model.error_codes import ErrorCode

        outcome: dict[str, Any] = {"name": topic, "created": not dry_run}
        message = f"topic {topic} can be created" if dry_run else f"created topic {topic}"
        try:
            created = await create_topic(
                cluster,
                topic,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=dry_run,
            )
            outcome |= {"partitions": created.partitions, "replication_factor": created.replication_factor}
            outcome["id"] = None if dry_run else created.id
            message += f" with {human_count(created.partitions, 'partition')}" if created.partitions > 0 else ""
            if not dry_run:
                # Brokers show a new topic a moment after the controller has created it: the next command must find it.
                with suppress(AnswerError):
                    await wait_for_topics(cluster, [topic], timeout_ms=VISIBLE_TIMEOUT_MS)
        except AnswerError as error:
            if error.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                raise
            outcome["created"] = False
            message = f"topic {topic} exists already"
        print_json(outcome) if as_json else tell(message)

    run_with_cluster(bootstrap, profile, work)


@app.command("delete", epilog=examples("ottla topics delete events --yes"))
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)],
    yes: AssumeYes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if a topic does not exist.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Delete topics and all their records."""
    confirm(f"delete {', '.join(topics)} and all records?", yes=yes)

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.topic_requests import delete_topic
        from ottla.model.error_codes import ErrorCode

        return await delete_each(
            topics,
            lambda topic: delete_topic(cluster, topic),
            not_found=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            if_exists=if_exists,
            as_json=as_json,
        )

    run_with_cluster(bootstrap, profile, work)


@app.command("add-partitions", epilog=examples("ottla topics add-partitions events 12"))
def add_partitions(
    topic: TopicName,
    count: Annotated[
        int, typer.Argument(metavar="COUNT", help="New total number of partitions.", min=1, show_default=False)
    ],
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Increase the number of partitions of a topic.

    New records with a key may go to another partition than earlier records with the same key.
    """

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin import topic_requests as admin_requests

        await admin_requests.add_partitions(cluster, topic, count, validate_only=dry_run)
        if as_json:
            print_json({"name": topic, "partitions": count, "changed": not dry_run})
        else:
            tell(f"topic {topic} {'can have' if dry_run else 'now has'} {human_count(count, 'partition')}")

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "delete-records",
    epilog=examples(
        "ottla topics delete-records events --before 1000 --partition 0", "ottla topics delete-records events --all"
    ),
)
def delete_records(
    topic: TopicName,
    before: Annotated[
        int | None, typer.Option("--before", metavar="OFFSET", help="Delete records below this offset.", min=0)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", help="Only in this partition; may be repeated.", min=0),
    ] = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of a topic, up to an offset. The topic stays."""
    if (before is None) is not every:
        raise UsageError("pass either --before OFFSET or --all")
    confirm(f"delete {'all records' if before is None else f'records below {before}'} of {topic}?", yes=yes)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin import topic_requests as admin_requests
        from ottla.model.ids import TopicPartition

        chosen = partition or [each.index for each in (await cluster.topic(topic)).partitions]
        asked = {TopicPartition(topic, index): -1 if before is None else before for index in chosen}
        starts = await admin_requests.delete_records(cluster, asked)
        documents = [{"partition": each.partition, "start_offset": start} for each, start in starts.items()]
        print_list(documents, {"partition": "partition", "start offset": "start_offset"}, as_json=as_json)

    run_with_cluster(bootstrap, profile, work)


def _summary(topic: "TopicView") -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.id,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": _replicas(topic),
        "without_leader": sum(each.leader is None for each in topic.partitions),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
    }


def _replicas(topic: "TopicView") -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)


def _problems(topic: "TopicView") -> str:
    summary = _summary(topic)
    words = {"without_leader": "without leader", "under_replicated": "under-replicated"}
    return ", ".join(f"{summary[key]} {said}" for key, said in words.items() if summary[key])


async def _subjects(
    topic: str, url: str | None, bootstrap: str | None, profile: str | None
) -> list[dict[str, Any]] | None:
    """The topic's subjects; None without a registry. One that only the environment names may be away."""
    import asyncio
    import os

    from ottla.cli.schemas.connection import URL_VARIABLE, open_registry
    from ottla.model.errors import OttlaError

    if url is None and not os.environ.get(URL_VARIABLE):
        return None
    try:
        with open_registry(url, bootstrap, profile) as registry:
            from ottla.cli.schemas.topic_subjects import topic_subjects

            return await asyncio.to_thread(topic_subjects, registry, topic)
    except OttlaError as error:
        if url is not None:
            raise
        say(f"cannot show the subjects of {topic}: {error}")
        return None


async def _describe(cluster: "Cluster", topic: "TopicView") -> dict[str, Any]:
    from ottla.client.admin.config_requests import ConfigSource, Resource, ResourceType, describe_configs
    from ottla.client.admin.topic_requests import partition_sizes
    from ottla.client.network.list_offsets import offset_bounds
    from ottla.model.ids import TopicPartition

    led = [TopicPartition(topic.name, each.index) for each in topic.partitions if each.leader is not None]
    bounds = await offset_bounds(cluster, led)
    sizes = await partition_sizes(cluster, led)
    configs = await describe_configs(cluster, Resource(type=ResourceType.TOPIC, name=topic.name))
    partitions: list[dict[str, Any]] = []
    for each in topic.partitions:
        start, end = bounds.get(TopicPartition(topic.name, each.index), (None, None))
        partitions.append(
            {
                "partition": each.index,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "start_offset": start,
                "end_offset": end,
                "records": None if start is None or end is None else end - start,
                "size_bytes": sizes.get(TopicPartition(topic.name, each.index)),
            }
        )
    set_here = {each.name: each.value for each in configs if each.source is ConfigSource.TOPIC}
    retention = _retention({each.name: each.value for each in configs})
    return {"name": topic.name, "id": topic.id, **retention, "configs": set_here, "partitions": partitions}


def _retention(configs: dict[str, str | None]) -> dict[str, Any]:
    """After how long records are deleted, None for never, and from which time on that counts."""
    retention_ms = int(configs.get("retention.ms") or -1)
    if retention_ms < 0 or "delete" not in (configs.get("cleanup.policy") or ""):
        return {"retention_ms": None, "retention_from": None}
    gets_deliveries = configs.get("ottla.companion.kind") or "true" in (
        configs.get("ottla.delay.enable"),
        configs.get("ottla.half.enable"),
    )
    starts = "delivery" if gets_deliveries else "timestamp"
    if configs.get("message.timestamp.type") == "LogAppendTime":
        starts = "append"
    return {"retention_ms": retention_ms, "retention_from": starts}


_RETENTION_STARTS: Final = {
    "append": "the append",
    "delivery": "the delivery of a record by a queue, or else its timestamp",
    "timestamp": "the timestamp of a record",
}


def _retention_story(description: dict[str, Any]) -> str:
    if description["retention_ms"] is None:
        return "not by time"
    since = _RETENTION_STARTS[description["retention_from"]]
    return f"{human_duration(description['retention_ms'])} after {since}"


def _row(partition: dict[str, Any]) -> tuple[Any, ...]:
    size = partition["size_bytes"]
    return (
        partition["partition"],
        "none" if partition["leader"] is None else partition["leader"],
        partition["leader_epoch"],
        ",".join(map(str, partition["replicas"])),
        ",".join(map(str, partition["isr"])),
        partition["start_offset"],
        partition["end_offset"],
        None if size is None else human_bytes(size),
    )
