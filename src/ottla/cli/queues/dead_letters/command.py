"""`ottla queues dead-letters`: lists and shows dead letters, sends them back to their topics, and deletes them."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import ExitStatus, application, examples, guarded, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, UsageError
from ottla.cli.output import (
    MISSING,
    human_count,
    print_facts,
    print_json,
    print_list,
    print_table,
    say,
    tell,
)
from ottla.cli.progress import Progress

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster
    from ottla.client.producer.async_producer import AsyncProducer
    from ottla.operations.dead_letters.letters import Letter, LetterFilter
    from ottla.operations.dead_letters.redrive import RedriveOutcome, RedriveRules

app = application("List and show dead letters; send them back to their topics, or delete them.")

_LISTED_MAX: Final = 100
_REASON_WIDTH: Final = 60

DeadLetterTopic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the dead-letter topic.", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only letters at or after this time, such as 2024-05-01T12:00, or 2h for two hours ago.",
    ),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only letters before this time.")]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only letters whose reason or exception contains this.")
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only letters with this key.")]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Only letters with this header; may be repeated."),
]
Origin = Annotated[
    str | None, typer.Option("--origin", metavar="TOPIC", help="Only letters that came from this topic.")
]
Group = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Only letters that this group could not handle.")
]


@app.command(
    "list",
    epilog=examples(
        "ottla queues dead-letters list",
        "ottla queues dead-letters list dlq.orders --since 2h --reason timeout",
        "ottla queues dead-letters list dlq.orders --json | jq -r '.[].reason' | sort | uniq -c",
    ),
)
def list_letters(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="A dead-letter topic; omit it to list these topics.", show_default=False),
    ] = None,
    since: Since = None,
    until: Until = None,
    reason: Reason = None,
    key: Key = None,
    header: Headers = None,
    origin: Origin = None,
    group: Group = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", help="Maximum number of letters to list.", min=1)
    ] = _LISTED_MAX,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the letters of a dead-letter topic, with their origin and the reason; or the dead-letter topics."""
    chosen = _filter(since, until, reason, key, header, origin, group)
    if topic is None and not chosen.is_open:
        raise UsageError("filters need the name of a dead-letter topic")

    async def work(cluster: "Cluster") -> None:
        from ottla.operations.dead_letters.topics import dead_letter_topics

        if topic is None:
            print_list(
                [
                    {"topic": each.name, "partitions": each.partitions, "records": each.records}
                    for each in await dead_letter_topics(cluster)
                ],
                {"topic": "topic", "partitions": "partitions", "records": "records"},
                as_json=as_json,
            )
            return
        found, is_cut = await _find(cluster, topic, chosen, limit)
        if as_json:
            print_json([_document(each) for each in found])
        else:
            columns = ("letter", "time", "origin", "group", "tries", "reason", "key")
            print_table(columns, [_row(each) for each in found])
        if is_cut:
            say(f"only the first {human_count(limit, 'letter')}; pass --limit to list more")

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


