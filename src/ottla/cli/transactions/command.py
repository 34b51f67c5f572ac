"""`ottla transactions`: lists and describes transactions and producers, finds hanging transactions, and aborts them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import ExitStatus, application, examples, guarded, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.known_brokers import refuse_unknown_broker
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, UsageError, parse_choices
from ottla.cli.output import MISSING, human_count, print_facts, print_json, print_list, print_table, say, tell
from ottla.cli.progress import Progress
from ottla.cli.topic_choices import Topics, checked_topic_choices
from ottla.operations.durations import human_duration, parse_duration

if TYPE_CHECKING:
    from ottla.client.admin.hanging_transactions import OpenTransaction
    from ottla.client.admin.transaction_requests import ActiveProducer, TransactionDescription
    from ottla.client.network.cluster import Cluster
    from ottla.model.ids import TopicPartition

app = application("List and describe transactions; find and abort hanging ones.")

FIRST_COORDINATOR_EPOCH: Final = 0
"""Accepted by a partition into which no coordinator has written yet."""
_TRANSACTION_FIELDS: Final = ("transactional_id", "state", "producer_id", "coordinator")

Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", help="Only this partition of the topics; may be repeated.", min=0),
]
OneTopic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic.", show_default=False)]
OnePartition = Annotated[
    int, typer.Option("--partition", "-p", metavar="N", help="Partition.", min=0, show_default=False)
]
StartOffset = Annotated[
    int | None, typer.Option("--start-offset", metavar="OFFSET", help="First offset of the transaction.", min=0)
]
ProducerId = Annotated[
    int | None,
    typer.Option("--producer-id", metavar="ID", help="Producer of the transaction, instead of --start-offset.", min=0),
]
ProducerEpoch = Annotated[
    int | None, typer.Option("--producer-epoch", metavar="N", help="Required with --producer-id.", min=0, max=32767)
]
CoordinatorEpoch = Annotated[
    int | None, typer.Option("--coordinator-epoch", metavar="N", help="Required with --producer-id.", min=-1)
]
States = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE,...", help="Only these states, such as Ongoing; may be repeated."),
]
ProducerIds = Annotated[
    list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only of this producer; may be repeated.")
]
LongerThan = Annotated[
    str | None,
    typer.Option(
        "--duration",
        "--duration-filter",
        metavar="DURATION",
        help="Only transactions open for longer than this, such as 90s, 5m, or a number of milliseconds.",
    ),
]
IdPattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        "--transactional-id-pattern",
        metavar="REGEX",
        help="Only transactional ids that match this regular expression as a whole.",
    ),
]
Broker = Annotated[
    int | None,
    typer.Option(
        "--broker", "--broker-id", metavar="ID", help="Ask this broker instead of the partition leaders.", min=0
    ),
]


@app.command(
    "list",
    epilog=examples(
        "ottla transactions list",
        "ottla transactions list --state Ongoing --duration 5m",
        "ottla transactions list --pattern 'etl-.*'",
    ),
)
def list_transactions(
    state: States = None,
    producer_id: ProducerIds = None,
    duration: LongerThan = None,
    pattern: IdPattern = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids with their producer id, state and coordinator."""
    from ottla.client.admin.transaction_requests import STATES

    states = parse_choices(state, STATES, "--state")
    with guarded():
        duration_ms = -1 if duration is None else parse_duration(duration, bare_unit="ms")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.transaction_requests import list_transactions

        found = await list_transactions(
            cluster, states=states, producer_ids=producer_id or (), duration_ms=duration_ms, pattern=pattern
        )
        documents = [
            {
                "transactional_id": each.transactional_id,
                "state": each.state,
                "producer_id": each.producer_id,
                "coordinator": each.coordinator,
            }
            for each in found
        ]
        print_list(documents, {field.replace("_", " "): field for field in _TRANSACTION_FIELDS}, as_json=as_json)

    run_with_cluster(bootstrap, profile, work)


