"""`ottla bench`: producing, consuming and end-to-end latency, against any broker that speaks Kafka's protocol.

The same tool measures Ottla and Kafka. Each command creates a topic and deletes it afterwards, or uses that of
`--topic`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command_runner import application, examples, run_with_cluster
from ottla.cli.options import Acks, AsJson, Bootstrap, Compression, Profile, parse_acks, parse_codec, parse_size
from ottla.cli.output import human_bytes, print_json, print_table
from ottla.cli.progress import Progress

if TYPE_CHECKING:
    from ottla.cli.bench.loads import LoadShape, Tick
    from ottla.cli.bench.results import BenchResult
    from ottla.client.network.cluster import Cluster
    from ottla.model.ids import TopicPartition

app = application("Measure producing, consuming and end-to-end latency of any broker that speaks Kafka's protocol.")

Records = Annotated[int, typer.Option("--records", "-n", metavar="N", min=1, help="Number of records.")]
Size = Annotated[
    str, typer.Option("--size", "-s", metavar="BYTES", help="Size of a record's value, such as 100 or 1k.")
]
Partitions = Annotated[
    int, typer.Option("--partitions", "-p", metavar="N", min=1, help="Partitions of the topic that is created.")
]
Duration = Annotated[
    float,
    typer.Option(
        "--duration", metavar="SECONDS", min=0, help="Run this long instead of counting records.", show_default=False
    ),
]
Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Use this topic, and keep it, instead of creating one.")
]
BatchSize = Annotated[
    str, typer.Option("--batch-size", metavar="BYTES", help="Size of a batch before compression, such as 64k.")
]
InFlight = Annotated[
    int, typer.Option("--in-flight", metavar="N", min=1, help="Requests in flight on each connection.")
]
Connections = Annotated[int, typer.Option("--connections", metavar="N", min=1, help="Connections to each broker.")]
Rate = Annotated[
    float,
    typer.Option("--rate", metavar="N", min=0, help="Records per second in total; 0 for as many as possible."),
]


@app.command("produce", epilog=examples("ottla bench produce", "ottla bench produce --size 1k --acks 1 --duration 10"))
def produce(
    records: Records = 1_000_000,
    size: Size = "100",
    partitions: Partitions = 1,
    acks: Acks = "all",
    compression: Compression = "none",
    batch_size: BatchSize = "64k",
    in_flight: InFlight = 5,
    connections: Connections = 1,
    rate: Rate = 0,
    duration: Duration = 0,
    topic: Topic = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Measure producing: send prebuilt batches as fast as possible, or at a rate.

    The latency is that of Produce requests.
    """
    shape = _shape(records, size, batch_size, acks, compression, in_flight, connections, rate, duration)

    async def measure(cluster: "Cluster", tick: "Tick") -> "BenchResult":
        from ottla.cli.bench.loads import ProduceLoad

        async with _topic(cluster, topic, partitions) as chosen:
            return await ProduceLoad(cluster, chosen, shape, tick).run()

    _run(bootstrap, profile, measure, as_json=as_json)


