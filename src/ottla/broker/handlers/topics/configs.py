"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

What is set is in the cluster's image; what that means is computed in `topic_settings.py` and `configuration.py`, what a
change makes of it in `config_changes.py`. Here requests become those calls, and errors the answer of their resource.
Topics, brokers, groups, client metrics subscriptions and loggers have configs.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kio.schema.alter_configs.v2 import request as replace_request
from kio.schema.alter_configs.v2 import response as replace_response
from kio.schema.describe_configs.v4 import request as describe_request
from kio.schema.incremental_alter_configs.v1 import request as change_request
from kio.schema.incremental_alter_configs.v1 import response as change_response
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse
from kio.static.primitive import i8

from ottla.broker.configs.config_changes import ConfigChange, Operation, changed, check_changes, replaced
from ottla.broker.configs.configuration import describe_broker, describe_cluster_wide, validate_dynamic
from ottla.broker.configs.group_settings import describe_group_configs, validate_group_configs
from ottla.broker.configs.logger_levels import change_logger_levels, check_logger_changes, logger_levels
from ottla.broker.configs.topic_settings import describe_topic, validate_topic_configs
from ottla.broker.handlers.topics.config_bodies import assemble, encode_configs, encode_entry
from ottla.broker.handlers.topics.dead_letter_permission import check_dead_letters
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.companions_state import changed_configs
from ottla.controller.topic_names import fault_of_name
from ottla.metadata.configs.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs.client_metrics_configs import (
    CLIENT_METRICS_CONFIGS,
    describe_client_metrics,
    validate_client_metrics_configs,
)
from ottla.metadata.configs.definition import ConfigDefinition, ConfigSource, DescribedConfig
from ottla.metadata.configs.group_configs import GROUP_CONFIGS
from ottla.metadata.configs.topic_configs import TOPIC_CONFIGS
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import broker_configs_key, client_metrics_key, group_configs_key, topic_configs_key
from ottla.metadata.store import ConflictError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicNameError,
    OttlaError,
    UnknownTopicError,
)
from ottla.protocol.config_resources import ResourceType
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security import resources as security

AlteredResource = TypeVar(
    "AlteredResource", replace_response.AlterConfigsResourceResponse, change_response.AlterConfigsResourceResponse
)

_RESOURCES_PER_TURN: Final = 20
"""How many resources are gone through before the event loop is given back, if nothing had to be encoded for them."""
_ALL_TYPES_SINCE: Final = 1
_MIN_ISR: Final = "min.insync.replicas"
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,10}")
_NAME_LENGTH_MAX: Final = 1_000
"""Of the names of groups and subscriptions."""
_SUBSCRIPTIONS_MAX: Final = 1_000
_ATTEMPTS_MAX: Final = 10
"""Each lost attempt means that another change was made first."""


class Resource(NamedTuple):
    """Something that has configs: a topic by its name, a broker by its id, all brokers by an empty name."""

    type: int
    name: str


class Answer(NamedTuple):
    """How a change of one resource's configs went."""

    resource: Resource
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def describe_configs(
    services: Services, context: RequestContext, request: describe_request.DescribeConfigsRequest
) -> bytes:
    """The body of the answer: the configs that are asked for, of each resource; all of them where none is named."""
    describing = _Describing(services, context, request)
    entries = []
    for count, wanted in enumerate(request.resources, start=1):
        encoded_before = describing.encoded
        entries.append(
            describing.entry(Resource(wanted.resource_type, wanted.resource_name), wanted.configuration_keys)
        )
        if encoded_before != describing.encoded or count % _RESOURCES_PER_TURN == 0:
            await asyncio.sleep(0)
    return assemble(context.version, entries)


