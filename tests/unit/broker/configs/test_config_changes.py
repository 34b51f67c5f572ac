"""What a request makes of the configs that are set; the levels of loggers."""

import logging
from collections.abc import Iterator

import pytest

from ottla.broker.configs.config_changes import ConfigChange, Operation, changed, check_changes, replaced
from ottla.broker.configs.logger_levels import change_logger_levels, check_logger_changes, logger_levels
from ottla.metadata.configs.topic_configs import TOPIC_CONFIGS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidConfigError, InvalidRequestError

SET, DELETE, APPEND, SUBTRACT = Operation


@pytest.mark.parametrize(
    ("current", "change", "expected"),
    [
        ({}, ConfigChange("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "5", "flush.ms": "6"}, ConfigChange("retention.ms", SET, "7"),
         {"retention.ms": "7", "flush.ms": "6"}),
        ({"retention.ms": "5", "flush.ms": "6"}, ConfigChange("retention.ms", DELETE, "x"), {"flush.ms": "6"}),
        ({"flush.ms": "6"}, ConfigChange("nope", DELETE, None), {"flush.ms": "6"}),
        ({}, ConfigChange("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "compact"}, ConfigChange("cleanup.policy", APPEND, "compact,delete"),
         {"cleanup.policy": "compact,delete"}),
        ({"cleanup.policy": ""}, ConfigChange("cleanup.policy", APPEND, "delete"), {"cleanup.policy": "delete"}),
        ({"cleanup.policy": "compact, delete"}, ConfigChange("cleanup.policy", SUBTRACT, "delete"),
         {"cleanup.policy": "compact"}),
        ({}, ConfigChange("cleanup.policy", SUBTRACT, "delete,zzz"), {"cleanup.policy": ""}),
    ],
)  # fmt: skip
def test_one_change(current: dict[str, str], change: ConfigChange, expected: dict[str, str]) -> None:
    before = dict(current)
    assert expected == changed(current, [change], TOPIC_CONFIGS)
    assert before == current


@pytest.mark.parametrize("name", ["retention.ms", "nope"])
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_can_be_appended_to(name: str, operation: Operation) -> None:
    with pytest.raises(InvalidConfigError, match="is not a list"):
        changed({}, [ConfigChange(name, operation, "5")], TOPIC_CONFIGS)


def test_replacing_leaves_nothing_of_before() -> None:
    assert {"flush.ms": "6"} == replaced([ConfigChange("flush.ms", SET, "6")])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ([ConfigChange("a", SET, "1"), ConfigChange("a", DELETE, None)], "named more than once: a"),
        ([ConfigChange("a", SET, None)], "no value for a"),
        ([ConfigChange("a", APPEND, None)], "no value for a"),
        ([ConfigChange("a", 7, "1")], "operation 7 does not exist"),
        ([ConfigChange("a", -1, "1")], "operation -1 does not exist"),
    ],
)
def test_requests_that_make_no_sense(changes: list[ConfigChange], complaint: str) -> None:
    with pytest.raises(InvalidRequestError, match=complaint) as caught:
        check_changes(changes)
    assert ErrorCode.INVALID_REQUEST == caught.value.code


def test_requests_that_make_sense() -> None:
    check_changes([])
    check_changes([ConfigChange("a", DELETE, None), ConfigChange("b", SET, "")])


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("ottla.tests.levels")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_levels_are_set_and_follow_the_parent_again(logger: logging.Logger) -> None:
    name = logger.name
    inherited = logger_levels()[name]
    change_logger_levels([ConfigChange(name, SET, "TRACE")])
    assert ("TRACE", 5) == (logger_levels()[name], logger.level)
    change_logger_levels([ConfigChange(name, SET, "FATAL")])
    assert ("FATAL", logging.CRITICAL) == (logger_levels()[name], logger.level)
    change_logger_levels([ConfigChange(name, DELETE, None)])
    assert (inherited, logging.NOTSET) == (logger_levels()[name], logger.level)


def test_only_our_loggers_and_the_root_are_known() -> None:
    logging.getLogger("somebody.else")
    assert "root" in logger_levels()
    assert [] == [name for name in logger_levels() if name != "root" and not name.startswith("ottla")]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ConfigChange("somebody.else", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("ottla.tests.nowhere", DELETE, None), ErrorCode.INVALID_CONFIG),
        (ConfigChange("ottla.tests.levels", SET, "warn"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("ottla.tests.levels", APPEND, "WARN"), ErrorCode.INVALID_REQUEST),
        (ConfigChange("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_levels_that_are_refused(logger: logging.Logger, change: ConfigChange, code: ErrorCode) -> None:
    logging.getLogger("somebody.else")
    with pytest.raises(InvalidRequestError) as caught:
        check_logger_changes([change])
    assert code == caught.value.code


def test_a_logger_that_only_has_children_can_be_set(logger: logging.Logger) -> None:
    check_logger_changes([ConfigChange("ottla.tests", SET, "INFO"), ConfigChange("root", SET, "WARN")])
    # Kafka's tool changes only what it was shown.
    assert {"ottla", "ottla.tests", logger.name} <= logger_levels().keys()
