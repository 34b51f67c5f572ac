"""How commands log in at a schema registry: by `--command-config`, or `OTTLA_REGISTRY_CA` for what is trusted."""

import os
import ssl
from typing import Any, Final

from ottla.cli.profile.store import chosen_connection
from ottla.model.errors import MisuseError

CA_VARIABLE: Final = "OTTLA_REGISTRY_CA"
"""A PEM file with the authorities that a registry's certificate may be of; without it, those of the system."""
HOW_TO_LOG_IN: Final = (
    "set basic.auth.user.info=USER:PASSWORD in the file of --command-config, or write the URL as"
    " https://USER:PASSWORD@host:8081"
)


def registry_options(bootstrap: str | None, profile: str | None) -> dict[str, Any]:
    """The options `auth`, `token` and `tls` of a `RegistryClient`. Reads files. Raises `MisuseError`."""
    found: dict[str, Any] = {}
    path = chosen_connection(bootstrap, profile).command_config
    if path is not None:
        from ottla.client.properties import read_properties
        from ottla.registry.serde.registry_login import RegistryLogin

        try:
            found = RegistryLogin.of(read_properties(path)).options
        except MisuseError as error:
            raise MisuseError(f"{path}: {error}") from None
    authorities = os.environ.get(CA_VARIABLE)
    if authorities and "tls" not in found:
        try:
            found["tls"] = ssl.create_default_context(cafile=authorities)
        except OSError as error:
            raise MisuseError(f"{CA_VARIABLE}={authorities}: {error}") from None
    return found
