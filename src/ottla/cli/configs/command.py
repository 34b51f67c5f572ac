"""`ottla configs`: shows and changes the configs of topics and brokers."""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import AsJson, Bootstrap, DryRun, Profile, parse_pairs
from ottla.cli.output import print_json, print_table, tell
from ottla.cli.running import application, examples, run_with_cluster

if TYPE_CHECKING:
    from ottla.client.admin.config_requests import ConfigEntry, Resource
    from ottla.client.network.cluster import Cluster

app = application("Show and change the configs of topics and brokers.")

Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Configs of this topic.")]
Broker = Annotated[
    str | None,
    typer.Option("--broker", "-b", metavar="ID", help="Configs of this broker, or `all` for those of every broker."),
]


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
    everything: Annotated[bool, typer.Option("--all", help="Also show configs at their defaults.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each config means.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the configs that were set on a topic or a broker."""
    resource = _resource(topic, broker)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.config_requests import ConfigSource, describe_configs

        found = await describe_configs(cluster, resource, names or None, documentation=explain)
        shown = [each for each in found if everything or names or each.source is not ConfigSource.DEFAULT]
        if as_json:
            print_json([_entry(each, explain=explain) for each in shown])
        elif not shown:
            tell(f"{resource} has no configs of its own; --all shows the defaults")
        else:
            _print_entries(shown, explain=explain)

    run_with_cluster(bootstrap, profile, work)


@app.command("set", epilog=examples("ottla configs set --topic events retention.ms=3600000"))
def set_configs(
    pairs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="Configs to set.", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Set configs of a topic or a broker. Other configs stay as they are."""
    changes: dict[str, str | None] = {**parse_pairs(pairs, "NAME=VALUE")}
    _alter(_resource(topic, broker), changes, dry_run=dry_run, bootstrap=bootstrap, profile=profile, as_json=as_json)


@app.command("unset", epilog=examples("ottla configs unset --topic events retention.ms"))
def unset_configs(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Names of the configs to remove.", show_default=False)
    ],
    topic: Topic = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Remove configs from a topic or a broker, so that the defaults apply again."""
    changes = dict.fromkeys(names)
    _alter(_resource(topic, broker), changes, dry_run=dry_run, bootstrap=bootstrap, profile=profile, as_json=as_json)


def _alter(
    resource: "Resource",
    changes: dict[str, str | None],
    *,
    dry_run: bool,
    bootstrap: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.config_requests import alter_configs

        await alter_configs(cluster, resource, changes, validate_only=dry_run)
        if as_json:
            print_json({"resource": str(resource), "changes": changes, "changed": not dry_run})
        else:
            words = ", ".join(
                f"{name} unset" if value is None else f"{name}={value}" for name, value in changes.items()
            )
            tell(f"{resource}: {words}{' would be accepted' if dry_run else ''}")

    run_with_cluster(bootstrap, profile, work)


def _resource(topic: str | None, broker: str | None) -> "Resource":
    from ottla.client.admin.config_requests import Resource, ResourceType

    if (topic is None) == (broker is None):
        raise typer.BadParameter("pass either --topic TOPIC or --broker ID")
    if topic is not None:
        return Resource(type=ResourceType.TOPIC, name=topic)
    if broker != "all" and not (broker or "").isdecimal():
        raise typer.BadParameter(f"{broker!r} is not a broker id; `ottla cluster brokers` lists them")
    return Resource(type=ResourceType.BROKER, name="" if broker == "all" else broker or "")


def _entry(entry: "ConfigEntry", *, explain: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower(),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }
    return found | ({"documentation": entry.documentation} if explain else {})


def _print_entries(entries: list["ConfigEntry"], *, explain: bool) -> None:
    rows = [(each.name, "hidden" if each.is_sensitive else each.value, each.source.name.lower()) for each in entries]
    if not explain:
        print_table(("name", "value", "from"), rows)
        return
    import textwrap

    for each, (name, value, source) in zip(entries, rows, strict=True):
        tell(f"{name} = {value}   ({source})")
        tell(
            *textwrap.wrap(each.documentation or "not documented", 96, initial_indent="    ", subsequent_indent="    ")
        )
