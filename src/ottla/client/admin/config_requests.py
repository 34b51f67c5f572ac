"""Configs of topics and brokers, as plain functions: what is set, from where, what it means, and changing it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ottla.client.errors import UnsupportedByBrokerError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.errors import InvalidRequestError
from ottla.protocol.apis import ApiKey


class ResourceType(IntEnum):
    """What can have configs, by the protocol's number."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a config's value comes from, by the protocol's number."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One topic by name, or one broker by id; an empty name means all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(all)'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config. A sensitive one's value is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None


async def describe_configs(
    cluster: Cluster,
    resource: Resource,
    names: Collection[str] | None = None,
    *,
    documentation: bool = False,
    of_any: bool = False,
) -> list[ConfigEntry]:
    """A resource's configs, all or these, in the order of their names.

    The controller is asked, which knows of changes first; with `of_any`, any broker that answers.
    """
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
    from kio.static.primitive import i8

    message = DescribeConfigsRequest(
        resources=(
            DescribeConfigsResource(
                resource_type=i8(resource.type),
                resource_name=resource.name,
                configuration_keys=None if names is None else tuple(names),
            ),
        ),
        include_documentation=documentation,
    )

    async def ask() -> Any:
        if of_any:
            return await cluster.to_any(ApiKey.DESCRIBE_CONFIGS, message)
        return await _ask(cluster, resource, ApiKey.DESCRIBE_CONFIGS, message)

    response = await cluster.retry(ask)
    (result,) = response.results
    if result.error_code:
        raise answer_error(int(result.error_code), f"configs of {resource}", result.error_message)
    return sorted((_entry(each) for each in result.configs), key=lambda entry: entry.name)


async def alter_configs(
    cluster: Cluster, resource: Resource, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Sets configs, or with None takes an override away so that the default counts again."""
    from kio.schema.incremental_alter_configs.v1.request import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from kio.static.primitive import i8

    message = IncrementalAlterConfigsRequest(
        resources=(
            AlterConfigsResource(
                resource_type=i8(resource.type),
                resource_name=resource.name,
                configs=tuple(
                    AlterableConfig(name=name, config_operation=i8(0 if value is not None else 1), value=value)
                    for name, value in changes.items()
                ),
            ),
        ),
        validate_only=validate_only,
    )
    response = await cluster.retry(lambda: _ask(cluster, resource, ApiKey.INCREMENTAL_ALTER_CONFIGS, message))
    (result,) = response.responses
    if result.error_code:
        raise answer_error(int(result.error_code), f"configs of {resource}", result.error_message)


async def list_config_resources(cluster: Cluster, types: Collection[ResourceType] = ()) -> list[Resource]:
    """The resources of these types, or of all, that have configs of their own; sorted. A type from the future is left
    out."""
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
    from kio.static.primitive import i8

    message = ListConfigResourcesRequest(resource_types=tuple(map(i8, sorted(types))))

    async def ask() -> list[Resource]:
        connection = await cluster.any_connection()
        if connection.version_for(ApiKey.LIST_CONFIG_RESOURCES) == 0 and set(types) != {ResourceType.CLIENT_METRICS}:
            raise UnsupportedByBrokerError(
                f"{connection.address} can only list resources of type CLIENT_METRICS; use a newer broker"
            )
        response = await connection.request(
            ApiKey.LIST_CONFIG_RESOURCES, message, timeout_ms=cluster.request_timeout_ms
        )
        if response.error_code:
            raise answer_error(int(response.error_code), "config resources")
        known = {each.value for each in ResourceType}
        return [
            Resource(type=ResourceType(int(each.resource_type)), name=each.resource_name)
            for each in sorted(response.config_resources, key=lambda each: (each.resource_type, each.resource_name))
            if int(each.resource_type) in known
        ]

    return await cluster.retry(ask)


async def _ask(cluster: Cluster, resource: Resource, api_key: ApiKey, message: Any) -> Any:
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name:
        # Only the broker itself knows what it was started with.
        if not resource.name.isdecimal():
            raise InvalidRequestError(f"{resource}: a broker is named by its id, a number")
        return await cluster.to_broker(int(resource.name), api_key, message)
    return await cluster.to_controller(api_key, message)


def _entry(found: Any) -> ConfigEntry:
    try:
        source = ConfigSource(int(found.config_source))
    except ValueError:
        source = ConfigSource.UNKNOWN
    return ConfigEntry(
        name=found.name,
        value=found.value,
        source=source,
        is_read_only=bool(found.read_only),
        is_sensitive=bool(found.is_sensitive),
        documentation=found.documentation,
    )
