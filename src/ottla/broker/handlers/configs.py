"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

What is set is in the cluster's image; what that means is computed in `topic_settings.py` and `configuration.py`, what a
change makes of it in `config_changes.py`. Here requests become those calls, and errors the answer of their resource.
Topics, brokers and loggers have configs; groups and client metrics have none that could be set.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.alter_configs.v2 import request as replace_request
from kio.schema.alter_configs.v2 import response as replace_response
from kio.schema.describe_configs.v4 import request as describe_request
from kio.schema.incremental_alter_configs.v1 import request as change_request
from kio.schema.incremental_alter_configs.v1 import response as change_response
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse
from kio.static.primitive import i8

from ottla.broker.config_changes import ConfigChange, Operation, changed, check_changes, replaced
from ottla.broker.configuration import describe_broker, describe_cluster_wide, validate_dynamic
from ottla.broker.context import Context
from ottla.broker.handlers.config_bodies import assemble, encode_configs, encode_entry
from ottla.broker.logger_levels import change_logger_levels, check_logger_changes, logger_levels
from ottla.broker.topic_settings import describe_topic, validate_topic_configs
from ottla.controller.topic_names import fault_of_name
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.config_types import ConfigDefinition, ConfigSource, DescribedConfig
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import broker_configs_key, topic_configs_key
from ottla.metadata.store import ConflictError
from ottla.metadata.topic_configs import TOPIC_CONFIGS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, InvalidTopicNameError, OttlaError, UnknownTopicError
from ottla.protocol.messages import milliseconds, wire_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_RESOURCES_PER_TURN: Final = 20
"""How many resources are gone through before the event loop is given back, if nothing had to be encoded for them."""
_ALL_TYPES_SINCE: Final = 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,10}")
_ATTEMPTS_MAX: Final = 10
"""Each lost attempt means that another change was made first."""


