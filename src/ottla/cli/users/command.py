"""`ottla users`: lists, creates and deletes the users that log in with SCRAM."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import application, examples, guarded, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, UsageError, parse_choices
from ottla.cli.output import print_json, print_list, tell

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster

app = application("List, create and delete the users that log in with a password (SCRAM).")

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

UserName = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.", show_default=False)]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="MECHANISM,...", help="SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated."),
]


@app.command("list", epilog=examples("ottla users list"))
def list_users(bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the users, with the mechanisms that they have a password for."""

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.user_requests import describe_user_scram_credentials

        found, _ = await describe_user_scram_credentials(cluster)
        documents: list[dict[str, Any]] = [
            {"user": user, "mechanism": info.mechanism.value, "iterations": info.iterations}
            for user, infos in found.items()
            for info in infos
        ]
        print_list(documents, {"user": "user", "mechanism": "mechanism", "iterations": "iterations"}, as_json=as_json)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "create",
    epilog=examples(
        "ottla users create alice",
        "ottla users create app --password-file app.password --mechanism SCRAM-SHA-512",
        "ottla users create alice --replace",
    ),
)
def create(
    user: UserName,
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Read the password from the first line of this file, - for stdin.",
            show_default="ask for it",
        ),
    ] = None,
    mechanism: Mechanisms = None,
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", help="Iterations of the hash function.", min=4096, max=16384)
    ] = 8192,
    replace: Annotated[bool, typer.Option("--replace", help="Change the password if the user exists.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a user, or with --replace change its password.

    The password is salted and hashed on this machine; brokers never see it. By default it is set for both mechanisms.
    """
    from ottla.cli.users.passwords import read_password

    mechanisms = parse_choices(mechanism, _MECHANISMS, "--mechanism") or list(_MECHANISMS)
    with guarded():
        password = read_password(user, password_file)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.user_requests import (
            UserScramCredentialUpsertion,
            alter_user_scram_credentials,
            describe_user_scram_credentials,
        )

        if not replace:
            known, _ = await describe_user_scram_credentials(cluster)
            taken = [each.mechanism.value for each in known.get(user, ()) if each.mechanism in mechanisms]
            if taken:
                raise UsageError(f"user {user} has a password for {', '.join(taken)}; pass --replace to change it")
        for each in mechanisms:
            # One request for each: brokers refuse a user that is listed twice.
            wanted = UserScramCredentialUpsertion(user, each, password, iterations)
            _, refused = await alter_user_scram_credentials(cluster, [wanted])
            for error in refused.values():
                raise error
        if as_json:
            print_json({"user": user, "mechanisms": mechanisms, "iterations": iterations})
        else:
            tell(f"user {user}: password set for {', '.join(mechanisms)}")

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "delete", epilog=examples("ottla users delete alice", "ottla users delete app --mechanism SCRAM-SHA-256 --yes")
)
def delete(
    user: UserName,
    mechanism: Mechanisms = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Delete a user: its passwords for all mechanisms, or for some. Its ACLs and delegation tokens stay.

    Connections that are open stay open until they have to authenticate again (connections.max.reauth.ms).
    """
    chosen = parse_choices(mechanism, _MECHANISMS, "--mechanism")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.user_requests import (
            UserScramCredentialDeletion,
            alter_user_scram_credentials,
            describe_user_scram_credentials,
        )

        found, errors = await describe_user_scram_credentials(cluster, [user])
        for error in errors.values():
            raise error
        mechanisms = chosen or [each.mechanism.value for each in found.get(user, ())]
        confirm(f"Delete the passwords of user {user} for {', '.join(mechanisms)}?", yes=yes)
        for each in mechanisms:
            _, refused = await alter_user_scram_credentials(cluster, [UserScramCredentialDeletion(user, each)])
            for error in refused.values():
                raise error
        if as_json:
            print_json({"user": user, "deleted": mechanisms})
        else:
            tell(f"user {user}: password deleted for {', '.join(mechanisms)}")

    run_with_cluster(bootstrap, profile, work)