@app.command("show", epilog=examples("ottla queues dead-letters show dlq.orders 0:17"))
def show(
    topic: DeadLetterTopic,
    letter: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION:OFFSET",
            help="Partition and offset of the letter, as shown by `list`.",
            show_default=False,
        ),
    ],
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show one letter: where it came from, why it died, its headers, key and value."""
    index, colon, at = letter.partition(":")
    if not colon or not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in (index, at)):
        raise UsageError(f"{letter!r} is not PARTITION:OFFSET, such as 0:17")

    async def work(cluster: "Cluster") -> int:
        from ottla.model.ids import TopicPartition
        from ottla.operations.dead_letters.letters import bounds_of, read_letters

        partition, offset = TopicPartition(topic, int(index)), int(at)
        start, end = (await bounds_of(cluster, topic)).get(partition, (0, 0))
        if start <= offset < end:
            async for _, _, found in read_letters(cluster, {partition: (offset, offset + 1)}):
                for each in found:
                    _print_letter(each, as_json=as_json)
                    return ExitStatus.DONE
        say(f"ottla: dead-letter topic {topic} has no letter {letter}")
        return ExitStatus.REFUSED

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "redrive",
    epilog=examples(
        "ottla queues dead-letters redrive dlq.orders --dry-run",
        "ottla queues dead-letters redrive dlq.orders --reason timeout --rate 100",
        "ottla queues dead-letters redrive dlq.orders --to orders-repair --yes",
    ),
)
def redrive(
    topic: DeadLetterTopic,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TOPIC", help="Send all letters to this topic instead of the topics that they came from."
        ),
    ] = None,
    to_group: Annotated[
        bool,
        typer.Option(
            "--to-group",
            help="Send each letter to the redelivery topic of the group that rejected it, so that no other group"
            " reads it again.",
        ),
    ] = False,
    since: Since = None,
    until: Until = None,
    reason: Reason = None,
    key: Key = None,
    header: Headers = None,
    origin: Origin = None,
    group: Group = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="At most N letters per second.", min=0.001)
    ] = None,
    max_redrives: Annotated[
        int, typer.Option("--max-redrives", metavar="N", help="Skip letters that were redriven N times.", min=1)
    ] = 3,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also send expired letters, with a new time, and half messages that were never committed."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the letters; send nothing.")] = False,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Send letters back to the topics that they came from, each exactly once.

    A command that was interrupted continues when it is run again. Letters that were redriven before, with any
    filters, are not redriven again. They stay in the dead-letter topic until they are purged.
    """
    if to is not None and to_group:
        raise UsageError("pass either --to or --to-group")
    with guarded():
        rules = _rules(topic, _filter(since, until, reason, key, header, origin, group), to, to_group)
    rules = _limited(rules, rate, max_redrives, is_forced=force)
    if not dry_run:
        confirm(f"send the chosen letters of {topic} back?", yes=yes)

    async def work(cluster: "Cluster") -> int:
        from ottla.operations.dead_letters.redrive import Redrive

        progress = Progress()

        def on_progress(outcome: "RedriveOutcome") -> None:
            progress.tick(lambda: f"{outcome.redriven.total():,} letters {'found' if dry_run else 'redriven'}")

        running = Redrive(cluster, rules, on_progress)
        try:
            outcome = await (running.plan() if dry_run else running.run(_producers(bootstrap, profile)))
        finally:
            progress.end()
        _print_outcome(topic, outcome, dry_run=dry_run, as_json=as_json)
        return ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work, shows_progress=True)