class ResourceType(IntEnum):
    """What configs belong to, by its number on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


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
    broker: "Broker", context: Context, request: describe_request.DescribeConfigsRequest
) -> bytes:
    """The body of the answer: the configs that are asked for, of each resource; all of them where none is named."""
    describing = _Describing(broker, context.version, request)
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
    broker: "Broker", context: Context, request: replace_request.AlterConfigsRequest
) -> replace_response.AlterConfigsResponse:
    """Sets the configs of each resource to those of the request; what it does not name goes back to its default."""
    wishes = [
        (
            Resource(each.resource_type, each.resource_name),
            [ConfigChange(config.name, Operation.SET, config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    answers = await _alter(broker, wishes, is_incremental=False, is_rehearsal=request.validate_only)
    return replace_response.AlterConfigsResponse(
        throttle_time=milliseconds(0),
        responses=tuple(
            replace_response.AlterConfigsResourceResponse(
                error_code=wire_error(answer.error),
                error_message=answer.message,
                resource_type=i8(answer.resource.type),
                resource_name=answer.resource.name,
            )
            for answer in answers
        ),
    )


async def incremental_alter_configs(
    broker: "Broker", context: Context, request: change_request.IncrementalAlterConfigsRequest
) -> change_response.IncrementalAlterConfigsResponse:
    """Changes the configs that the request names, and leaves the others; all or none of one resource."""
    wishes = [
        (
            Resource(each.resource_type, each.resource_name),
            [ConfigChange(config.name, config.config_operation, config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    answers = await _alter(broker, wishes, is_incremental=True, is_rehearsal=request.validate_only)
    return change_response.IncrementalAlterConfigsResponse(
        throttle_time=milliseconds(0),
        responses=tuple(
            change_response.AlterConfigsResourceResponse(
                error_code=wire_error(answer.error),
                error_message=answer.message,
                resource_type=i8(answer.resource.type),
                resource_name=answer.resource.name,
            )
            for answer in answers
        ),
    )


async def list_config_resources(
    broker: "Broker", context: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """What has configs, of the types that are asked for; version 0 knew client metrics only."""
    wanted: set[int] = set(request.resource_types) or set(ResourceType)
    if context.version < _ALL_TYPES_SINCE:
        wanted = {ResourceType.CLIENT_METRICS}
    brokers = [str(each) for each in sorted(broker.image.brokers)]
    names: Mapping[int, Sequence[str]] = {
        ResourceType.TOPIC: sorted(broker.image.topics),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: (),
        ResourceType.GROUP: (),
    }
    are_known = wanted <= set(ResourceType)
    return ListConfigResourcesResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(ErrorCode.NONE if are_known else ErrorCode.UNSUPPORTED_VERSION),
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=i8(resource_type))
            for resource_type in sorted(wanted if are_known else ())
            for name in names[resource_type]
        ),
    )


# Describing


class _Describing:
    """Encodes the entries of one response. Topics that set the same configs share what was encoded for the first."""

    def __init__(self, broker: "Broker", version: int, request: describe_request.DescribeConfigsRequest) -> None:
        self.encoded = 0
        """How many lists of configs were encoded so far: what takes time."""
        self._broker = broker
        self._config = broker.config
        self._version = version
        self._request = request
        self._nothing = encode_configs((), version)
        self._seen: set[Resource] = set()
        self._shared: dict[object, bytes] = {}

    def entry(self, resource: Resource, keys: tuple[str, ...] | None) -> bytes:
        """One resource's entry, with its configs or with the reason why there are none."""
        try:
            if resource in self._seen:
                # Else a small request could make an answer without bounds.
                raise InvalidRequestError("the resource is named more than once; name it once")
            self._seen.add(resource)
            configs = self._configs(resource, frozenset(keys) if keys else None)
        except OttlaError as failure:
            return encode_entry(self._version, *resource, self._nothing, failure.code, str(failure))
        return encode_entry(self._version, *resource, configs)

    def _configs(self, resource: Resource, keys: frozenset[str] | None) -> bytes:
        if resource.type != ResourceType.TOPIC:
            if resource.type not in _DESCRIBERS:
                raise _unknown_type(resource)
            return self._encode(_DESCRIBERS[resource.type](self._broker, resource.name), keys)
        _check_topic_name(resource.name)
        overrides = _configs_of_topic(self._broker.image, resource.name)
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


def _describe_broker(broker: "Broker", name: str) -> list[DescribedConfig]:
    if not name:
        return describe_cluster_wide(broker.config)
    _check_broker_name(broker, name)
    return describe_broker(broker.config)


def _describe_loggers(broker: "Broker", name: str) -> list[DescribedConfig]:
    _check_broker_name(broker, name)
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [DescribedConfig(name=logger, value=level, source=source) for logger, level in logger_levels().items()]


def _describe_nothing(broker: "Broker", name: str) -> list[DescribedConfig]:
    if not name:
        raise InvalidRequestError("the name of a group, or of a client metrics subscription, may not be empty")
    return []


_DESCRIBERS: "Final[Mapping[int, Callable[[Broker, str], list[DescribedConfig]]]]" = {
    ResourceType.BROKER: _describe_broker,
    ResourceType.BROKER_LOGGER: _describe_loggers,
    ResourceType.CLIENT_METRICS: _describe_nothing,
    ResourceType.GROUP: _describe_nothing,
}


# Changing


Outcome = Callable[[Mapping[str, str], Mapping[str, ConfigDefinition]], dict[str, str]]
"""What is set after a change, of what is set before it and of the definitions."""


