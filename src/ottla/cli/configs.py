"""`ottla configs`: what topics and brokers are configured with, from where, what it means, and changing it."""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, DryRun, parse_pairs
from ottla.cli.output import print_json, print_table
from ottla.cli.running import application, examples, run_with_cluster

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.config_requests import ConfigEntry, Resource

app = application("Show and change the configs of topics and brokers.")

Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="NAME", help="Of this topic.")]
Broker = Annotated[
    str | None, typer.Option("--broker", "-b", metavar="ID", help="Of this broker; `all` for every one.")
]


@app.command(
    "describe",
    epilog=examples("ottla configs describe --topic events", "ottla configs describe --broker 0 log.dirs --explain"),
)
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these configs.")] = None,
    topic: Topic = None,
    broker: Broker = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that nobody has set.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each means.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show the configs that were set; with --all those at their defaults too."""
    resource = _resource(topic, broker)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.config_requests import ConfigSource, describe_configs

        found = await describe_configs(cluster, resource, names or None, documentation=explain)
        shown = [each for each in found if everything or names or each.source is not ConfigSource.DEFAULT]
        if as_json:
            print_json([_entry(each, explain=explain) for each in shown])
        elif not shown:
            print(f"nothing is set on {resource}; --all shows the defaults")
        else:
            _print_entries(shown, explain=explain)

    run_with_cluster(bootstrap, work)


@app.command("set", epilog=examples("ottla configs set --topic events retention.ms=3600000"))
def set_configs(
    pairs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="What to set.", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Set configs of a topic or a broker; the others stay as they are."""
    changes: dict[str, str | None] = {**parse_pairs(pairs, "NAME=VALUE")}
    _alter(_resource(topic, broker), changes, dry_run=dry_run, bootstrap=bootstrap, as_json=as_json)


@app.command("unset", epilog=examples("ottla configs unset --topic events retention.ms"))
def unset_configs(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="What to unset.", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Take configs of a topic or a broker away, so that the defaults count again."""
    changes = dict.fromkeys(names)
    _alter(_resource(topic, broker), changes, dry_run=dry_run, bootstrap=bootstrap, as_json=as_json)


def _alter(
    resource: "Resource", changes: dict[str, str | None], *, dry_run: bool, bootstrap: str, as_json: bool
) -> None:
    async def work(cluster: "Cluster") -> None:
        from ottla.client.config_requests import alter_configs

        await alter_configs(cluster, resource, changes, validate_only=dry_run)
        if as_json:
            print_json({"resource": str(resource), "changes": changes, "changed": not dry_run})
        else:
            words = ", ".join(
                f"{name} unset" if value is None else f"{name}={value}" for name, value in changes.items()
            )
            print(f"{resource}: {words}{' would be accepted' if dry_run else ''}")

    run_with_cluster(bootstrap, work)


def _resource(topic: str | None, broker: str | None) -> "Resource":
    from ottla.client.config_requests import Resource, ResourceType

    if (topic is None) == (broker is None):
        raise typer.BadParameter("say either --topic NAME or --broker ID")
    if topic is not None:
        return Resource(type=ResourceType.TOPIC, name=topic)
    if broker != "all" and not (broker or "").isdecimal():
        raise typer.BadParameter(f"{broker!r} is no broker's number; `ottla cluster describe` lists them")
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
        print(f"{name} = {value}   ({source})")
        print(textwrap.indent(textwrap.fill(each.documentation or "no explanation", 96), "    "))
