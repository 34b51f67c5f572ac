"""The screen that `ottla serve` prints below its line `ready` when a person watches: where everything is, what to try.

Scripts read the line `ready`; the screen is printed to terminals only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.broker.configs.configuration import BrokerConfig

_DEFAULT_PORT: Final = ":9092"
_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
_EVERYWHERE: Final = {"": "localhost", "0.0.0.0": "localhost", "::": "localhost"}
"""Where a person on this machine finds a service that listens on all addresses."""

_NEXT_COMMANDS: Final = (
    ("ottla topics create events", "create a topic"),
    ("echo hello | ottla produce events", "write a record"),
    ("ottla consume events", "read it"),
    ("ottla cluster health", "check the cluster"),
    ("ottla doctor", "check this machine"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What runs besides the listeners, by the addresses that the options name; None for what does not run."""

    http: tuple[str, int] | None = None
    registry: tuple[str, int] | None = None
    console: tuple[str, int] | None = None


def welcome(addresses: Sequence[str], config: "BrokerConfig", metadata: str, services: Services) -> Iterator[str]:
    """The lines of the screen. `addresses` are the advertised ones, one for each broker."""
    facts = {
        "address" if len(addresses) == 1 else "addresses": ", ".join(addresses),
        "data": ", ".join(str(Path(each).absolute()) for each in config.log_dirs),
        "metadata": metadata,
        "registry": url_of(services.registry),
        "console": url_of(services.console),
        "metrics": url_of(services.http, "/metrics"),
    }
    width = max(map(len, facts)) + 2
    yield ""
    yield f"  Ottla {__version__}"
    for name, value in facts.items():
        if value:
            yield f"    {name.ljust(width)}{value}"
    yield ""
    yield "  In another terminal:"
    needed = list(_needed(addresses[0], config))
    column = max(len(command) for command, _ in (*needed, *_NEXT_COMMANDS)) + 3
    for command, words in (*needed, *_NEXT_COMMANDS):
        yield f"    {command.ljust(column)}{words}"
    yield ""
    yield f"  Ctrl-C stops the {'broker' if len(addresses) == 1 else 'brokers'}."
    yield ""


def _needed(address: str, config: "BrokerConfig") -> Iterator[tuple[str, str]]:
    """What commands need before they reach this broker."""
    host, _, _ = address.rpartition(":")
    if host not in _LOCAL or not address.endswith(_DEFAULT_PORT):
        yield f"export OTTLA_BOOTSTRAP={address}", "the commands below connect to it"
    advertised = [each for each in config.listeners if each.advertised is not None]
    if advertised and advertised[0].security_protocol != "PLAINTEXT":
        yield "ottla profile create NAME --help", f"store a login for {advertised[0].security_protocol}"


def url_of(address: tuple[str, int] | None, path: str = "") -> str:
    """Where a service is; empty if there is none, or the system chooses its port."""
    if address is None or address[1] == 0:
        return ""
    host = _EVERYWHERE.get(address[0], address[0])
    return f"http://{f'[{host}]' if ':' in host else host}:{address[1]}{path}"
