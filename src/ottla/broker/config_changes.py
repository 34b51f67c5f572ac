"""What a request to change configs makes of those that are set: pure, from map to map.

Whether the outcome is acceptable is decided elsewhere: `topic_settings.validate_topic_configs` for a topic,
`configuration.validate_dynamic` for a broker. Logger levels are changed in `logger_levels.py`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.metadata.config_types import ConfigDefinition, ConfigType, split_list
from ottla.model.errors import InvalidConfigError, InvalidRequestError


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to one config, by its number on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One config of a request, as it came."""

    name: str
    operation: int
    value: str | None


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Whether the request makes sense, whatever it names; raises `InvalidRequestError` if not."""
    repeated = sorted(name for name, count in Counter(each.name for each in changes).items() if count > 1)
    if repeated:
        raise InvalidRequestError(f"named more than once: {_listed(repeated)}; name each config once")
    unknown = sorted({each.operation for each in changes} - set(Operation))
    if unknown:
        raise InvalidRequestError(f"operation {unknown[0]} does not exist; use one of {_OPERATIONS_TEXT}")
    without = sorted(each.name for each in changes if each.value is None and each.operation != Operation.DELETE)
    if without:
        raise InvalidRequestError(f"without a value: {_listed(without)}; delete a config to set it back")


def changed(
    current: Mapping[str, str], changes: Iterable[ConfigChange], definitions: Mapping[str, ConfigDefinition]
) -> dict[str, str]:
    """The configs that are set after these changes, which `check_changes` has let through.

    Deleting what is not set is no error. Appending and subtracting start from the default where nothing is set, skip
    what is there already or is not there, and raise `InvalidConfigError` for a config that is no list.
    """
    outcome = dict(current)
    for name, operation, value in changes:
        if value is None or operation == Operation.DELETE:
            outcome.pop(name, None)
        elif operation == Operation.SET:
            outcome[name] = value
        else:
            outcome[name] = _relisted(outcome.get(name), name, Operation(operation), value, definitions.get(name))
    return outcome


def replaced(changes: Iterable[ConfigChange]) -> dict[str, str]:
    """The configs that are set after AlterConfigs: those of the request, and no other."""
    return {each.name: each.value for each in changes if each.value is not None}


def _relisted(
    current: str | None, name: str, operation: Operation, value: str, definition: ConfigDefinition | None
) -> str:
    if definition is None or definition.type is not ConfigType.LIST:
        raise InvalidConfigError(f"cannot {operation.name.lower()} {value[:100]} at {name[:100]}: it is no list")
    entries = dict.fromkeys(split_list(definition.default or "" if current is None else current))
    for entry in split_list(value):
        if operation is Operation.APPEND:
            entries.setdefault(entry)
        else:
            entries.pop(entry, None)
    return ",".join(entries)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name[:100] for name in names[:10])


_OPERATIONS_TEXT = ", ".join(f"{each.value} ({each.name.lower()})" for each in Operation)
