"""The `Quotas` port: for how long a client is throttled after a request."""

from typing import Protocol

from ottla.security.connection_context import ConnectionContext


class Quotas(Protocol):
    """Counts what clients use, and says for how long they must not send after each request."""

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no quota at all: then nothing needs to be counted, or asked."""

    def throttle_ms(
        self,
        client: ConnectionContext,
        client_id: str | None,
        api_key: int,
        *,
        request_bytes: int,
        response_bytes: int,
        counts_time: bool = True,
    ) -> int:
        """The throttle time of a request that is about to be answered; 0 if no quota is exceeded.

        A Fetch that is throttled is answered without records, so its bytes must not be counted. A request without a
        response is not throttled for the time that requests take: `counts_time` is False.
        """

    def fetch_bytes_max(self, client: ConnectionContext, client_id: str | None) -> int | None:
        """The largest response to a Fetch that the client's quota could ever allow; None for any."""

    def record_time(self, client: ConnectionContext, client_id: str | None, seconds: float) -> None:
        """A request of the client took the broker this time."""

    def mutate(
        self, client: ConnectionContext, client_id: str | None, partition_count: int, *, is_strict: bool
    ) -> tuple[bool, int]:
        """(whether the client may create or delete partitions now, the throttle time in milliseconds)."""

    def take_back_mutations(self, client: ConnectionContext, client_id: str | None, partition_count: int) -> None:
        """Partitions that `mutate` has counted were not created or deleted, for another reason."""


class Unlimited:
    """No quotas. Others may inherit what they do not limit."""

    is_unlimited: bool = True

    def throttle_ms(
        self,
        client: ConnectionContext,
        client_id: str | None,
        api_key: int,
        *,
        request_bytes: int,
        response_bytes: int,
        counts_time: bool = True,
    ) -> int:
        """0."""
        return 0

    def fetch_bytes_max(self, client: ConnectionContext, client_id: str | None) -> int | None:
        """None."""
        return None

    def record_time(self, client: ConnectionContext, client_id: str | None, seconds: float) -> None:
        """Counts nothing."""

    def mutate(
        self, client: ConnectionContext, client_id: str | None, partition_count: int, *, is_strict: bool
    ) -> tuple[bool, int]:
        """They may."""
        return True, 0

    def take_back_mutations(self, client: ConnectionContext, client_id: str | None, partition_count: int) -> None:
        """Nothing was counted."""
