"""`ottla queues`: creates, lists and shows the queues of topics, and changes what is parked in them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import ExitStatus, application, examples, guarded, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, DryRun, Profile, TopicName, UsageError, parse_pairs
from ottla.cli.output import MISSING, human_count, print_facts, print_json, print_list, print_table, say, tell
from ottla.cli.progress import Progress
from ottla.cli.queues.dead_letters.command import app as dead_letters
from ottla.operations.durations import human_duration, parse_duration

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster
    from ottla.client.producer.async_producer import AsyncProducer
    from ottla.operations.queues.due_histogram import DueCounts
    from ottla.operations.queues.owed_scan import Parked
    from ottla.operations.queues.parked import ChosenRecords, QueueCounts
    from ottla.operations.queues.queue_topics import QueueTopic

app = application("Create, list and describe queues; show, cancel and deliver parked records; manage dead letters.")
app.add_typer(dead_letters, name="dead-letters")

_VALUE_WIDTH: Final = 60

OnePartition = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="N", help="Only in this partition.", min=0)
]
RecordId = Annotated[str | None, typer.Argument(metavar="ID", help="The records' ottla.delay.id.", show_default=False)]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="PARTITION:OFFSET", help="Partition and offset of the record, as shown by `peek`."),
]


@app.command(
    "create",
    epilog=examples(
        "ottla queues create orders --delay --partitions 6",
        "ottla queues create orders --retry --group billing --set ottla.retry.max.attempts=8",
        "ottla queues create offers --ttl 15m --dead-letters expired-offers",
        "ottla queues create payments --half",
    ),
)
def create(
    topic: TopicName,
    delay: Annotated[bool, typer.Option("--delay", help="Delayed delivery: produce to TOPIC.delayed.")] = False,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry", help="Retry with backoff: consumers hand records back by producing to TOPIC.GROUP.retry."
        ),
    ] = False,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", help="Create the retry topics of this group; may be repeated."),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Half messages: produce to TOPIC.half.")] = False,
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl",
            metavar="DURATION",
            help="Records expire after this time, such as 15m; with 0, only records with a TTL header expire.",
        ),
    ] = None,
    dead_letters: Annotated[
        str | None, typer.Option("--dead-letters", metavar="TOPIC", help="Dead-letter topic.", show_default="dlq.TOPIC")
    ] = None,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", metavar="N", help="Partitions of a new topic.", min=-1, show_default="set by the broker"
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="N",
            help="Replicas of each partition of a new topic.",
            min=-1,
            show_default="set by the broker",
        ),
    ] = -1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another config of the topic; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Enable queues on a topic. The topic is created if it does not exist, and so are its companions."""
    with guarded():
        configs = _wanted_configs(delay, retry or bool(group), half, ttl, dead_letters)
    configs |= parse_pairs(settings or [], "--set")
    _check_groups(topic, group or ())
    if not configs:
        raise UsageError("pass at least one of --delay, --retry, --half, --ttl and --dead-letters")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.topic_requests import create_topic
        from ottla.operations.queues.queue_topics import queue_topics

        is_new = await _create_or_configure(cluster, topic, configs, partitions, replication_factor, dry_run=dry_run)
        if dry_run:
            tell(f"queues of topic {topic} can be created")
            return
        for each in group or ():
            await _unless_exists(create_topic(cluster, f"{topic}.{each}.retry"))
        found = (await queue_topics(cluster))[topic]
        if as_json:
            print_json({**_document(found), "created": is_new})
        else:
            tell(f"{'created' if is_new else 'configured'} topic {topic} with queues: {', '.join(found.queues)}")
            print_facts(_directions(found))

    run_with_cluster(bootstrap, profile, work)


def _check_groups(topic: str, groups: Sequence[str]) -> None:
    """Before anything is created: the topics of a group have its id in their names."""
    from ottla.controller.topic_names import fault_of_name
    from ottla.model.queue_names import redelivery_topic

    for group in groups:
        fault = fault_of_name(redelivery_topic(topic, group)) if group else "its id is empty"
        if fault is not None:
            raise UsageError(f"group {group!r} cannot have retry topics: {fault}")


