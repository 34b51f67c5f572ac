"""What `ottla serve` logs."""

import logging
from collections.abc import Iterator

import pytest

from ottla.cli.serve.log_output import set_up_logging


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger("httpx")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.mark.parametrize(("level", "is_shown"), [("debug", True), ("info", False), ("warning", False)])
def test_each_request_to_the_registry_is_logged_only_for_debugging(
    level: str, is_shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("text", level)
    logging.getLogger("httpx").info("HTTP Request: GET /")
    logging.getLogger("httpx").error("broken")
    err = capsys.readouterr().err
    assert is_shown == ("HTTP Request" in err)
    assert "broken" in err
