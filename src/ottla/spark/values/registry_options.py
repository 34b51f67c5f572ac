"""The options that name a schema registry, and the client for them, which a worker keeps for all its tasks."""

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.client.options import OptionError
from ottla.model.errors import DeniedError
from ottla.registry.serde.errors import RegistryAnswerError

if TYPE_CHECKING:
    from ottla.registry.serde.registry_client import RegistryClient

REGISTRY_OPTION_NAMES: Final = (
    "schemaRegistryUrl",
    "schemaRegistryUser",
    "schemaRegistryPassword",
    "schemaRegistryCa",
    "schemaRegistryTimeoutMs",
    "valueSubject",
)
"""In their usual spelling."""
_REQUEST_SECONDS: Final = 10.0


class RegistryDeniedError(DeniedError):
    """The registry refused the credentials. The records are not lost; they are read or written again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAddress:
    """URLs of registries and credentials; the others are asked if the first does not answer. Can be pickled."""

    urls: tuple[str, ...] = field(repr=False)
    """May contain a password."""
    user: str | None = None
    password: str = field(default="", repr=False)
    authorities: str | None = None
    """A PEM file, on every machine, with the authorities that are trusted; None for those of the system."""
    timeout_ms: int = 30_000
    """How long a request is repeated, over all registries."""

    def client(self) -> "RegistryClient":
        """The client of this process."""
        with _lock:
            if self not in _clients:
                from ottla.registry.serde.registry_client import RegistryClient

                tls = None if self.authorities is None else _trusting(self.authorities)
                seconds = self.timeout_ms / 1000
                _clients[self] = RegistryClient(
                    self.urls,
                    auth=None if self.user is None else (self.user, self.password),
                    tls=tls,
                    timeout_seconds=min(seconds, _REQUEST_SECONDS),
                    retry_seconds=seconds,
                )
            return _clients[self]


def _trusting(authorities: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise OptionError(f"schemaRegistryCa={authorities} has no PEM certificates: {error}") from None


_clients: Final[dict[RegistryAddress, "RegistryClient"]] = {}
_lock: Final = threading.Lock()


def registry_address(told: Mapping[str, str]) -> RegistryAddress:
    """The address in the options, which have their usual names. Raises `OptionError`."""
    urls = tuple(each.strip() for each in told.get("schemaRegistryUrl", "").split(",") if each.strip())
    if not urls or not all(each.startswith(("http://", "https://")) for each in urls):
        raise OptionError("values with schemas of a registry need schemaRegistryUrl, such as http://host:port")
    timeout = told.get("schemaRegistryTimeoutMs", "30000")
    if not timeout.isdecimal() or int(timeout) == 0:
        raise OptionError(f"schemaRegistryTimeoutMs={timeout} is not a number of milliseconds")
    return RegistryAddress(
        urls=urls,
        user=told.get("schemaRegistryUser"),
        password=told.get("schemaRegistryPassword", ""),
        authorities=told.get("schemaRegistryCa"),
        timeout_ms=int(timeout),
    )


@contextmanager
def advice_on_credentials() -> Iterator[None]:
    """Names the options for credentials if the registry refuses to answer."""
    try:
        yield
    except RegistryAnswerError as error:
        if error.status not in (401, 403):
            raise
        raise RegistryDeniedError(
            f"the schema registry refused the request: {error}; set schemaRegistryUser and schemaRegistryPassword"
        ) from error