async def _alter(
    broker: "Broker",
    wishes: Sequence[tuple[Resource, Sequence[ConfigChange]]],
    *,
    is_incremental: bool,
    is_rehearsal: bool,
) -> list[Answer]:
    """Changes one resource after the other; one that fails leaves the others alone."""
    counts = Counter(resource for resource, _ in wishes)
    answers = []
    for count, (resource, changes) in enumerate(wishes, start=1):
        if count % _RESOURCES_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            if counts[resource] > 1:
                raise InvalidRequestError("the resource is named more than once; put its changes together")
            check_changes(changes)
            await _alter_one(broker, resource, changes, is_incremental=is_incremental, is_rehearsal=is_rehearsal)
            answers.append(Answer(resource))
        except OttlaError as failure:
            answers.append(Answer(resource, failure.code, str(failure)))
    return answers


async def _alter_one(
    broker: "Broker", resource: Resource, changes: Sequence[ConfigChange], *, is_incremental: bool, is_rehearsal: bool
) -> None:
    def outcome(current: Mapping[str, str], definitions: Mapping[str, ConfigDefinition]) -> dict[str, str]:
        return changed(current, changes, definitions) if is_incremental else replaced(changes)

    if resource.type == ResourceType.BROKER_LOGGER and is_incremental:
        _check_broker_name(broker, resource.name)
        check_logger_changes(changes)
        if not is_rehearsal:
            change_logger_levels(changes)
        return
    if resource.type not in _ALTERERS:
        raise _unknown_type(resource)
    for attempt in range(_ATTEMPTS_MAX):
        image = broker.image
        try:
            await _ALTERERS[resource.type](broker, image, resource.name, outcome, is_rehearsal)
            return
        except ConflictError:
            # Somebody's change came first, and this one was computed from what was before it.
            if attempt == _ATTEMPTS_MAX - 1:
                raise
            await broker.wait_revision(image.revision + 1)


async def _alter_topic(broker: "Broker", image: ClusterImage, name: str, outcome: Outcome, is_rehearsal: bool) -> None:
    if not name:
        raise InvalidRequestError("topics have no configs that they share; set the broker's, or name a topic")
    _check_topic_name(name)
    current = _configs_of_topic(image, name)
    configs = outcome(current, TOPIC_CONFIGS)
    validate_topic_configs(configs, broker.config)
    if not is_rehearsal and configs != current:
        expected = image.revision_of(topic_configs_key(name))
        await broker.wait_revision(await broker.controller.set_topic_configs(name, configs, expected=expected))


async def _alter_broker(broker: "Broker", image: ClusterImage, name: str, outcome: Outcome, is_rehearsal: bool) -> None:
    if name:
        _check_broker_name(broker, name)
    key = str(broker.id) if name else ""
    current = image.broker_configs.get(key, {})
    configs = outcome(current, BROKER_CONFIGS)
    validate_dynamic(broker.config, configs, is_cluster_wide=not name)
    if not is_rehearsal and configs != current:
        expected = image.revision_of(broker_configs_key(key))
        await broker.wait_revision(await broker.controller.set_broker_configs(key, configs, expected=expected))


_ALTERERS: "Final[Mapping[int, Callable[[Broker, ClusterImage, str, Outcome, bool], Awaitable[None]]]]" = {
    ResourceType.TOPIC: _alter_topic,
    ResourceType.BROKER: _alter_broker,
}


def _configs_of_topic(image: ClusterImage, name: str) -> Mapping[str, str]:
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicError(f"topic {name} does not exist")
    return topic.configs


def _check_topic_name(name: str) -> None:
    fault = fault_of_name(name)
    if fault is not None:
        raise InvalidTopicNameError(fault)


def _check_broker_name(broker: "Broker", name: str) -> None:
    if not _WHOLE.fullmatch(name):
        raise InvalidRequestError(f"a broker is named by its id, a whole number; {name[:100]!r} is none")
    if int(name) != broker.id:
        raise InvalidRequestError(f"this is broker {broker.id}; ask broker {int(name)} itself about its configs")


def _unknown_type(resource: Resource) -> InvalidRequestError:
    return InvalidRequestError(f"configs of resources of type {resource.type} cannot be used this way")