@app.command("consume", epilog=examples("ottla bench consume", "ottla bench consume --topic events"))
def consume(
    records: Records = 5_000_000,
    size: Size = "100",
    partitions: Partitions = 1,
    compression: Compression = "none",
    batch_size: BatchSize = "64k",
    connections: Connections = 1,
    duration: Duration = 0,
    topic: Topic = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Measure consuming: fetch as fast as possible and count records by batch headers.

    Without --topic, the records are written first.
    """
    shape = _shape(records, size, batch_size, "1", compression, 5, 1, 0, 0)

    async def measure(cluster: "Cluster", tick: "Tick") -> "BenchResult":
        from ottla.cli.bench.loads import ProduceLoad, consume_load
        from ottla.client.fetch.range_fetch import OffsetRange
        from ottla.client.network.list_offsets import offset_bounds

        async with _topic(cluster, topic, partitions) as chosen:
            if topic is None:
                await ProduceLoad(cluster, chosen, shape, tick).run()
            bounds = await offset_bounds(cluster, chosen)
            ranges = {each: OffsetRange(start=start, end=end) for each, (start, end) in bounds.items()}
            return await consume_load(
                cluster, ranges, records=records, seconds=duration, connections=connections, tick=tick
            )

    _run(bootstrap, profile, measure, as_json=as_json)


@app.command("latency", epilog=examples("ottla bench latency", "ottla bench latency --rate 5000 --duration 30"))
def latency(
    records: Records = 10_000,
    size: Size = "100",
    partitions: Partitions = 1,
    acks: Acks = "all",
    compression: Compression = "none",
    rate: Annotated[float, typer.Option("--rate", metavar="N", min=0.001, help="Records per second.")] = 1000,
    duration: Duration = 0,
    topic: Topic = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Measure end-to-end latency: send single records at a rate and read them back.

    The latency of a record is the time from when it was due to when it arrived.
    """
    shape = _shape(records, size, size, acks, compression, 1, 1, rate, duration)

    async def measure(cluster: "Cluster", tick: "Tick") -> "BenchResult":
        from ottla.cli.bench.latency import LatencyLoad
        from ottla.client.network.list_offsets import offset_bounds

        async with _topic(cluster, topic, partitions) as chosen:
            bounds = await offset_bounds(cluster, chosen)
            ends = {each: end for each, (_, end) in bounds.items()}
            return await LatencyLoad(cluster, chosen, shape, tick).run(ends)

    _run(bootstrap, profile, measure, as_json=as_json)


def _run(
    bootstrap: str | None,
    profile: str | None,
    measure: "Callable[[Cluster, Tick], Awaitable[BenchResult]]",
    *,
    as_json: bool,
) -> None:
    async def work(cluster: "Cluster") -> None:
        progress = Progress()
        began = last = 0.0

        def tick(records: int, size: int) -> None:
            nonlocal began, last
            if records < last:
                # The count begins again when `consume` has written the records that it reads.
                began = progress.seconds
            last = records
            seconds = max(progress.seconds - began, 1e-9)
            progress.tick(
                lambda: (
                    f"{records:,} records, {human_bytes(size)}, {records / seconds:,.0f} records/s, "
                    f"{human_bytes(size / seconds)}/s"
                )
            )

        try:
            result = (await measure(cluster, tick)).document()
        finally:
            progress.end()
        if as_json:
            print_json(result)
        else:
            print_table(
                ("measure", "value"), [(name.replace("_", " "), _shown(value)) for name, value in result.items()]
            )

    run_with_cluster(bootstrap, profile, work, in_bulk=True)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _shape(
    records: int,
    size: str,
    batch_size: str,
    acks: str,
    compression: str,
    in_flight: int,
    connections: int,
    rate: float,
    duration: float,
) -> "LoadShape":
    from ottla.cli.bench.loads import LoadShape

    return LoadShape(
        records=records,
        record_bytes=parse_size(size, "--size"),
        batch_bytes=parse_size(batch_size, "--batch-size"),
        acks=parse_acks(acks),
        codec=parse_codec(compression),
        in_flight=in_flight,
        connections=connections,
        rate=rate,
        seconds=duration,
    )


@asynccontextmanager
async def _topic(cluster: "Cluster", name: str | None, partitions: int) -> "AsyncIterator[list[TopicPartition]]":
    """The partitions of the named topic, or of a new one that is deleted afterwards."""
    from ottla.client.admin.topic_requests import create_topic, delete_topic
    from ottla.client.network.list_offsets import START, list_offsets
    from ottla.model.errors import OttlaError
    from ottla.model.ids import TopicPartition

    chosen = name or f"ottla-bench-{cluster.random.randbytes(4).hex()}"
    if name is None:
        await create_topic(cluster, chosen, partitions=partitions)
    try:
        # The leaders of a new topic may not be known at once.
        topic = await cluster.retry(lambda: cluster.topic(chosen, fresh=True))
        found = [TopicPartition(chosen, each.index) for each in topic.partitions]
        # Retried until every leader answers: a leader that answers ListOffsets also accepts records.
        await list_offsets(cluster, dict.fromkeys(found, START))
        yield found
    finally:
        if name is None:
            with suppress(OttlaError):
                await delete_topic(cluster, chosen)
