"""Opens the registry that a command is to use."""

import os
from typing import TYPE_CHECKING, Final

from ottla.cli.registry.needed_packages import check_installed
from ottla.model.errors import MisuseError

if TYPE_CHECKING:
    from ottla.registry.serde.registry_client import RegistryClient

DEFAULT_URL: Final = "http://localhost:8081"
URL_VARIABLE: Final = "OTTLA_REGISTRY"


def registry_url(url: str | None) -> str:
    """The registry that was named, or the one of the environment, or the one on this machine."""
    return url or os.environ.get(URL_VARIABLE) or DEFAULT_URL


def open_registry(url: str | None, bootstrap: str | None = None, profile: str | None = None) -> "RegistryClient":
    """A client of the registry that logs in as the command's client properties say, which the options choose.

    Raises `MissingPackagesError`, and `MisuseError` for a wrong URL or wrong properties.
    """
    check_installed()
    from ottla.cli.registry.registry_options import registry_options
    from ottla.registry.serde.registry_client import RegistryClient

    named = registry_url(url)
    options = registry_options(bootstrap, profile)
    try:
        return RegistryClient(named, retries=1 + named.count(","), **options)
    except ValueError as error:
        raise MisuseError(f"{error}; write it as http://host:8081") from None
