"""The levels of the broker's loggers, by the names of Kafka's tools: read, and changed while the broker runs.

Changes apply to this process only and end with it. Other configs are changed through `config_changes.py`.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.broker.configs.config_changes import ConfigChange, Operation
from ottla.model.errors import InvalidConfigError, InvalidRequestError

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Kafka's levels, the most severe first."""

_OURS: Final = "ottla"


def logger_levels() -> dict[str, str]:
    """The effective level of each of our loggers, and of the root logger, by name."""
    return {ROOT: _level_name(logging.getLogger())} | {name: _level_name(logging.getLogger(name)) for name in _known()}


def check_logger_changes(changes: Sequence[ConfigChange]) -> None:
    """Raises for the first of the changes that cannot be made."""
    for name, operation, value in changes:
        if operation not in (Operation.SET, Operation.DELETE):
            raise InvalidRequestError("a logger's level can only be set or deleted")
        if name != ROOT and name not in _known():
            raise InvalidConfigError(
                f"logger {name[:100]} does not exist; describe the broker's loggers to see which do"
            )
        if operation == Operation.SET and value not in LEVELS:
            raise InvalidConfigError(f"{name}={str(value)[:100]} is not allowed: a level is one of {', '.join(LEVELS)}")
        if operation == Operation.DELETE and name == ROOT:
            raise InvalidRequestError("the root logger must have a level; set another one")


def change_logger_levels(changes: Sequence[ConfigChange]) -> None:
    """Makes changes that `check_logger_changes` accepted; a logger without a level follows its parent again."""
    for name, operation, value in changes:
        logger = logging.getLogger(None if name == ROOT else name)
        logger.setLevel(LEVELS[value] if operation == Operation.SET and value is not None else logging.NOTSET)


def _known() -> list[str]:
    """Our loggers, including parents that only pass their level on."""
    return sorted(name for name in logging.getLogger().manager.loggerDict if f"{name}.".startswith(f"{_OURS}."))


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")
