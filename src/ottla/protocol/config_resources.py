"""The resources that have configs and the sources of their values, as the APIs for configs number them. Pure."""

from enum import IntEnum


class ResourceType(IntEnum):
    """The types of resources that have configs, by their number in the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where the value of a config comes from, by its number in the protocol."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8
    CLIENT_METRICS = 7
    GROUP = 8
