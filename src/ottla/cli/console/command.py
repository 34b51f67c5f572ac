"""`ottla console`: serves web pages for a cluster of Ottla or Apache Kafka."""

import os
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.command_runner import CONTEXT, application, examples, guarded
from ottla.cli.options import Bootstrap, Profile, parse_choice

app = application("Serve web pages for a cluster: topics, records, groups, schemas, pipelines, security.")

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@app.command(
    "console",
    context_settings=CONTEXT,
    epilog=examples(
        "ottla console",
        "ottla console --bootstrap kafka1:9092,kafka2:9092 --registry http://127.0.0.1:8081 --read-only",
        "ottla console --listen 0.0.0.0:8443 --auth cluster --command-config console.properties"
        " --tls-certificate console.pem",
        "ottla console --auth oidc --oidc-issuer https://id.example.com --oidc-client-id console --command-config"
        " console.properties",
    ),
)
def console(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port.")
    ] = "127.0.0.1:8080",
    read_only: Annotated[bool, typer.Option("--read-only", help="Allow no changes.")] = False,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="URL",
            help="Schema registry, such as http://127.0.0.1:8081; it may hold a login (http://user:password@host).",
        ),
    ] = None,
    auth: Annotated[
        str,
        typer.Option(
            "--auth",
            metavar="none|cluster|oidc",
            help="Let people sign in, as users of the cluster or with OpenID Connect; the cluster's ACLs decide what"
            " they may see and change. Without it the console listens on loopback addresses only.",
        ),
    ] = "none",
    login_mechanism: Annotated[
        str,
        typer.Option(
            "--login-mechanism",
            metavar="MECHANISM",
            help="SASL mechanism with which passwords are checked at the"
            " brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
        ),
    ] = "SCRAM-SHA-512",
    oidc_issuer: Annotated[
        str | None,
        typer.Option(
            "--oidc-issuer",
            metavar="URL",
            help="Issuer URL of the identity provider for --auth oidc, exactly as in its tokens.",
        ),
    ] = None,
    oidc_client_id: Annotated[
        str | None,
        typer.Option("--oidc-client-id", metavar="ID", help="Client id of this console at the identity provider."),
    ] = None,
    oidc_client_secret_file: Annotated[
        Path | None,
        typer.Option(
            "--oidc-client-secret-file",
            metavar="FILE",
            help="File with the client secret; omit it for a public client.",
        ),
    ] = None,
    oidc_scope: Annotated[
        str,
        typer.Option("--oidc-scope", metavar="SCOPES", help="Scopes to ask for, such as 'openid offline_access'."),
    ] = "openid",
    oidc_audience: Annotated[
        str | None,
        typer.Option(
            "--oidc-audience",
            metavar="AUDIENCE",
            help="Audience of access tokens (the brokers' sasl.oauthbearer.expected.audience).",
        ),
    ] = None,
    oidc_user_claim: Annotated[
        str,
        typer.Option(
            "--oidc-user-claim",
            metavar="CLAIM",
            help="Claim of access tokens that holds the user name (the brokers' sasl.oauthbearer.sub.claim.name).",
        ),
    ] = "sub",
    oidc_redirect_url: Annotated[
        str | None,
        typer.Option(
            "--oidc-redirect-url",
            metavar="URL",
            help="URL of this console's /login/callback as browsers see it.",
            show_default="from the browser's request",
        ),
    ] = None,
    pipelines: Annotated[
        list[Path] | None,
        typer.Option("--pipelines", metavar="DIR", help="Folder of pipeline projects to show; may be repeated."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help="Metrics of a broker (http://HOST:9644/metrics), for request rates and latencies; may be repeated.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name of the cluster, shown at the top of every page.",
            show_default="the cluster's id",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="NAME", help="Host name under which browsers may open the console; may be repeated."
        ),
    ] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(
            "--audit-log",
            metavar="FILE",
            help="File that records every change.",
            show_default="ottla/console-audit.jsonl in $XDG_STATE_HOME or ~/.local/state",
        ),
    ] = None,
    export_dir: Annotated[
        Path | None,
        typer.Option(
            "--export-dir",
            metavar="DIR",
            help="Folder for export files, which are removed after an hour.",
            show_default="the system's temporary folder",
        ),
    ] = None,
    export_limit: Annotated[
        str,
        typer.Option("--export-limit", metavar="SIZE", help="Maximum total size of the export files."),
    ] = "10g",
    tls_certificate: Annotated[
        str | None,
        typer.Option("--tls-certificate", metavar="FILE", help="PEM file with the certificate chain: serve HTTPS."),
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option("--tls-key", metavar="FILE", help="PEM file with the private key.", show_default="the same file"),
    ] = None,
    log_format: Annotated[str, typer.Option("--log-format", metavar="text|json", help="Format of log lines.")] = "text",
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="debug|info|warning|error", help="Lowest level of log lines.")
    ] = "info",
    stops_with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Serve web pages for a cluster of Ottla or Apache Kafka.

    When the console is ready, it prints one line: `ready` and its URL. SIGTERM and Ctrl-C stop it cleanly.
    """
    with guarded():
        from ottla.cli.console.needed_packages import check_installed

        check_installed()
        from ottla.cli.console.run import audit_file, command_options, oidc_settings, run, split_login
        from ottla.cli.profile.store import chosen_connection
        from ottla.cli.serve.log_output import set_up_logging
        from ottla.console.settings import AuthMode, ConsoleSettings
        from ottla.operations.sizes import parse_size
        from ottla.transport.addresses import parse_listen_address

        set_up_logging(log_format, log_level)
        connection = chosen_connection(bootstrap, profile)
        registry_url, registry_username, registry_password = split_login(registry)
        settings = ConsoleSettings(
            bootstrap=connection.bootstrap,
            client_options=connection.options,
            listen=parse_listen_address(listen),
            name=name,
            read_only=read_only,
            auth=AuthMode(parse_choice(auth, [each.value for each in AuthMode], "--auth")),
            login_mechanism=parse_choice(login_mechanism, _MECHANISMS, "--login-mechanism"),
            oidc=oidc_settings(
                oidc_issuer,
                oidc_client_id,
                oidc_client_secret_file,
                scope=oidc_scope,
                audience=oidc_audience,
                user_claim=oidc_user_claim,
                redirect_url=oidc_redirect_url,
            ),
            registry_url=registry_url,
            registry_username=registry_username,
            registry_password=registry_password,
            pipelines=tuple(pipelines or ()),
            metrics_urls=tuple(metrics or ()),
            audit_file=audit_file(os.environ) if audit_log is None else audit_log,
            export_folder=export_dir,
            export_bytes_max=parse_size(export_limit),
            hosts=tuple(host or ()),
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            command_options=command_options(connection),
        )
        run(settings, stops_with_stdin=stops_with_stdin)