async def alter_configs(
    services: Services, context: RequestContext, request: replace_request.AlterConfigsRequest
) -> replace_response.AlterConfigsResponse:
    """Sets the configs of each resource to those of the request; what it does not name goes back to its default."""
    wishes = [
        (
            Resource(each.resource_type, each.resource_name),
            [ConfigChange(config.name, Operation.SET, config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    answers = await _alter(services, context, wishes, is_incremental=False, validate_only=request.validate_only)
    return replace_response.AlterConfigsResponse(
        throttle_time=milliseconds(0),
        responses=_altered(replace_response.AlterConfigsResourceResponse, answers),
    )


async def incremental_alter_configs(
    services: Services, context: RequestContext, request: change_request.IncrementalAlterConfigsRequest
) -> change_response.IncrementalAlterConfigsResponse:
    """Changes the configs that the request names, and leaves the others; all or none of one resource."""
    wishes = [
        (
            Resource(each.resource_type, each.resource_name),
            [ConfigChange(config.name, config.config_operation, config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    answers = await _alter(services, context, wishes, is_incremental=True, validate_only=request.validate_only)
    return change_response.IncrementalAlterConfigsResponse(
        throttle_time=milliseconds(0),
        responses=_altered(change_response.AlterConfigsResourceResponse, answers),
    )


def _altered(kind: type[AlteredResource], answers: Iterable[Answer]) -> tuple[AlteredResource, ...]:
    return tuple(
        kind(
            error_code=wire_error(answer.error),
            error_message=answer.message,
            resource_type=i8(answer.resource.type),
            resource_name=answer.resource.name,
        )
        for answer in answers
    )


async def list_config_resources(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """What has configs, of the types that are asked for; version 0 knew client metrics only."""
    wanted: set[int] = set(request.resource_types) or set(ResourceType)
    if context.version < _ALL_TYPES_SINCE:
        wanted = {ResourceType.CLIENT_METRICS}
    brokers = [str(each) for each in sorted(services.image.brokers)]
    names: Mapping[int, Sequence[str]] = {
        ResourceType.TOPIC: sorted(services.image.topics),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: sorted(services.image.client_metrics),
        ResourceType.GROUP: sorted(services.image.group_configs),
    }
    error = ErrorCode.NONE if wanted <= set(ResourceType) else ErrorCode.UNSUPPORTED_VERSION
    if not context.allows_cluster(security.Operation.DESCRIBE_CONFIGS):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ListConfigResourcesResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=i8(resource_type))
            for resource_type in sorted(() if error else wanted)
            for name in names[resource_type]
        ),
    )


# Describing


class _Describing:
    """Encodes the entries of one response. Topics that set the same configs share what was encoded for the first."""

    def __init__(
        self, services: Services, context: RequestContext, request: describe_request.DescribeConfigsRequest
    ) -> None:
        self.encoded = 0
        """How many lists of configs were encoded so far: what takes time."""
        self._services = services
        self._config = services.config
        self._context = context
        self._version = context.version
        self._request = request
        self._nothing = encode_configs((), context.version)
        self._seen: set[Resource] = set()
        self._shared: dict[object, bytes] = {}

    def entry(self, resource: Resource, keys: tuple[str, ...] | None) -> bytes:
        """One resource's entry, with its configs or with the reason why there are none."""
        try:
            if resource in self._seen:
                # Else a small request could make an answer without bounds.
                raise InvalidRequestError("the resource is named more than once; name it once")
            self._seen.add(resource)
            _check_allowed(self._context, security.Operation.DESCRIBE_CONFIGS, resource)
            configs = self._configs(resource, frozenset(keys) if keys else None)
        except OttlaError as failure:
            return encode_entry(self._version, *resource, self._nothing, failure.code, str(failure))
        return encode_entry(self._version, *resource, configs)

    def _configs(self, resource: Resource, keys: frozenset[str] | None) -> bytes:
        if resource.type != ResourceType.TOPIC:
            if resource.type not in _DESCRIBERS:
                raise _unknown_type(resource)
            return self._encode(_DESCRIBERS[resource.type](self._services, resource.name), keys)
        _check_topic_name(resource.name)
        overrides = _configs_of_topic(self._services.image, resource.name)
        shared = (keys, frozenset(overrides.items()))
        if shared not in self._shared:
            self._shared[shared] = self._encode(describe_topic(self._config, overrides), keys)
        return self._shared[shared]

    def _encode(self, configs: Sequence[DescribedConfig], keys: frozenset[str] | None) -> bytes:
        self.encoded += 1
        return encode_configs(
            [each for each in configs if keys is None or each.name in keys],
            self._version,
            with_synonyms=self._request.include_synonyms,
            with_documentation=self._request.include_documentation,
        )


def _describe_broker(services: Services, name: str) -> list[DescribedConfig]:
    if not name:
        return describe_cluster_wide(services.config)
    _check_broker_name(services, name)
    return describe_broker(services.config)


def _describe_loggers(services: Services, name: str) -> list[DescribedConfig]:
    _check_broker_name(services, name)
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [DescribedConfig(name=logger, value=level, source=source) for logger, level in logger_levels().items()]


def _describe_group(services: Services, name: str) -> list[DescribedConfig]:
    if not name:
        raise InvalidRequestError("the name of a group must not be empty")
    return describe_group_configs(services.config, services.image.group_configs.get(name, {}))


def _describe_client_metrics(services: Services, name: str) -> list[DescribedConfig]:
    if not name:
        raise InvalidRequestError("the name of a client metrics subscription must not be empty")
    return describe_client_metrics(services.image.client_metrics.get(name, {}))


_DESCRIBERS: Final[Mapping[int, Callable[[Services, str], list[DescribedConfig]]]] = {
    ResourceType.BROKER: _describe_broker,
    ResourceType.BROKER_LOGGER: _describe_loggers,
    ResourceType.CLIENT_METRICS: _describe_client_metrics,
    ResourceType.GROUP: _describe_group,
}


# Changing


Outcome = Callable[[Mapping[str, str], Mapping[str, ConfigDefinition]], dict[str, str]]
"""What is set after a change, of what is set before it and of the definitions."""


async def _alter(
    services: Services,
    context: RequestContext,
    wishes: Sequence[tuple[Resource, Sequence[ConfigChange]]],
    *,
    is_incremental: bool,
    validate_only: bool,
) -> list[Answer]:
    """Changes one resource after the other; one that fails leaves the others alone."""
    counts = Counter(resource for resource, _ in wishes)
    answers = []
    for count, (resource, changes) in enumerate(wishes, start=1):
        if count % _RESOURCES_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            if counts[resource] > 1:
                raise InvalidRequestError("the resource is named more than once; combine its changes")
            _check_allowed(context, security.Operation.ALTER_CONFIGS, resource)
            check_changes(changes)
            await _alter_one(
                services, context, resource, changes, is_incremental=is_incremental, validate_only=validate_only
            )
            answers.append(Answer(resource))
        except OttlaError as failure:
            answers.append(Answer(resource, failure.code, str(failure)))
    return answers


async def _alter_one(
    services: Services,
    context: RequestContext,
    resource: Resource,
    changes: Sequence[ConfigChange],
    *,
    is_incremental: bool,
    validate_only: bool,
) -> None:
    def outcome(current: Mapping[str, str], definitions: Mapping[str, ConfigDefinition]) -> dict[str, str]:
        return changed(current, changes, definitions) if is_incremental else replaced(changes)

    if resource.type == ResourceType.BROKER_LOGGER and is_incremental:
        _check_broker_name(services, resource.name)
        check_logger_changes(changes)
        if not validate_only:
            change_logger_levels(changes)
        return
    if resource.type not in _ALTERERS:
        raise _unknown_type(resource)
    for attempt in range(_ATTEMPTS_MAX):
        image = services.image
        try:
            await _ALTERERS[resource.type](services, context, image, resource.name, outcome, validate_only)
            return
        except ConflictError:
            # Another change was committed first; this one is computed again from the new configs.
            if attempt == _ATTEMPTS_MAX - 1:
                raise
            await services.wait_revision(image.revision + 1)


async def _alter_topic(
    services: Services,
    context: RequestContext,
    image: ClusterImage,
    name: str,
    outcome: Outcome,
    validate_only: bool,
) -> None:
    if not name:
        raise InvalidRequestError("topics have no common configs; set configs of the broker, or name a topic")
    _check_topic_name(name)
    current = _configs_of_topic(image, name)
    configs = changed_configs(image, image.topics[name], outcome(current, TOPIC_CONFIGS))
    validate_topic_configs(configs, services.config)
    check_dead_letters(context, image, name, configs, current)
    if configs != current:
        expected = image.revision_of(topic_configs_key(name))
        revision = await services.controller.set_topic_configs(
            name, configs, expected=expected, validate_only=validate_only
        )
        await services.wait_revision(revision)


async def _alter_broker(
    services: Services,
    context: RequestContext,
    image: ClusterImage,
    name: str,
    outcome: Outcome,
    validate_only: bool,
) -> None:
    if name:
        _check_broker_name(services, name)
    key = str(services.broker_id) if name else ""
    current = image.broker_configs.get(key, {})
    configs = outcome(current, BROKER_CONFIGS)
    validate_dynamic(services.config, configs, is_cluster_wide=not name)
    has_elr = image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
    if name and has_elr and configs.get(_MIN_ISR) != current.get(_MIN_ISR):
        # The controller and the leaders must agree on it.
        raise InvalidConfigError(
            f"Broker-level {_MIN_ISR} cannot be altered while ELR is enabled; set it for all brokers, or for topics"
        )
    if name and configs != current:
        services.check_listeners(services.config.with_dynamic(services.config.cluster_wide, configs))
    if not validate_only and configs != current:
        expected = image.revision_of(broker_configs_key(key))
        await services.wait_revision(await services.controller.set_broker_configs(key, configs, expected=expected))


async def _alter_group(
    services: Services,
    context: RequestContext,
    image: ClusterImage,
    name: str,
    outcome: Outcome,
    validate_only: bool,
) -> None:
    if not name:
        raise InvalidRequestError("groups have no common configs; name a group, or set configs of the broker")
    if len(name) > _NAME_LENGTH_MAX:
        raise InvalidRequestError(f"the name of a group has more than {_NAME_LENGTH_MAX} characters")
    current = image.group_configs.get(name, {})
    configs = outcome(current, GROUP_CONFIGS)
    validate_group_configs(configs, services.config)
    if not validate_only and configs != current:
        expected = image.revision_of(group_configs_key(name))
        await services.wait_revision(await services.controller.set_group_configs(name, configs, expected=expected))


async def _alter_client_metrics(
    services: Services,
    context: RequestContext,
    image: ClusterImage,
    name: str,
    outcome: Outcome,
    validate_only: bool,
) -> None:
    if not name:
        raise InvalidRequestError("the name of a client metrics subscription must not be empty")
    if len(name) > _NAME_LENGTH_MAX:
        raise InvalidRequestError(f"the name of a subscription has more than {_NAME_LENGTH_MAX} characters")
    current = image.client_metrics.get(name, {})
    configs = outcome(current, CLIENT_METRICS_CONFIGS)
    validate_client_metrics_configs(configs)
    if configs and not current and len(image.client_metrics) >= _SUBSCRIPTIONS_MAX:
        raise InvalidRequestError(f"there are {_SUBSCRIPTIONS_MAX} client metrics subscriptions already; remove some")
    if not validate_only and configs != current:
        expected = image.revision_of(client_metrics_key(name))
        await services.wait_revision(await services.controller.set_client_metrics(name, configs, expected=expected))


_Alterer = Callable[[Services, RequestContext, ClusterImage, str, Outcome, bool], Awaitable[None]]
_ALTERERS: Final[Mapping[int, _Alterer]] = {
    ResourceType.TOPIC: _alter_topic,
    ResourceType.BROKER: _alter_broker,
    ResourceType.GROUP: _alter_group,
    ResourceType.CLIENT_METRICS: _alter_client_metrics,
}


def _check_allowed(context: RequestContext, operation: security.Operation, resource: Resource) -> None:
    """Raises a DeniedError unless the client may do this to the resource's configs."""
    if resource.type == ResourceType.TOPIC:
        context.check(operation, security.ResourceType.TOPIC, resource.name)
    elif resource.type == ResourceType.GROUP:
        context.check(operation, security.ResourceType.GROUP, resource.name)
    else:
        context.check_cluster(operation)


def _configs_of_topic(image: ClusterImage, name: str) -> Mapping[str, str]:
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicError(f"topic {name} does not exist")
    return topic.configs


def _check_topic_name(name: str) -> None:
    fault = fault_of_name(name)
    if fault is not None:
        raise InvalidTopicNameError(fault)


def _check_broker_name(services: Services, name: str) -> None:
    if not _WHOLE.fullmatch(name):
        raise InvalidRequestError(f"{name[:100]!r} is not a broker id; a broker is named by its id, a whole number")
    if int(name) != services.broker_id:
        raise InvalidRequestError(f"this is broker {services.broker_id}; send the request to broker {int(name)}")


def _unknown_type(resource: Resource) -> InvalidRequestError:
    return InvalidRequestError(f"configs of resources of type {resource.type} are not supported here")
