"""What all tests of commands share."""

import logging
from collections.abc import Iterator

import pytest

from tests.unit.cli.command_line import CommandLine


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands set up logging to the stderr of their test, which is closed when the next test logs."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    for added in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(added)


@pytest.fixture
def ottla(capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command, without a broker."""
    return CommandLine("127.0.0.1:1", capfd)