@app.command("list", epilog=examples("ottla queues list", "ottla queues list --json | jq -r '.[].topic'"))
def list_queues(bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the topics with queues, what is enabled on them, and their companions."""

    async def work(cluster: "Cluster") -> None:
        from ottla.operations.queues.queue_topics import queue_topics

        documents = [_document(each) for each in (await queue_topics(cluster)).values()]
        if not as_json:
            for document in documents:
                document["queues"] = ", ".join(document["queues"]) or "disabled"
                document["companions"] = ", ".join(sorted(document["companions"]))
        columns = {"topic": "topic", "queues": "queues", "dead letters": "dead_letters", "companions": "companions"}
        print_list(documents, columns, as_json=as_json)

    run_with_cluster(bootstrap, profile, work)


@app.command("describe", epilog=examples("ottla queues describe orders", "ottla queues describe orders.billing.retry"))
def describe(topic: TopicName, bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show what is parked in the queues of a topic, and when it is due.

    Reads the whole logs of the companion topics twice, which takes a while if many records are parked.
    """

    async def work(cluster: "Cluster") -> None:
        from ottla.operations.queues.parked import count_parked, parking_queues

        queues = await parking_queues(cluster, topic)
        with _shown_progress() as on_progress:
            described = [_described(each) for each in await count_parked(cluster, queues, on_progress)]
        if as_json:
            print_json(described)
            return
        for at, each in enumerate(described):
            if at:
                print()
            _print_described(each)

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


@app.command("peek", epilog=examples("ottla queues peek orders", "ottla queues peek orders --limit 100 --json"))
def peek(
    topic: TopicName,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", help="Maximum number of records to show.", min=1)
    ] = 10,
    partition: OnePartition = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the parked records that are due next. They stay parked."""

    async def work(cluster: "Cluster") -> None:
        from ottla.operations.queues.parked import next_parked, parking_queues

        places = [where for queue in await parking_queues(cluster, topic, partition) for where in queue.places]
        with _shown_progress() as on_progress:
            parked, count = await next_parked(cluster, places, limit, on_progress)
        now_ms = cluster.clock.now_ms()
        if as_json:
            print_json([_parked_document(each) for each in parked])
            return
        columns = ("queue", "record", "due", "in", "id", "key", "value")
        print_table(columns, [_parked_row(each, now_ms) for each in parked])
        if count > limit:
            say(f"{human_count(count, 'record')} in all; pass --limit to see more")

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


@app.command(
    "cancel",
    epilog=examples(
        "ottla queues cancel orders order-4711",
        "ottla queues cancel orders --at 0:1234",
        "ottla queues cancel orders.billing.retry --at 0:1234",
    ),
)
def cancel(
    topic: TopicName,
    record_id: RecordId = None,
    at: At = None,
    partition: OnePartition = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Cancel delayed records by their id, or one record by its place: they will not be delivered.

    By its place, a record that a group handed back can be cancelled too. It does not become a dead letter. The exit
    status is 1 if no delayed record has the id.
    """
    place = _checked_choice(record_id, at)
    confirm(f"cancel the parked records {record_id or at} of {topic}?", yes=yes)

    async def work(cluster: "Cluster") -> int:
        from ottla.operations.queues import instructions

        chosen = await _chosen(cluster, topic, record_id, place, partition)
        if chosen.records:
            async with _producer(bootstrap, profile) as producer:
                for where, offsets in chosen.records.items():
                    if place is None and chosen.id is not None:
                        await instructions.cancel(producer, where, chosen.id)
                    else:
                        await instructions.cancel_at(producer, where, offsets)
        return _told("cancelled", topic, chosen, as_json=as_json)

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


@app.command(
    "deliver-now",
    epilog=examples("ottla queues deliver-now orders order-4711", "ottla queues deliver-now orders --at 0:1234"),
)
def deliver_now(
    topic: TopicName,
    record_id: RecordId = None,
    at: At = None,
    partition: OnePartition = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Deliver delayed records now, regardless of when they are due.

    The exit status is 1 if no delayed record has the id.
    """
    place = _checked_choice(record_id, at)
    confirm(f"deliver the delayed records {record_id or at} of {topic} now?", yes=yes)

    async def work(cluster: "Cluster") -> int:
        chosen = await _chosen(cluster, topic, record_id, place, partition)
        await _release(bootstrap, profile, chosen)
        return _told("due now", topic, chosen, as_json=as_json)

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


@app.command(
    "reschedule",
    epilog=examples(
        "ottla queues reschedule orders --at 0:1234 --due 2h",
        "ottla queues reschedule orders --at 0:1234 --due 2030-05-01T12:00Z",
    ),
)
def reschedule(
    topic: TopicName,
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="PARTITION:OFFSET", help="Partition and offset of the record, as shown by `peek`."
        ),
    ],
    due: Annotated[
        str, typer.Option("--due", metavar="TIME", help="When to deliver it: 2030-05-01T12:00, or 2h from now.")
    ],
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Deliver a delayed record at another time. It is cancelled and parked again, in one transaction."""
    place = _checked_choice(None, at)
    with guarded():
        due_ms = _future(due)
    confirm(f"deliver the delayed record {at} of {topic} at {_moment(due_ms)}?", yes=yes)

    async def work(cluster: "Cluster") -> None:
        from ottla.operations.queues import instructions
        from ottla.operations.queues.parked import parked_at

        chosen = await _chosen(cluster, topic, None, place, None)
        ((where, offsets),) = chosen.records.items()
        parked = await parked_at(cluster, where, offsets[0])
        async with _producer(bootstrap, profile, instructions.rescheduling_id(where.topic)) as producer:
            await producer.init_transactions()
            await instructions.reschedule(producer, parked, due_ms)
        if as_json:
            print_json({"queue": where.topic, "partition": where.partition, "offset": offsets[0], "due_ms": due_ms})
        else:
            tell(f"rescheduled: record {at} of {where.topic} is due at {_moment(due_ms)}")

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


def _future(text: str) -> int:
    """A time in ms: ISO 8601, local without a zone, or a duration from now."""
    import time

    from ottla.operations.positions import parse_future

    return parse_future(text, time.time_ns() // 1_000_000)


@app.command(
    "retry-now",
    epilog=examples(
        "ottla queues retry-now orders.billing.retry --all",
        "ottla queues retry-now orders.billing.retry --at 0:1234",
    ),
)
def retry_now(
    queue: Annotated[str, typer.Argument(metavar="TOPIC.GROUP.retry", help="The queue of a group.")],
    at: At = None,
    every: Annotated[bool, typer.Option("--all", help="All records that wait for their next attempt.")] = False,
    partition: OnePartition = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Redeliver records that a group handed back, without waiting for their backoff.

    With ottla.retry.order=key, a record still waits for earlier records of its key. The exit status is 1 if no record
    waits.
    """
    if every is (at is not None):
        raise UsageError("pass either --all or --at PARTITION:OFFSET")
    place = None if at is None else _checked_choice(None, at)
    confirm(f"return {'all records' if at is None else f'record {at}'} of {queue} now?", yes=yes)

    async def work(cluster: "Cluster") -> int:
        from ottla.model.queue_names import CompanionKind
        from ottla.operations.queues.parked import chosen_if, parked_at, parking_queues
        from ottla.operations.queues.queue_topics import NoQueueError

        queues = await parking_queues(cluster, queue, partition if place is None else place[0])
        if [each.mark.kind for each in queues if each.name == queue] != [CompanionKind.RETRY]:
            raise NoQueueError(f"{queue} is not a queue of records that were handed back, such as orders.billing.retry")
        places = queues[0].places
        with _shown_progress() as on_progress:
            if place is None:
                chosen = await chosen_if(cluster, places, lambda _: True, on_progress)
            else:
                chosen = _only(await parked_at(cluster, places[0], place[1], on_progress))
        await _release(bootstrap, profile, chosen)
        return _told("due now", queue, chosen, as_json=as_json)

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


# Creating


def _wanted_configs(delay: bool, retry: bool, half: bool, ttl: str | None, dead_letters: str | None) -> dict[str, str]:
    enabled = {"ottla.delay.enable": delay, "ottla.retry.enable": retry, "ottla.half.enable": half}
    configs = {name: "true" for name, is_wanted in enabled.items() if is_wanted}
    if ttl is not None:
        ttl_ms = parse_duration(ttl, bare_unit="ms")
        configs |= {"ottla.ttl.ms": str(ttl_ms)} if ttl_ms else {"ottla.ttl.enable": "true"}
    if dead_letters is not None:
        configs["errors.deadletterqueue.topic.name"] = dead_letters
    return configs


async def _create_or_configure(
    cluster: "Cluster",
    topic: str,
    configs: Mapping[str, str],
    partitions: int,
    replication_factor: int,
    *,
    dry_run: bool,
) -> bool:
    """Whether the topic is new."""
    from ottla.client.admin.config_requests import Resource, ResourceType, alter_configs
    from ottla.client.admin.topic_requests import create_topic

    is_new = await _unless_exists(
        create_topic(
            cluster,
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
            validate_only=dry_run,
        )
    )
    if not is_new:
        if partitions != -1 or replication_factor != -1:
            raise UsageError(f"topic {topic} exists; omit --partitions and --replication-factor")
        resource = Resource(type=ResourceType.TOPIC, name=topic)
        await alter_configs(cluster, resource, configs, validate_only=dry_run)
    return is_new


async def _unless_exists(creation: Any) -> bool:
    from ottla.client.errors import AnswerError
    from ottla.model.error_codes import ErrorCode

    try:
        await creation
    except AnswerError as error:
        if error.error_code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def _document(topic: "QueueTopic") -> dict[str, Any]:
    return {
        "topic": topic.name,
        "queues": topic.queues,
        "dead_letters": topic.dead_letters,
        "companions": {name: kind.value for name, kind in sorted(topic.companions.items())},
        "configs": dict(topic.configs),
    }


def _directions(topic: "QueueTopic") -> dict[str, str]:
    """What to do with the queues of a topic."""
    name, queues = topic.name, topic.queues
    facts = {}
    if "delay" in queues:
        facts["delay"] = f"produce to {name}.delayed with header ottla.delay-ms or ottla.deliver-at-ms"
    if "retry" in queues:
        facts["retry"] = f"produce to {name}.GROUP.retry; the group also reads {name}.GROUP.redelivery"
    if "half" in queues:
        facts["half"] = (
            f"produce to {name}.half with headers ottla.half.id and ottla.half.state; read {name}.half-checks"
        )
    if "ttl" in queues:
        facts["ttl"] = "records expire by header ottla.ttl-ms" + (
            f", others after {human_duration(topic.settings.ttl_ms)}"
            if topic.settings and topic.settings.ttl_ms >= 0
            else ""
        )
    if topic.dead_letters is not None:
        facts["dead letters"] = topic.dead_letters
    return facts


# Looking at what is parked


@contextmanager
def _shown_progress() -> "Iterator[Callable[[int, int], None]]":
    """Shows how much was read, while the block runs."""
    progress = Progress()

    def on_progress(done: int, total: int) -> None:
        progress.tick(lambda: f"{done:,} of {human_count(total, 'offset')} read")

    try:
        yield on_progress
    finally:
        progress.end()


def _described(found: "QueueCounts") -> dict[str, Any]:
    mark, every = found.queue.mark, found.every
    return {
        "queue": found.queue.name,
        "topic": mark.topic,
        "kind": mark.kind.value,
        **_counts(every),
        "oldest_ms": found.oldest_ms,
        "histogram": [
            {"due": each.label, "within_ms": each.within_ms, "records": each.records} for each in every.buckets()
        ],
        "partitions": [
            {"partition": where.partition, **_counts(each)} for where, each in sorted(found.partitions.items())
        ],
    }


def _counts(counts: "DueCounts") -> dict[str, Any]:
    return {
        "parked": counts.parked,
        "due": counts.due,
        "late_ms": counts.late_ms,
        "next_due_ms": counts.next_due_ms,
    }


def _print_described(described: dict[str, Any]) -> None:
    from ottla.operations.queues.due_histogram import bar

    oldest, first = described["oldest_ms"], described["next_due_ms"]
    print_facts(
        {
            "queue": described["queue"],
            "kind": f"{described['kind']}, for topic {described['topic']}",
            "parked": human_count(described["parked"], "record"),
            "due": human_count(described["due"], "record"),
            "late by": human_duration(described["late_ms"]) if described["due"] else MISSING,
            "next due": MISSING if first is None else _moment(first),
            "oldest": MISSING if oldest is None else _moment(oldest),
        }
    )
    if described["parked"]:
        print()
        largest = max(each["records"] for each in described["histogram"])
        bars = [(each["due"], each["records"], bar(each["records"], largest)) for each in described["histogram"]]
        print_table(("due", "records", ""), bars)
    print()
    rows = [
        (
            each["partition"],
            each["parked"],
            each["due"],
            human_duration(each["late_ms"]) if each["due"] else MISSING,
            MISSING if each["next_due_ms"] is None else _moment(each["next_due_ms"]),
        )
        for each in described["partitions"]
    ]
    print_table(("partition", "parked", "due", "late by", "next due"), rows)


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _parked_document(parked: "Parked") -> dict[str, Any]:
    partition, owed, record = parked
    return {
        "queue": partition.topic,
        "partition": partition.partition,
        "offset": owed.offset,
        "due_ms": owed.due_ms,
        "timestamp_ms": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _parked_row(parked: "Parked", now_ms: int) -> tuple[Any, ...]:
    from ottla.model.queue_names import DELAY_ID, HALF_ID

    partition, owed, record = parked
    headers = dict(record.headers)
    value = _text(record.value)
    return (
        partition.topic,
        f"{partition.partition}:{owed.offset}",
        _moment(owed.due_ms),
        human_duration(owed.due_ms - now_ms) if owed.due_ms > now_ms else "now",
        _text(headers.get(DELAY_ID) or headers.get(HALF_ID)) or MISSING,
        _text(record.key) or MISSING,
        MISSING if value is None else value if len(value) <= _VALUE_WIDTH else f"{value[:_VALUE_WIDTH]}...",
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


# Changing what is parked


def _checked_choice(record_id: str | None, at: str | None) -> tuple[int, int] | None:
    if (record_id is None) is (at is None):
        raise UsageError("pass either an ID or --at PARTITION:OFFSET")
    if at is None:
        return None
    index, _, offset = at.partition(":")
    if not (index.isdecimal() and offset.isdecimal()):
        raise UsageError(f"{at!r} is not PARTITION:OFFSET, such as 0:1234")
    return int(index), int(offset)


async def _chosen(
    cluster: "Cluster", topic: str, record_id: str | None, place: tuple[int, int] | None, partition: int | None
) -> "ChosenRecords":
    """The delayed records that have the id, or the record at the place: of TOPIC.delayed, or of the queue itself."""
    from ottla.model.ids import TopicPartition
    from ottla.model.queue_names import CompanionKind, delayed_topic
    from ottla.operations.queues.parked import chosen_if, parked_at, parking_queues
    from ottla.operations.queues.queue_topics import NoQueueError

    is_queue = topic.endswith((".delayed", ".retry"))
    name = topic if is_queue else delayed_topic(topic)
    queue = (await parking_queues(cluster, name, partition if place is None else place[0]))[0]
    kind = queue.mark.kind
    if place is not None and kind in (CompanionKind.DELAYED, CompanionKind.RETRY):
        with _shown_progress() as on_progress:
            return _only(await parked_at(cluster, TopicPartition(name, place[0]), place[1], on_progress))
    if kind is not CompanionKind.DELAYED or record_id is None:
        raise NoQueueError(f"{name} is not a queue of delayed records")
    id = record_id.encode("utf-8", "surrogateescape")
    with _shown_progress() as on_progress:
        chosen = await chosen_if(cluster, queue.places, lambda owed: owed.id == id, on_progress)
    return chosen._replace(id=id)


def _only(parked: "Parked") -> "ChosenRecords":
    from ottla.operations.queues.parked import ChosenRecords

    return ChosenRecords(parked.owed.id, {parked.partition: [parked.owed.offset]})


async def _release(bootstrap: str | None, profile: str | None, chosen: "ChosenRecords") -> None:
    from ottla.operations.queues import instructions

    if chosen.records:
        async with _producer(bootstrap, profile) as producer:
            for where, offsets in chosen.records.items():
                await instructions.release(producer, where, offsets)


def _producer(bootstrap: str | None, profile: str | None, transactional_id: str | None = None) -> "AsyncProducer":
    from ottla.cli.profile.store import chosen_connection
    from ottla.client.producer.async_producer import AsyncProducer

    connection = chosen_connection(bootstrap, profile)
    return AsyncProducer(
        bootstrap_servers=connection.bootstrap,
        client_id=connection.client_id,
        **connection.options,
        transactional_id=transactional_id,
        max_request_size=64 << 20,
        buffer_memory=128 << 20,
    )


def _told(what: str, topic: str, chosen: "ChosenRecords", *, as_json: bool) -> int:
    count = chosen.total
    with_id = "" if chosen.id is None else f" with id {_text(chosen.id)}"
    if as_json:
        records = [
            {"partition": where.partition, "offset": offset}
            for where, offsets in chosen.records.items()
            for offset in offsets
        ]
        print_json({"topic": topic, "id": _text(chosen.id), "records": records})
    elif count:
        tell(f"{what}: {human_count(count, 'parked record')} of {topic}{with_id}")
    else:
        say(f"ottla: topic {topic} has no parked record{with_id}")
    return ExitStatus.DONE if count else ExitStatus.REFUSED
