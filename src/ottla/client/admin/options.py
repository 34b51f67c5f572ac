"""What an admin client may be told: the keyword arguments of `Admin` and `AsyncAdmin`, with their defaults."""

from dataclasses import dataclass

from ottla.client.network.cluster import Cluster
from ottla.client.options import ClientConfig, ClientOptions
from ottla.transport.addresses import parse_bootstrap


class AdminOptions(ClientOptions, total=False):
    """What an admin client may be told; see `AdminConfig`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """What an admin client was told. What may be tried again is tried for `request_timeout_ms`."""

    def cluster(self) -> Cluster:
        """The way into the cluster that these options describe; nothing is connected yet."""
        servers = self.bootstrap_servers
        return Cluster(
            parse_bootstrap(servers if isinstance(servers, str) else ",".join(servers)),
            client_id=self.client_id,
            connect_timeout_ms=self.socket_connection_setup_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            backoff=self.backoff,
        )
