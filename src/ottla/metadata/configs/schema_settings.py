"""What the schema configs of a topic mean: whether keys and values must have an id of a registered schema."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Self

from ottla.metadata.configs.definition import ConfigValue


class SubjectStrategy(StrEnum):
    """Which subject a schema must be registered under."""

    TOPIC = "TopicNameStrategy"
    """<topic>-key or <topic>-value."""
    RECORD = "RecordNameStrategy"
    """The full name of the record."""
    TOPIC_RECORD = "TopicRecordNameStrategy"
    """<topic>-<full name of the record>."""


class SchemaSettings(NamedTuple):
    """The strategy for keys and for values; None if they are not validated."""

    key: SubjectStrategy | None
    value: SubjectStrategy | None

    @classmethod
    def resolve(cls, values: Mapping[str, ConfigValue | None]) -> Self | None:
        """The settings of a topic with these values of all topic configs; None if nothing is validated."""
        settings = cls(_strategy(values, "key"), _strategy(values, "value"))
        return None if settings == (None, None) else settings


def _strategy(values: Mapping[str, ConfigValue | None], part: str) -> SubjectStrategy | None:
    if values[f"confluent.{part}.schema.validation"] is not True:
        return None
    return SubjectStrategy(str(values[f"confluent.{part}.subject.name.strategy"]).rpartition(".")[2])