@app.command("describe", epilog=examples("ottla transactions describe etl-7"))
def describe(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="Transactional id.", show_default=False)],
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show a transactional id: its state, producer, timeout, start time and partitions."""

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.transaction_requests import describe_transaction

        found = await describe_transaction(cluster, transactional_id)
        running_ms = max(cluster.clock.now_ms() - (found.start_ms or 0), 0) if found.is_under_way else None
        if as_json:
            print_json(_transaction_document(found, running_ms))
        else:
            _print_transaction(found, running_ms)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "describe-producers",
    epilog=examples(
        "ottla transactions describe-producers --topic events",
        "ottla transactions describe-producers --topic events:0,1 --json",
    ),
)
def describe_producers(
    topic: Topics = None,
    partition: Partitions = None,
    broker: Broker = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the active producers of partitions, and where their open transactions begin."""
    choices = checked_topic_choices(topic, required=True)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.transaction_requests import describe_producers
        from ottla.operations.topic_choices import chosen_partitions

        await refuse_unknown_broker(cluster, broker)
        partitions = await chosen_partitions(cluster, choices, partition or ())
        found = await describe_producers(cluster, partitions, broker=broker)
        pairs = [(where, each) for where, producers in found.items() for each in producers]
        if as_json:
            print_json([_producer_document(where, each) for where, each in pairs])
        else:
            _print_producers(pairs)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "hanging",
    epilog=examples(
        "ottla transactions hanging", "ottla transactions hanging --topic events --max-transaction-timeout 1h"
    ),
)
def hanging(
    topic: Topics = None,
    partition: Partitions = None,
    broker: Broker = None,
    max_transaction_timeout: Annotated[
        str,
        typer.Option(
            "--max-transaction-timeout",
            metavar="DURATION",
            help="The brokers' transaction.max.timeout.ms, such as 15m; a number alone is in minutes.",
        ),
    ] = "15m",
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Find hanging transactions: open in a partition for too long, and not known to any coordinator.

    They block read_committed consumers. Searches all partitions unless --topic or --broker is given. The exit status
    is 1 if any is found.
    """
    choices = checked_topic_choices(topic)
    if partition and not choices:
        raise UsageError("--partition needs --topic")
    with guarded():
        timeout_ms = parse_duration(max_transaction_timeout, bare_unit="m")

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.hanging_transactions import find_hanging

        await refuse_unknown_broker(cluster, broker)
        partitions = await _searched(cluster, choices, partition or [], broker)
        progress = Progress()

        def on_progress(searched: int) -> None:
            progress.tick(lambda: f"{searched:,} of {human_count(len(partitions), 'partition')} searched")

        try:
            found = await find_hanging(
                cluster, partitions, timeout_ms=timeout_ms, broker=broker, on_progress=on_progress
            )
        finally:
            progress.end()
        if as_json:
            print_json([_hanging_document(each, cluster.clock.now_ms()) for each in found])
        else:
            _print_hanging(found, len(partitions), cluster.clock.now_ms())
        return ExitStatus.REFUSED if found else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


@app.command(
    "abort",
    epilog=examples(
        "ottla transactions abort --topic events --partition 0 --start-offset 4711",
        "ottla transactions abort -t events -p 0 --producer-id 9 --producer-epoch 0 --coordinator-epoch 3",
    ),
)
def abort(
    topic: OneTopic,
    partition: OnePartition,
    start_offset: StartOffset = None,
    producer_id: ProducerId = None,
    producer_epoch: ProducerEpoch = None,
    coordinator_epoch: CoordinatorEpoch = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Abort a hanging transaction in one partition: the records that it wrote there are discarded.

    `ottla transactions hanging` finds them. Do not abort a transaction whose producer is still running.
    """
    ids = [producer_id, producer_epoch, coordinator_epoch]
    if (start_offset is None) is (None in ids) or (start_offset is not None and ids != [None] * 3):
        raise UsageError("pass either --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    which = f"at offset {start_offset}" if producer_id is None else f"of producer {producer_id}"
    confirm(f"abort the transaction {which} in {topic}-{partition}?", yes=yes)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.transaction_requests import abort_transaction, open_transaction_at
        from ottla.model.ids import TopicPartition

        where = TopicPartition(topic, partition)
        found_id, found_epoch, found_coordinator = producer_id, producer_epoch, coordinator_epoch
        if start_offset is not None:
            producer = await open_transaction_at(cluster, where, start_offset)
            found_id, found_epoch = producer.producer_id, producer.producer_epoch
            found_coordinator = producer.coordinator_epoch
        await abort_transaction(
            cluster,
            where,
            producer_id=found_id or 0,
            producer_epoch=found_epoch or 0,
            coordinator_epoch=FIRST_COORDINATOR_EPOCH if found_coordinator is None else found_coordinator,
        )
        if as_json:
            print_json({"topic": topic, "partition": partition, "producer_id": found_id, "aborted": True})
        else:
            tell(f"{where}: aborted the transaction of producer {found_id}")

    run_with_cluster(bootstrap, profile, work)


@app.command("terminate", epilog=examples("ottla transactions terminate etl-7 --yes"))
def terminate(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="Transactional id.", show_default=False)],
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Abort the open transaction of a transactional id in all partitions. Its producer is fenced."""
    confirm(f"abort the open transaction of {transactional_id} and fence its producer?", yes=yes)

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.profile.store import chosen_connection
        from ottla.client.producer.async_producer import AsyncProducer
        from ottla.operations.termination import terminate_transaction

        connection = chosen_connection(bootstrap, profile)

        def new_producer(id: str) -> AsyncProducer:
            return AsyncProducer(
                bootstrap_servers=connection.bootstrap,
                client_id=connection.client_id,
                **connection.options,
                transactional_id=id,
            )

        ended = await terminate_transaction(cluster, transactional_id, new_producer)
        if as_json:
            print_json(_transaction_document(ended, None))
        else:
            tell(f"{transactional_id}: aborted the transaction of producer {ended.producer_id}")

    run_with_cluster(bootstrap, profile, work)


# The name in Kafka's tool.
app.command("find-hanging", hidden=True)(hanging)


async def _searched(
    cluster: "Cluster", choices: list[str], indexes: list[int], broker: int | None
) -> "list[TopicPartition]":
    """The partitions that were chosen, or all that have a leader; of one broker only those it has a replica of."""
    from ottla.model.ids import TopicPartition
    from ottla.operations.topic_choices import chosen_partitions

    if choices:
        return await chosen_partitions(cluster, choices, indexes)
    view = await cluster.refresh()
    return sorted(
        TopicPartition(topic.name, each.index)
        for topic in view.topics.values()
        for each in topic.partitions
        if (each.leader is not None if broker is None else broker in each.replicas)
    )


# What is printed


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _print_transaction(found: "TransactionDescription", running_ms: int | None) -> None:
    from ottla.operations.groups.progress import partitions_text

    print_facts(
        {
            "transactional id": found.transactional_id,
            "state": found.state,
            "coordinator": found.coordinator,
            "producer id": found.producer_id,
            "producer epoch": found.producer_epoch,
            "timeout": human_duration(found.timeout_ms),
            "started": MISSING if found.start_ms is None else _moment(found.start_ms),
            "running for": MISSING if running_ms is None else human_duration(running_ms),
            "partitions": partitions_text(found.partitions) or "none",
        }
    )


def _transaction_document(found: "TransactionDescription", running_ms: int | None) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms,
        "running_ms": running_ms,
        "partitions": [{"topic": each.topic, "partition": each.partition} for each in found.partitions],
    }


def _producer_document(partition: "TopicPartition", producer: "ActiveProducer") -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.start_offset,
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
    }


def _producer_row(partition: "TopicPartition", producer: "ActiveProducer") -> tuple[Any, ...]:
    return (
        partition.topic,
        partition.partition,
        producer.producer_id,
        producer.producer_epoch,
        MISSING if producer.coordinator_epoch is None else producer.coordinator_epoch,
        MISSING if producer.start_offset is None else producer.start_offset,
        producer.last_sequence,
        _moment(producer.last_timestamp_ms),
    )


_PRODUCER_COLUMNS: Final = (
    "topic",
    "partition",
    "producer id",
    "epoch",
    "coordinator epoch",
    "start offset",
    "last sequence",
    "last write",
)


def _print_producers(pairs: "list[tuple[TopicPartition, ActiveProducer]]") -> None:
    print_table(_PRODUCER_COLUMNS, [_producer_row(where, each) for where, each in pairs])


def _hanging_document(found: "OpenTransaction", now_ms: int) -> dict[str, Any]:
    return _producer_document(found.partition, found.producer) | {
        "transactional_id": found.transactional_id,
        "silent_ms": max(now_ms - found.producer.last_timestamp_ms, 0),
    }


def _print_hanging(found: "list[OpenTransaction]", searched: int, now_ms: int) -> None:
    if not found:
        tell(f"no hanging transactions in {human_count(searched, 'partition')}")
        return
    rows = [
        (
            *_producer_row(each.partition, each.producer)[:6],
            each.transactional_id or MISSING,
            human_duration(max(now_ms - each.producer.last_timestamp_ms, 0)),
        )
        for each in found
    ]
    print_table((*_PRODUCER_COLUMNS[:6], "transactional id", "silent for"), rows)
    say("`ottla transactions abort --topic TOPIC --partition N --start-offset OFFSET` aborts one")
