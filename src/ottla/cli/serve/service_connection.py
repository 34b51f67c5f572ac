"""How the services beside a broker connect to it: which listener, and with what login.

The schema registry (`ottla serve --registry`) and the console (`--console`) are clients like any other. On a broker
with a PLAINTEXT listener they need nothing; otherwise `--registry-command-config` and `--console-command-config` name a
file of client properties, as `--command-config` does for other commands.
"""

from typing import TYPE_CHECKING, NamedTuple

from ottla.model.errors import InvalidConfigError, MisuseError

if TYPE_CHECKING:
    from ottla.broker.configs.configuration import BrokerConfig


class ServiceConnection(NamedTuple):
    """The name of the listener, and the file of client properties if one is needed."""

    listener: str
    command_config: str | None


def service_connection(service: str, config: "BrokerConfig", command_config: str | None) -> ServiceConnection:
    """The connection of the service (registry or console): the first advertised listener with the protocol of the
    properties; without properties PLAINTEXT.

    Raises InvalidConfigError if there is none, and MisuseError if the properties cannot be used.
    """
    protocol = "PLAINTEXT" if command_config is None else _protocol_of(service, command_config)
    advertised = [each for each in config.listeners if each.advertised is not None]
    found = next((each.name for each in advertised if each.security_protocol == protocol), None)
    if found is not None:
        return ServiceConnection(found, command_config)
    listed = ", ".join(f"{each.name} ({each.security_protocol})" for each in advertised)
    if command_config is None:
        raise InvalidConfigError(
            f"--{service}: the listeners of this broker need TLS or a login: {listed}; pass a file with the"
            f" {service}'s client properties (security.protocol and so on) as --{service}-command-config"
        )
    raise InvalidConfigError(
        f"--{service}-command-config {command_config}: security.protocol={protocol}, but the listeners of this broker"
        f" are {listed}"
    )


def _protocol_of(service: str, command_config: str) -> str:
    from ottla.client.properties import read_properties, security_options

    try:
        return str(security_options(read_properties(command_config))["security_protocol"])
    except MisuseError as error:
        raise MisuseError(f"--{service}-command-config {command_config}: {error}") from None
