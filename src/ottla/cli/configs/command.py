"""`ottla configs`: shows and changes the configs of topics, brokers, groups and client metrics subscriptions."""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command_runner import application, examples, run_with_cluster
from ottla.cli.known_brokers import refuse_unknown_broker
from ottla.cli.options import AsJson, Bootstrap, DryRun, Profile, UsageError, parse_pairs
from ottla.cli.output import print_json, print_table, tell

if TYPE_CHECKING:
    from ottla.client.admin.config_requests import ConfigEntry, Resource
    from ottla.client.network.cluster import Cluster

app = application("Show and change the configs of topics, brokers, groups and client metrics subscriptions.")

Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Configs of this topic.")]
Broker = Annotated[
    str | None,
    typer.Option("--broker", "-b", metavar="ID", help="Configs of this broker, or `all` for those of every broker."),
]
Group = Annotated[str | None, typer.Option("--group", "-g", metavar="GROUP", help="Configs of this group.")]

ClientMetrics = Annotated[
    str | None,
    typer.Option("--client-metrics", "-m", metavar="NAME", help="Configs of this client metrics subscription."),
]


@app.command("list", epilog=examples("ottla configs list", "ottla configs list --json"))
def list_resources(bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the groups that have configs of their own, and the client metrics subscriptions."""

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.config_requests import ResourceType, list_config_resources

        found = await list_config_resources(cluster, [ResourceType.GROUP, ResourceType.CLIENT_METRICS])
        rows = sorted((each.type.name.lower(), each.name) for each in found)
        if as_json:
            print_json([{"type": kind, "name": name} for kind, name in rows])
        elif not rows:
            tell("no group has configs of its own, and there are no client metrics subscriptions")
        else:
            print_table(("type", "name"), rows)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "describe",
    epilog=examples("ottla configs describe --topic events", "ottla configs describe --broker 0 log.dirs --explain"),
)
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these configs.", show_default=False)
    ] = None,
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    client_metrics: ClientMetrics = None,
    everything: Annotated[bool, typer.Option("--all", help="Also show configs at their defaults.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each config means.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the configs that were set on a topic, a broker, a group or a client metrics subscription."""
    resource = _resource(topic, broker, group, client_metrics)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.config_requests import ConfigSource, describe_configs

        await refuse_unknown_broker(cluster, _broker_id(broker))
        found = await describe_configs(cluster, resource, names or None, documentation=explain)
        shown = [each for each in found if everything or names or each.source is not ConfigSource.DEFAULT]
        if as_json:
            print_json([_entry(each, explain=explain) for each in shown])
        elif not shown:
            tell(f"{resource} has no configs of its own; --all shows the defaults")
        else:
            _print_entries(shown, explain=explain)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "set",
    epilog=examples(
        "ottla configs set --topic events retention.ms=3600000",
        "ottla configs set --group workers share.auto.offset.reset=earliest",
        "ottla configs set --client-metrics producers metrics=org.apache.kafka.producer. interval.ms=60000",
    ),
)
def set_configs(
    pairs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="Configs to set.", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    client_metrics: ClientMetrics = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Set configs of a topic, a broker, a group or a client metrics subscription. Other configs stay as they are."""
    changes: dict[str, str | None] = {**parse_pairs(pairs, "NAME=VALUE")}
    resource = _resource(topic, broker, group, client_metrics)
    _alter(resource, broker, changes, dry_run=dry_run, bootstrap=bootstrap, profile=profile, as_json=as_json)


@app.command("unset", epilog=examples("ottla configs unset --topic events retention.ms"))
def unset_configs(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Names of the configs to remove.", show_default=False)
    ],
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    client_metrics: ClientMetrics = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Remove configs, so that the defaults apply again. A client metrics subscription ends with its last config."""
    changes = dict.fromkeys(names)
    resource = _resource(topic, broker, group, client_metrics)
    _alter(resource, broker, changes, dry_run=dry_run, bootstrap=bootstrap, profile=profile, as_json=as_json)


def _alter(
    resource: "Resource",
    broker: str | None,
    changes: dict[str, str | None],
    *,
    dry_run: bool,
    bootstrap: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.config_requests import alter_configs, check_config_names

        await refuse_unknown_broker(cluster, _broker_id(broker))
        if unset := [name for name, value in changes.items() if value is None]:
            await check_config_names(cluster, resource, unset)
        await alter_configs(cluster, resource, changes, validate_only=dry_run)
        if as_json:
            print_json({"resource": str(resource), "changes": changes, "changed": not dry_run})
        else:
            words = ", ".join(
                f"{name} unset" if value is None else f"{name}={value}" for name, value in changes.items()
            )
            tell(f"{resource}: {words}{' would be accepted' if dry_run else ''}")

    run_with_cluster(bootstrap, profile, work)


def _broker_id(text: str | None) -> int | None:
    """The id of a single broker; None for all brokers, or without the option."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _resource(topic: str | None, broker: str | None, group: str | None, client_metrics: str | None) -> "Resource":
    from ottla.client.admin.config_requests import Resource, ResourceType

    if sum(each is not None for each in (topic, broker, group, client_metrics)) != 1:
        raise UsageError("pass one of --topic TOPIC, --broker ID, --group GROUP and --client-metrics NAME")
    if client_metrics is not None:
        return Resource(type=ResourceType.CLIENT_METRICS, name=client_metrics)
    if group is not None:
        return Resource(type=ResourceType.GROUP, name=group)
    if topic is not None:
        return Resource(type=ResourceType.TOPIC, name=topic)
    if broker != "all" and _broker_id(broker) is None:
        raise UsageError(f"{broker!r} is not a broker id; `ottla cluster brokers` lists them")
    return Resource(type=ResourceType.BROKER, name="" if broker == "all" else broker or "")


def _entry(entry: "ConfigEntry", *, explain: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower(),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "known": entry.is_known,
    }
    return found | ({"documentation": entry.documentation} if explain else {})


def _print_entries(entries: list["ConfigEntry"], *, explain: bool) -> None:
    rows = [
        (
            each.name,
            "hidden (unknown to the broker)" if not each.is_known else "hidden" if each.is_sensitive else each.value,
            each.source.name.lower(),
        )
        for each in entries
    ]
    if not explain:
        print_table(("name", "value", "from"), rows)
        return
    import textwrap

    for each, (name, value, source) in zip(entries, rows, strict=True):
        tell(f"{name} = {value}   ({source})")
        tell(
            *textwrap.wrap(each.documentation or "not documented", 96, initial_indent="    ", subsequent_indent="    ")
        )