@app.command(
    "purge",
    epilog=examples(
        "ottla queues dead-letters purge dlq.orders --redriven",
        "ottla queues dead-letters purge dlq.orders --until 30d --yes",
        "ottla queues dead-letters purge dlq.orders --all",
    ),
)
def purge(
    topic: DeadLetterTopic,
    redriven: Annotated[
        bool, typer.Option("--redriven", help="Delete the letters before the first one that was not redriven.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Delete the letters before the first one at or after this time."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all letters.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Delete letters from the start of each partition of a dead-letter topic.

    A log can only be deleted from its start, so letters cannot be chosen by their reason or key.
    """
    if sum([redriven, until is not None, everything]) != 1:
        raise UsageError("pass one of --redriven, --until TIME and --all")
    with guarded():
        until_ms = None if until is None else _time(until)
    if not dry_run:
        what = "all letters" if everything else "letters that were redriven" if redriven else f"letters until {until}"
        confirm(f"delete {what} of {topic}?", yes=yes)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.topic_requests import delete_records
        from ottla.operations.dead_letters.purging import purge_points
        from ottla.operations.dead_letters.topics import refuse_other_topic

        await refuse_other_topic(cluster, topic)
        points = await purge_points(cluster, topic, redriven=redriven, until_ms=until_ms)
        before = {each: end for each, (start, end) in points.items() if end > start}
        if before and not dry_run:
            await delete_records(cluster, before)
        documents = [
            {"partition": each.partition, "start_offset": start, "new_start_offset": end, "offsets": end - start}
            for each, (start, end) in points.items()
        ]
        if as_json:
            print_json({"topic": topic, "deleted": not dry_run, "partitions": documents})
            return
        print_table(("partition", "start", "new start", "offsets"), [list(document.values()) for document in documents])
        if dry_run:
            say("nothing was deleted; omit --dry-run to delete")

    run_with_cluster(bootstrap, profile, work)


# Arguments


def _filter(
    since: str | None,
    until: str | None,
    reason: str | None,
    key: str | None,
    header: list[str] | None,
    origin: str | None,
    group: str | None,
) -> "LetterFilter":
    from ottla.operations.dead_letters.letters import LetterFilter

    pairs: list[tuple[str, str]] = []
    for each in header or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--header")
        pairs.append((name, value))
    with guarded():
        return LetterFilter(
            since_ms=None if since is None else _time(since),
            until_ms=None if until is None else _time(until),
            reason=reason,
            key=key,
            headers=tuple(pairs),
            topic=origin,
            group=group,
        )


def _time(text: str) -> int:
    """A time in ms: ISO 8601, local without a zone, or a duration before now."""
    import time

    from ottla.operations.positions import parse_past

    return parse_past(text, time.time_ns() // 1_000_000)


def _rules(topic: str, chosen: "LetterFilter", to: str | None, to_group: bool) -> "RedriveRules":
    from ottla.operations.dead_letters.redrive import RedriveRules

    rules = RedriveRules(topic=topic, chosen=chosen, to=to, to_group=to_group)
    rules.check()
    return rules


def _limited(rules: "RedriveRules", rate: float | None, redrives_max: int, *, is_forced: bool) -> "RedriveRules":
    from dataclasses import replace

    return replace(rules, rate=rate, redrives_max=redrives_max, is_forced=is_forced)


def _producers(bootstrap: str | None, profile: str | None) -> Any:
    """Makes a producer for the same cluster as the command's, by its transactional id."""
    from ottla.cli.profile.store import chosen_connection
    from ottla.client.producer.async_producer import AsyncProducer

    connection = chosen_connection(bootstrap, profile)
    options = connection.options

    def new_producer(transactional_id: str) -> "AsyncProducer":
        return AsyncProducer(
            bootstrap_servers=connection.bootstrap,
            client_id=connection.client_id,
            **options,
            transactional_id=transactional_id,
            max_request_size=64 << 20,
            buffer_memory=128 << 20,
        )

    return new_producer


# Reading


async def _find(cluster: "Cluster", topic: str, chosen: "LetterFilter", limit: int) -> "tuple[list[Letter], bool]":
    from ottla.operations.dead_letters.letters import bounds_of, read_letters

    found: list[Letter] = []
    progress = Progress()
    bounds = await bounds_of(cluster, topic)
    async for _, _, letters in read_letters(cluster, bounds):
        found.extend(each for each in letters if chosen.matches(each))
        progress.tick(lambda: f"{human_count(len(found), 'letter')} found")
        if len(found) > limit:
            break
    progress.end()
    return found[:limit], len(found) > limit


# Printing


def _row(letter: "Letter") -> list[Any]:
    story, record = letter.story, letter.record
    reason = MISSING if story is None else story.reason or MISSING
    return [
        str(letter),
        _moment(record.timestamp),
        MISSING if story is None else str(story.origin),
        MISSING if story is None else story.group or MISSING,
        MISSING if story is None or story.attempts is None else story.attempts,
        reason if len(reason) <= _REASON_WIDTH else reason[: _REASON_WIDTH - 1] + "…",
        MISSING if record.key is None else record.key.decode("utf-8", "surrogateescape"),
    ]


def _document(letter: "Letter") -> dict[str, Any]:
    from ottla.cli.consume.record_formats import json_bytes

    story, record = letter.story, letter.record
    origin = None if story is None else story.origin
    return {
        "partition": letter.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "origin": None
        if origin is None
        else {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset},
        "group": None if story is None else story.group,
        "tries": None if story is None else story.attempts,
        "reason": None if story is None else story.reason,
        "exception": None if story is None else story.exception,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }


def _print_letter(letter: "Letter", *, as_json: bool) -> None:
    if as_json:
        print_json(_document(letter))
        return
    story, record = letter.story, letter.record
    facts: dict[str, Any] = {"letter": str(letter), "time": _moment(record.timestamp)}
    if story is not None:
        facts |= {
            "origin": str(story.origin),
            "group": story.group or MISSING,
            "tries": MISSING if story.attempts is None else story.attempts,
            "reason": story.reason,
            "exception": story.exception or MISSING,
        }
    print_facts(facts)
    for name, value in record.headers:
        tell(f"header {name}={_shown(value)}")
    tell(f"key {_shown(record.key)}", f"value {_shown(record.value)}")


def _print_outcome(topic: str, outcome: "RedriveOutcome", *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": topic,
                "executed": not dry_run,
                "redriven": dict(outcome.redriven),
                "left": dict(outcome.left),
                "redriven_earlier": outcome.earlier,
            }
        )
        return
    would = "would be " if dry_run else ""
    for target, count in sorted(outcome.redriven.items()):
        tell(f"{human_count(count, 'letter')} {would}sent to {target}")
    for reason, count in sorted(outcome.left.items()):
        tell(f"{human_count(count, 'letter')} left: {reason}")
    if outcome.earlier:
        say(f"{human_count(outcome.earlier, 'letter')} redriven earlier")
    if not outcome.redriven:
        say("no letters to redrive")
    if dry_run:
        say("nothing was sent; omit --dry-run to redrive")


def _shown(value: bytes | None) -> str:
    return "null" if value is None else value.decode("utf-8", "surrogateescape")


def _moment(timestamp_ms: int) -> str:
    from ottla.cli.consume.record_formats import TimeFormat, time_text

    return time_text(timestamp_ms, TimeFormat.ISO)
