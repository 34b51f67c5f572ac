"""What a console was started with, parsed once at the edge."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ottla.model.errors import MisuseError
from ottla.transport.addresses import Address

LISTEN: Final = Address("127.0.0.1", 8080)


class AuthMode(StrEnum):
    """Who may open the console."""

    NONE = "none"
    """Everyone who reaches the address, with the console's own rights; only on a loopback address."""
    CLUSTER = "cluster"
    """Users of the cluster: each one signs in with a SASL user and password, and has the rights of that user."""


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
    audit_file: Path | None = None
    """Where changes are recorded; None keeps only the last ones in memory."""
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
                " 127.0.0.1, or let users sign in with --auth cluster"
            )

    @property
    def has_tls(self) -> bool:
        """Whether browsers connect with TLS to this process."""
        return self.tls_certificate is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
