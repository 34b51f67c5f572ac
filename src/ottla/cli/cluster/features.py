"""`ottla cluster features`: shows and changes the levels of the cluster's features."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import examples, run_with_cluster
from ottla.cli.options import AsJson, Bootstrap, Profile
from ottla.cli.output import print_json, print_table, tell

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster

_TIMEOUT_MS: Final = 60_000
EPILOG: Final = examples(
    "ottla cluster features",
    "ottla cluster features --set transaction.version=2",
    "ottla cluster features --set group.version=0 --downgrade --dry-run",
)


def features(
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=LEVEL", help="Set the level of a feature; 0 disables it; may be repeated."),
    ] = None,
    downgrade: Annotated[
        bool, typer.Option("--downgrade", help="Lower levels with --set, where that loses no metadata.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --set: check the levels, but do not set them.")
    ] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the features of the cluster and their levels, or set levels.

    The finalized level is in force on all brokers. A broker can join only if it supports all finalized levels.
    """
    levels = dict(map(_setting, settings or ()))
    if not levels and (downgrade or dry_run):
        raise typer.BadParameter("needs --set", param_hint="--downgrade" if downgrade else "--dry-run")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.feature_requests import describe_features, update_features
        from ottla.model.upgrade_type import UpgradeType

        if levels:
            kind = UpgradeType.SAFE_DOWNGRADE if downgrade else UpgradeType.UPGRADE
            await update_features(cluster, levels, kind, validate_only=dry_run, timeout_ms=_TIMEOUT_MS)
            if not as_json:
                verb = "can set" if dry_run else "set"
                tell(*(f"{verb} {name} to {level}" for name, level in levels.items()))
                return
        found = await describe_features(cluster)
        rows: list[dict[str, Any]] = [
            {"feature": name, "finalized": found.finalized.get(name, 0), "lowest": lowest, "highest": highest}
            for name, (lowest, highest) in sorted(found.supported.items())
        ]
        if as_json:
            print_json({"epoch": found.finalized_epoch, "features": rows})
        else:
            print_table(
                ("feature", "finalized", "supported"),
                [(row["feature"], row["finalized"], f"{row['lowest']}-{row['highest']}") for row in rows],
            )

    run_with_cluster(bootstrap, profile, work)


def _setting(text: str) -> tuple[str, int]:
    name, separator, level = text.partition("=")
    if not (separator and name and level.isascii() and level.isdigit() and int(level) < 2**15):
        raise typer.BadParameter(f"{text!r} is not NAME=LEVEL, such as group.version=1", param_hint="--set")
    return name, int(level)
