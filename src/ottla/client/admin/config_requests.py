"""Admin requests about configs of topics, brokers and groups: describe, alter, list."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ottla.client.errors import UnsupportedByBrokerError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.errors import InvalidConfigError, InvalidRequestError
from ottla.protocol.apis import ApiKey
from ottla.protocol.config_resources import ConfigSource as ConfigSource
from ottla.protocol.config_resources import ResourceType as ResourceType


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A topic by name, or a broker by id; an empty name means all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(all)'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config. The value of a sensitive config is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None
    is_known: bool = True
    """Whether the broker knows a config of this name."""
    default: str | None = field(default=None, compare=False)
    """What applies without an override, if synonyms were asked for. None if it is not known: brokers do not tell the
    default of configs, such as retention.ms, whose default is in another unit."""


async def describe_configs(
    cluster: Cluster,
    resource: Resource,
    names: Collection[str] | None = None,
    *,
    documentation: bool = False,
    of_any: bool = False,
) -> list[ConfigEntry]:
    """The configs of a resource, all or these, sorted by name.

    Asks the controller, which knows changes first; with `of_any`, any broker.
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


async def describe_many(
    cluster: Cluster,
    resources: Collection[Resource],
    names: Collection[str] | None = None,
    *,
    documentation: bool = False,
) -> dict[Resource, list[ConfigEntry]]:
    """As `describe_configs`, with defaults, for topics or groups in one request; refused ones are left out."""
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
    from kio.static.primitive import i8

    if not resources:
        return {}
    message = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=i8(each.type),
                resource_name=each.name,
                configuration_keys=None if names is None else tuple(names),
            )
            for each in resources
        ),
        include_synonyms=True,
        include_documentation=documentation,
    )
    response = await cluster.retry(lambda: cluster.to_controller(ApiKey.DESCRIBE_CONFIGS, message))
    return {
        Resource(type=ResourceType(int(result.resource_type)), name=result.resource_name): sorted(
            (_entry(each) for each in result.configs), key=lambda entry: entry.name
        )
        for result in response.results
        if not result.error_code
    }


async def alter_configs(
    cluster: Cluster, resource: Resource, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Sets configs; None removes an override, so that the default applies again."""
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


async def check_config_names(cluster: Cluster, resource: Resource, names: Collection[str]) -> None:
    """Raises InvalidConfigError for a name that is not a config of the resource.

    Brokers accept the deletion of a config that does not exist, so that a misspelled name would go unnoticed.
    """
    known = {each.name for each in await describe_configs(cluster, resource)}
    if resource.type is ResourceType.BROKER and not resource.name:
        # For all brokers, only those that are set are described.
        one = Resource(type=ResourceType.BROKER, name=str(min((await cluster.refresh([])).brokers)))
        known.update(each.name for each in await describe_configs(cluster, one))
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1, cutoff=0.7)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InvalidConfigError(f"{name} is not a config of {resource}{hint}")


async def list_config_resources(cluster: Cluster, types: Collection[ResourceType] = ()) -> list[Resource]:
    """The resources of these types, or all, that have configs of their own; sorted. Unknown types are left out."""
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


_OVERRIDES = (ConfigSource.TOPIC, ConfigSource.GROUP, ConfigSource.CLIENT_METRICS)


async def _ask(cluster: Cluster, resource: Resource, api_key: ApiKey, message: Any) -> Any:
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name:
        # Only the broker itself knows its static configs.
        if not resource.name.isdecimal():
            raise InvalidRequestError(f"{resource}: the name of a broker resource must be its id, a number")
        broker = int(resource.name)
        if broker not in cluster.view.brokers:
            await cluster.refresh([])
        if broker not in cluster.view.brokers:
            # Not worth a retry: it is more likely that the id is wrong than that the broker starts in a moment.
            registered = ", ".join(map(str, sorted(cluster.view.brokers)))
            raise InvalidRequestError(f"broker {broker} is not registered in this cluster; registered: {registered}")
        return await cluster.to_broker(broker, api_key, message)
    return await cluster.to_controller(api_key, message)


def _entry(found: Any) -> ConfigEntry:
    source = _source(found.config_source)
    return ConfigEntry(
        name=found.name,
        value=found.value,
        source=source,
        is_read_only=bool(found.read_only),
        is_sensitive=bool(found.is_sensitive),
        documentation=found.documentation,
        is_known=bool(found.config_type),
        default=_default(found, source),
    )


def _default(found: Any, source: ConfigSource) -> str | None:
    """The value below the override of the resource itself."""
    if source not in _OVERRIDES:
        return str(found.value) if found.value is not None else None
    below = [each.value for each in found.synonyms if _source(each.source) not in _OVERRIDES]
    return below[0] if below else None


def _source(number: Any) -> ConfigSource:
    try:
        return ConfigSource(int(number))
    except ValueError:
        return ConfigSource.UNKNOWN
