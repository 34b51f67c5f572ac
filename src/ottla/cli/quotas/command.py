"""`ottla quotas`: shows and changes the quotas of users, client ids and addresses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import application, examples, run_with_cluster
from ottla.cli.options import AsJson, Bootstrap, DryRun, Profile, UsageError, parse_choice, parse_pairs, parse_size
from ottla.cli.output import MISSING, print_json, print_table, tell

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster
    from ottla.security.quota_entity import QuotaEntity

app = application("Show and change the quotas of users, client ids and addresses.")

_BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
_CLIENT_KEYS: Final = (*_BYTE_RATES, "request_percentage", "controller_mutation_rate")
_IP_KEYS: Final = ("connection_creation_rate",)
_DEFAULT: Final = "<default>"

User = Annotated[str | None, typer.Option("--user", metavar="USER", help="Of this user.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="Of users without a quota of their own.")]
Client = Annotated[str | None, typer.Option("--client-id", "--client", metavar="ID", help="Of this client id.")]
ClientDefaults = Annotated[bool, typer.Option("--client-defaults", help="Of client ids without a quota of their own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Of this address.")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="Of addresses without a quota of their own.")]


@app.command("describe", epilog=examples("ottla quotas describe", "ottla quotas describe --user alice"))
def describe(
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the quotas that are set: all, or those of some users, client ids or addresses."""
    components = _components(user, user_defaults, client_id, client_defaults, ip, ip_defaults)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.quota_requests import describe_client_quotas

        found = await describe_client_quotas(cluster, components, strict=False)
        if as_json:
            print_json([{**_document(entity), "quotas": values} for entity, values in found.items()])
        elif not found:
            tell("no quotas are set")
        else:
            rows = [
                (*(_shown(name) for name in (entity.user, entity.client_id, entity.ip)), key, _number(value))
                for entity, values in found.items()
                for key, value in sorted(values.items())
            ]
            print_table(("user", "client id", "ip", "quota", "value"), rows)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "set",
    epilog=examples(
        "ottla quotas set --user alice producer_byte_rate=10m consumer_byte_rate=20m",
        "ottla quotas set --user-defaults --client-id etl request_percentage=50",
        "ottla quotas set --ip-defaults connection_creation_rate=20",
    ),
)
def set_quotas(
    pairs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="Quotas to set.", show_default=False)],
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Set quotas. A quota applies on each broker separately; other quotas stay as they are.

    Of users and client ids: producer_byte_rate and consumer_byte_rate (bytes per second; k, m and g are allowed),
    request_percentage (of one thread), controller_mutation_rate (partitions per second). Of addresses:
    connection_creation_rate (per second).
    """
    entity = _entity(user, user_defaults, client_id, client_defaults, ip, ip_defaults)
    given = parse_pairs(pairs, "NAME=VALUE")
    changes: dict[str, float | None] = {}
    for key in given:
        known = _key(key, entity)
        changes[known] = _value(known, given[key])
    _alter(entity, changes, dry_run=dry_run, bootstrap=bootstrap, profile=profile, as_json=as_json)


@app.command("unset", epilog=examples("ottla quotas unset --user alice producer_byte_rate"))
def unset_quotas(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Quotas to remove.", show_default=False)],
    user: User = None,
    user_defaults: UserDefaults = False,
    client_id: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Remove quotas, so that a less specific one applies, or none."""
    entity = _entity(user, user_defaults, client_id, client_defaults, ip, ip_defaults)
    changes: dict[str, float | None] = dict.fromkeys(_key(each, entity) for each in names)
    _alter(entity, changes, dry_run=dry_run, bootstrap=bootstrap, profile=profile, as_json=as_json)


def _alter(
    entity: "QuotaEntity",
    changes: dict[str, float | None],
    *,
    dry_run: bool,
    bootstrap: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.quota_requests import alter_client_quotas, spelled

        refused = await alter_client_quotas(cluster, {entity: changes}, validate_only=dry_run)
        for error in refused.values():
            raise error
        if as_json:
            print_json({**_document(entity), "changes": changes, "changed": not dry_run})
        else:
            words = ", ".join(
                f"{key} unset" if value is None else f"{key}={_number(value)}" for key, value in changes.items()
            )
            tell(f"{spelled(entity)}: {words}{' would be accepted' if dry_run else ''}")

    run_with_cluster(bootstrap, profile, work)


def _components(
    user: str | None,
    user_defaults: bool,
    client_id: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> dict[str, str | None]:
    """The parts of an entity that the options name, "" for defaults."""
    found: dict[str, str | None] = {}
    for kind, option, name, is_default in (
        ("user", "--user", user, user_defaults),
        ("client_id", "--client-id", client_id, client_defaults),
        ("ip", "--ip", ip, ip_defaults),
    ):
        if name is not None and is_default:
            raise UsageError(f"pass either {option} or {option.removesuffix('-id')}-defaults")
        if name == "":
            raise UsageError(f"{option} must not be empty; {option.removesuffix('-id')}-defaults is for all others")
        if name is not None or is_default:
            found[kind] = name or ""
    return found


def _entity(
    user: str | None,
    user_defaults: bool,
    client_id: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> "QuotaEntity":
    from ottla.security.quota_entity import QuotaEntity

    found = _components(user, user_defaults, client_id, client_defaults, ip, ip_defaults)
    if not found:
        raise UsageError(
            "pass --user, --client-id or --ip, or one of --user-defaults, --client-defaults, --ip-defaults"
        )
    if "ip" in found and len(found) > 1:
        raise UsageError("--ip cannot be combined with --user or --client-id")
    return QuotaEntity(**found)


def _key(word: str, entity: "QuotaEntity") -> str:
    known: Sequence[str] = _CLIENT_KEYS if entity.ip is None else _IP_KEYS
    return parse_choice(word, known, "NAME")


def _value(key: str, text: str) -> float:
    if key in _BYTE_RATES:
        return float(parse_size(text, key))
    try:
        value = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number", param_hint=key) from None
    if not 0 < value < float("inf"):
        raise typer.BadParameter(f"{text} must be above 0", param_hint=key)
    return value


def _document(entity: "QuotaEntity") -> dict[str, Any]:
    """The parts of an entity; None for the default of a type."""
    return {
        kind: name or None
        for kind, name in (("user", entity.user), ("client_id", entity.client_id), ("ip", entity.ip))
        if name is not None
    }


def _shown(name: str | None) -> str:
    return MISSING if name is None else name or _DEFAULT


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
