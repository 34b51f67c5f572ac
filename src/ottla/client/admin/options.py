"""The keyword arguments of `Admin` and `AsyncAdmin`."""

from dataclasses import dataclass

from ottla.client.network.cluster import Cluster
from ottla.client.options import ClientConfig, ClientOptions
from ottla.transport.addresses import parse_bootstrap


class AdminOptions(ClientOptions, total=False):
    """The options of an admin client; `AdminConfig` documents them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The options of an admin client. Retriable errors are retried for `request_timeout_ms`."""

    def cluster(self) -> Cluster:
        """The cluster at `bootstrap_servers`; not connected yet."""
        servers = self.bootstrap_servers
        return Cluster(
            parse_bootstrap(servers if isinstance(servers, str) else ",".join(servers)),
            client_id=self.client_id,
            connect_timeout_ms=self.socket_connection_setup_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            backoff=self.backoff,
            security=self.security,
        )
