"""`ottla console`: serves web pages for a cluster of Ottla or Apache Kafka."""

import os

from ottla.cli.command_runner import CONTEXT, application, examples, guarded
from ottla.cli.console.options import (
    AuditLog,
    Authentication,
    ClusterName,
    ExportFolder,
    ExportLimit,
    HostNames,
    LoginMechanism,
    MetricsUrls,
    OidcAudience,
    OidcClientId,
    OidcClientSecretFile,
    OidcIssuer,
    OidcRedirectUrl,
    OidcScope,
    OidcUserClaim,
    PipelineFolders,
    PrometheusLabels,
    PrometheusUrl,
    ReadOnly,
    RegistryUrl,
)
from ottla.cli.options import Bootstrap, Profile, parse_choice
from ottla.cli.service_options import Listen, LogFormat, LogLevel, StopsWithStdin, TlsCertificate, TlsKey

app = application("Serve web pages for a cluster: topics, records, groups, schemas, pipelines, security.")

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@app.command(
    "console",
    context_settings=CONTEXT,
    epilog=examples(
        "ottla console",
        "ottla console --bootstrap kafka1:9092,kafka2:9092 --registry http://127.0.0.1:8081 --read-only",
        "ottla console --prometheus http://127.0.0.1:9090 --prometheus-label job=ottla",
        "ottla console --listen 0.0.0.0:8443 --auth cluster --command-config console.properties"
        " --tls-certificate console.pem",
        "ottla console --auth oidc --oidc-issuer https://id.example.com --oidc-client-id console --command-config"
        " console.properties",
    ),
)
def console(
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    listen: Listen = "127.0.0.1:8080",
    read_only: ReadOnly = False,
    registry: RegistryUrl = None,
    auth: Authentication = "none",
    login_mechanism: LoginMechanism = "SCRAM-SHA-512",
    oidc_issuer: OidcIssuer = None,
    oidc_client_id: OidcClientId = None,
    oidc_client_secret_file: OidcClientSecretFile = None,
    oidc_scope: OidcScope = "openid",
    oidc_audience: OidcAudience = None,
    oidc_user_claim: OidcUserClaim = "sub",
    oidc_redirect_url: OidcRedirectUrl = None,
    pipelines: PipelineFolders = None,
    metrics: MetricsUrls = None,
    prometheus: PrometheusUrl = None,
    prometheus_label: PrometheusLabels = None,
    name: ClusterName = None,
    host: HostNames = None,
    audit_log: AuditLog = None,
    export_dir: ExportFolder = None,
    export_limit: ExportLimit = "10g",
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
    stops_with_stdin: StopsWithStdin = False,
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
        from ottla.console.history.options import parse_prometheus
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
            prometheus=parse_prometheus(prometheus, prometheus_label or ()),
            audit_file=audit_file(os.environ) if audit_log is None else audit_log,
            export_folder=export_dir,
            export_bytes_max=parse_size(export_limit),
            hosts=tuple(host or ()),
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            command_options=command_options(connection),
        )
        run(settings, stops_with_stdin=stops_with_stdin)
