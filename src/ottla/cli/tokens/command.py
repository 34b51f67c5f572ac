"""`ottla tokens`: creates, renews, expires and describes delegation tokens.

Tokens are named by their id. Brokers want the HMAC, which is the secret: `renew` and `expire` ask the broker for it, so
that it is on no command line, where other users of the machine could see it.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import application, examples, guarded, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, UsageError
from ottla.cli.output import print_facts, print_json, print_list, tell
from ottla.operations.durations import parse_duration

if TYPE_CHECKING:
    from ottla.client.admin.token_requests import DelegationToken
    from ottla.client.network.cluster import Cluster

app = application("Create, renew, expire and describe delegation tokens.")

_BROKER_PERIOD: Final = -1
_AT_ONCE: Final = -1

TokenId = Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Id of the token.", show_default=False)]
Owners = Annotated[
    list[str] | None,
    typer.Option("--owner", metavar="PRINCIPAL", help="Only tokens of this owner; may be repeated."),
]


@app.command(
    "create",
    epilog=examples(
        "ottla tokens create --command-config alice.properties",
        "ottla tokens create --renewer User:scheduler --max-lifetime 2d",
        "ottla tokens create --owner User:etl --json",
    ),
)
def create(
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            metavar="PRINCIPAL",
            help="Create the token for this user, such as User:alice; needs CreateTokens on the user.",
            show_default="the user of the connection",
        ),
    ] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer",
            metavar="PRINCIPAL",
            help="Principal that may renew and expire the token, besides its owner; may be repeated.",
        ),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        typer.Option(
            "--max-lifetime",
            metavar="DURATION",
            help="Maximum lifetime of the token, such as 2d.",
            show_default="delegation.token.max.lifetime.ms of the broker",
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a delegation token, and print it with its HMAC, the secret.

    To log in with it, use SCRAM with the token id as user name, the HMAC as password, and tokenauth=true. The
    connection must be authenticated, and not with a token.
    """
    lifetime_ms = _duration(max_lifetime, "--max-lifetime")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.token_requests import create_delegation_token

        token = await create_delegation_token(cluster, renewer or (), max_lifetime_ms=lifetime_ms, owner=owner)
        if as_json:
            print_json(_document(token, with_hmac=True))
        else:
            print_facts(
                {
                    "token id": token.token_id,
                    "hmac": token.password,
                    "owner": token.owner,
                    "requester": token.requester,
                    "renewers": ", ".join(token.renewers),
                    "issued": _moment(token.issue_timestamp),
                    "expires": _moment(token.expiry_timestamp),
                    "renewable until": _moment(token.max_timestamp),
                }
            )

    run_with_cluster(bootstrap, profile, work)


@app.command("renew", epilog=examples("ottla tokens renew TOKEN_ID", "ottla tokens renew TOKEN_ID --period 12h"))
def renew(
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="DURATION",
            help="Let it expire this long from now, such as 12h.",
            show_default="delegation.token.expiry.time.ms of the broker",
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Extend a token, up to its maximum lifetime. Its owner, requester and renewers may do this."""
    period_ms = _duration(period, "--period")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.token_requests import renew_delegation_token

        token = await _find(cluster, token_id)
        expiry_ms = await renew_delegation_token(cluster, token.hmac, renew_period_ms=period_ms)
        if as_json:
            print_json({"token_id": token_id, "expiry_timestamp": expiry_ms})
        else:
            tell(f"token {token_id}: expires at {_moment(expiry_ms)}")

    run_with_cluster(bootstrap, profile, work)


@app.command("expire", epilog=examples("ottla tokens expire TOKEN_ID", "ottla tokens expire TOKEN_ID --in 10m --yes"))
def expire(
    token_id: TokenId,
    after: Annotated[
        str | None,
        typer.Option("--in", metavar="DURATION", help="Let it expire this long from now.", show_default="delete it"),
    ] = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Delete a token, or let it expire earlier. Its owner, requester and renewers may do this.

    Connections that logged in with it stay open until it would have expired, or until they have to authenticate again
    (connections.max.reauth.ms).
    """
    period_ms = _AT_ONCE if after is None else _duration(after, "--in")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.token_requests import expire_delegation_token

        token = await _find(cluster, token_id)
        if after is None:
            confirm(f"Delete token {token_id} of {token.owner}?", yes=yes)
        expiry_ms = await expire_delegation_token(cluster, token.hmac, expiry_period_ms=period_ms)
        if as_json:
            print_json({"token_id": token_id, "expiry_timestamp": expiry_ms, "deleted": after is None})
        else:
            tell(f"token {token_id}: {'deleted' if after is None else f'expires at {_moment(expiry_ms)}'}")

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "describe",
    epilog=examples(
        "ottla tokens describe", "ottla tokens describe --owner User:alice", "ottla tokens describe --show-hmac --json"
    ),
)
def describe(
    owner: Owners = None,
    show_hmac: Annotated[bool, typer.Option("--show-hmac", help="Print the HMACs, which are secrets.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the tokens that the user may see: its own, those that it may renew, and those that ACLs allow."""

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.token_requests import describe_delegation_token

        found = await describe_delegation_token(cluster, owner or None)
        if not found and not as_json:
            tell("no delegation tokens")
            return
        columns = {
            "token id": "token_id",
            "owner": "owner",
            "requester": "requester",
            "renewers": "renewers",
            "issued": "issue_timestamp",
            "expires": "expiry_timestamp",
            "renewable until": "max_timestamp",
        }
        if show_hmac:
            columns["hmac"] = "hmac"
        documents = [_document(each, with_hmac=show_hmac) for each in found]
        print_list(documents if as_json else [_readable(each) for each in documents], columns, as_json=as_json)

    run_with_cluster(bootstrap, profile, work)


async def _find(cluster: "Cluster", token_id: str) -> "DelegationToken":
    """The token with this id, which those who may change it may also see. Raises UsageError."""
    from ottla.client.admin.token_requests import describe_delegation_token

    for token in await describe_delegation_token(cluster, None):
        if token.token_id == token_id:
            return token
    raise UsageError(f"there is no token {token_id}, or this user may not see it; `ottla tokens describe` lists tokens")


def _duration(text: str | None, option: str) -> int:
    if text is None:
        return _BROKER_PERIOD
    with guarded():
        span_ms = parse_duration(text, bare_unit="ms")
    if span_ms == 0:
        raise UsageError(f"{option} must not be 0")
    return span_ms


def _document(token: "DelegationToken", *, with_hmac: bool) -> dict[str, Any]:
    """For programs; times are in milliseconds since 1970."""
    document: dict[str, Any] = {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issue_timestamp": token.issue_timestamp,
        "expiry_timestamp": token.expiry_timestamp,
        "max_timestamp": token.max_timestamp,
    }
    return {**document, "hmac": token.password} if with_hmac else document


def _readable(document: dict[str, Any]) -> dict[str, Any]:
    """For people."""
    times = {name: _moment(value) for name, value in document.items() if name.endswith("_timestamp")}
    return {**document, **times, "renewers": ", ".join(document["renewers"])}


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
