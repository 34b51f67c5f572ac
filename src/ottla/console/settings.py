"""What a console was started with, parsed once at the edge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.model.errors import MisuseError
from ottla.transport.addresses import Address
from ottla.transport.http_hosts import is_loopback

OIDC_CALLBACK: Final = "/login/callback"
"""Where the identity provider sends browsers back to."""
LISTEN: Final = Address("127.0.0.1", 8080)


class AuthMode(StrEnum):
    """Who may open the console."""

    NONE = "none"
    """Everyone who reaches the address, with the console's own rights; only on a loopback address."""
    CLUSTER = "cluster"
    """Users of the cluster: each one signs in with a SASL user and password, and has the rights of that user."""
    OIDC = "oidc"
    """Users of an identity provider: the brokers get its access token (OAUTHBEARER), and decide what it may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """An identity provider, and this console as its client."""

    issuer: str
    """The issuer's URL, as its tokens have it."""
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    """None for a public client, which PKCE protects alone."""
    scopes: tuple[str, ...] = ("openid",)
    audience: str | None = None
    """The audience that access tokens must have; None if only the brokers check it."""
    user_claim: str = "sub"
    """The claim of access tokens with the user's name: the brokers' sasl.oauthbearer.sub.claim.name."""
    redirect_url: str | None = None
    """The address of this console's /login/callback as browsers see it; None for the one that they ask for."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.issuer)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if not is_safe or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
            raise MisuseError(
                f"--oidc-issuer {self.issuer}: it must be an https: URL without a query; http: is allowed only for this"
                " machine"
            )
        if not self.client_id:
            raise MisuseError("--oidc-client-id must not be empty")
        if "openid" not in self.scopes:
            raise MisuseError("--oidc-scope: openid must be one of the scopes")
        if self.redirect_url is not None and not self.redirect_url.endswith(OIDC_CALLBACK):
            raise MisuseError(f"--oidc-redirect-url {self.redirect_url}: it must end with {OIDC_CALLBACK}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """A Prometheus server that scrapes the brokers (`ottla.console.history`)."""

    url: str
    """Without a login and without a slash at its end."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    labels: tuple[tuple[str, str], ...] = ()
    """What the series of this cluster's brokers have, if the server knows others too: pairs of label and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """One cluster, and how it is shown."""

    bootstrap: str
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The security options of the console's own clients, by the names of `ClientConfig`."""
    listen: Address = LISTEN
    name: str | None = None
    """The cluster's name in the top line; None for its id."""
    read_only: bool = False
    auth: AuthMode = AuthMode.NONE
    login_mechanism: str = "SCRAM-SHA-512"
    """The SASL mechanism with which users sign in."""
    oidc: OidcSettings | None = None
    """For `AuthMode.OIDC`."""
    session_idle_seconds: int = 30 * 60
    session_seconds_max: int = 12 * 60 * 60
    registry_url: str | None = None
    registry_username: str | None = None
    registry_password: str | None = field(default=None, repr=False)
    """The console's own login at the registry; users that signed in use theirs."""
    pipelines: tuple[Path, ...] = ()
    """Folders of pipelines (each with a pipeline.toml)."""
    metrics_urls: tuple[str, ...] = ()
    """The `/metrics` of brokers, for request rates and latencies; without them those are not shown."""
    prometheus: PrometheusSettings | None = None
    """Where charts get their past from, beyond the last 60 minutes; None if there is none."""
    audit_file: Path | None = None
    """Where changes are recorded; None keeps only the last ones in memory."""
    export_folder: Path | None = None
    """Where the files of exports are made; None for the folder of temporary files."""
    export_bytes_max: int = 10 << 30
    """How large they may be together."""
    hosts: tuple[str, ...] = ()
    """Host names, besides the listen address, under which browsers may ask for the console."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    command_options: tuple[str, ...] = ()
    """What the commands on the pages need besides their own options to reach this cluster, such as --bootstrap."""
    sample_seconds: float = 5.0

    def __post_init__(self) -> None:
        if self.auth is AuthMode.NONE and not is_loopback(self.listen.host):
            raise MisuseError(
                f"--listen {self.listen}: everyone who reaches this address could change the cluster; listen on"
                " 127.0.0.1, or let users sign in with --auth cluster or --auth oidc"
            )
        if (self.auth is AuthMode.OIDC) != (self.oidc is not None):
            raise MisuseError("--auth oidc needs --oidc-issuer and --oidc-client-id, and they need --auth oidc")

    @property
    def has_tls(self) -> bool:
        """Whether browsers connect with TLS to this process."""
        return self.tls_certificate is not None
