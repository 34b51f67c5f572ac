"""Applies a request that changes configs to those that are set: pure, from map to map.

Whether the outcome is valid is decided elsewhere: `topic_settings.validate_topic_configs` for a topic,
`configuration.validate_dynamic` for a broker. Logger levels are changed in `logger_levels.py`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.metadata.configs.definition import ConfigDefinition, ConfigType, split_list
from ottla.model.errors import InvalidConfigError, InvalidRequestError


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs, by their number on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One config of a request."""

    name: str
    operation: int
    value: str | None


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Raises `InvalidRequestError` if the request itself is malformed, whatever configs it names."""
    repeated = sorted(name for name, count in Counter(each.name for each in changes).items() if count > 1)
    if repeated:
        raise InvalidRequestError(f"named more than once: {_listed(repeated)}; name each config once")
    unknown = sorted({each.operation for each in changes} - set(Operation))
    if unknown:
        raise InvalidRequestError(f"operation {unknown[0]} does not exist; use one of {_OPERATIONS_TEXT}")
    without = sorted(each.name for each in changes if each.value is None and each.operation != Operation.DELETE)
    if without:
        raise InvalidRequestError(f"no value for {_listed(without)}; use DELETE to restore the default")


def changed(
    current: Mapping[str, str], changes: Iterable[ConfigChange], definitions: Mapping[str, ConfigDefinition]
) -> dict[str, str]:
    """The configs that are set after these changes, which `check_changes` accepted.

    Deleting a config that is not set is allowed. Append and subtract start from the default if nothing is set, skip
    entries that are already there or not there, and raise `InvalidConfigError` for a config that is not a list.
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
    """The configs that are set after AlterConfigs: only those of the request."""
    return {each.name: each.value for each in changes if each.value is not None}


def _relisted(
    current: str | None, name: str, operation: Operation, value: str, definition: ConfigDefinition | None
) -> str:
    if definition is None or definition.type is not ConfigType.LIST:
        raise InvalidConfigError(f"cannot {operation.name.lower()} {value[:100]}: {name[:100]} is not a list")
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
