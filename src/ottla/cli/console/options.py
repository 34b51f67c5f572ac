"""The options of `ottla console` that no other command has."""

from pathlib import Path
from typing import Annotated

import typer

ReadOnly = Annotated[bool, typer.Option("--read-only", help="Allow no changes.")]
RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        help="Schema registry, such as http://127.0.0.1:8081; it may hold a login (http://user:password@host).",
    ),
]
Authentication = Annotated[
    str,
    typer.Option(
        "--auth",
        metavar="none|cluster|oidc",
        help="Let people sign in, as users of the cluster or with OpenID Connect; the cluster's ACLs decide what"
        " they may see and change. Without it the console listens on loopback addresses only.",
    ),
]
LoginMechanism = Annotated[
    str,
    typer.Option(
        "--login-mechanism",
        metavar="MECHANISM",
        help="SASL mechanism with which passwords are checked at the brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
    ),
]
OidcIssuer = Annotated[
    str | None,
    typer.Option(
        "--oidc-issuer",
        metavar="URL",
        help="Issuer URL of the identity provider for --auth oidc, exactly as in its tokens.",
    ),
]
OidcClientId = Annotated[
    str | None,
    typer.Option("--oidc-client-id", metavar="ID", help="Client id of this console at the identity provider."),
]
OidcClientSecretFile = Annotated[
    Path | None,
    typer.Option(
        "--oidc-client-secret-file",
        metavar="FILE",
        help="File with the client secret; omit it for a public client.",
    ),
]
OidcScope = Annotated[
    str,
    typer.Option("--oidc-scope", metavar="SCOPES", help="Scopes to ask for, such as 'openid offline_access'."),
]
OidcAudience = Annotated[
    str | None,
    typer.Option(
        "--oidc-audience",
        metavar="AUDIENCE",
        help="Audience of access tokens (the brokers' sasl.oauthbearer.expected.audience).",
    ),
]
OidcUserClaim = Annotated[
    str,
    typer.Option(
        "--oidc-user-claim",
        metavar="CLAIM",
        help="Claim of access tokens that holds the user name (the brokers' sasl.oauthbearer.sub.claim.name).",
    ),
]
OidcRedirectUrl = Annotated[
    str | None,
    typer.Option(
        "--oidc-redirect-url",
        metavar="URL",
        help="URL of this console's /login/callback as browsers see it.",
        show_default="from the browser's request",
    ),
]
PipelineFolders = Annotated[
    list[Path] | None,
    typer.Option("--pipelines", metavar="DIR", help="Folder of pipeline projects to show; may be repeated."),
]
MetricsUrls = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="URL",
        help="Metrics of a broker (http://HOST:9644/metrics), for request rates and latencies; may be repeated.",
    ),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Prometheus server that scrapes the brokers (http://HOST:9090), for charts of more than the last hour; the"
        " URL may hold a login (https://user:password@host).",
    ),
]
PrometheusLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--prometheus-label",
        metavar="NAME=VALUE",
        help="Label of this cluster's brokers in Prometheus, such as job=ottla, if it scrapes other clusters too; may"
        " be repeated.",
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Name of the cluster, shown at the top of every page.",
        show_default="the cluster's id",
    ),
]
HostNames = Annotated[
    list[str] | None,
    typer.Option(
        "--host", metavar="NAME", help="Host name under which browsers may open the console; may be repeated."
    ),
]
AuditLog = Annotated[
    Path | None,
    typer.Option(
        "--audit-log",
        metavar="FILE",
        help="File that records every change.",
        show_default="ottla/console-audit.jsonl in $XDG_STATE_HOME or ~/.local/state",
    ),
]
ExportFolder = Annotated[
    Path | None,
    typer.Option(
        "--export-dir",
        metavar="DIR",
        help="Folder for export files, which are removed after an hour.",
        show_default="the system's temporary folder",
    ),
]
ExportLimit = Annotated[
    str,
    typer.Option("--export-limit", metavar="SIZE", help="Maximum total size of the export files."),
]
