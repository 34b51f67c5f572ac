"""The console without a browser, on a broker of this process."""

from collections.abc import Callable, Iterator

import pytest

from ottla import Admin
from ottla.testing import InProcessBroker
from tests.unit.console.conftest import shop, visit
from tests.unit.console.visitor import Visitor

__all__ = ["shop", "visit"]


@pytest.fixture(scope="module")
def admin(broker: InProcessBroker) -> Iterator[Admin]:
    """To prepare and to judge."""
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


@pytest.fixture
def console(broker: InProcessBroker, visit: Callable[..., Visitor]) -> Visitor:
    """A console on the module's broker."""
    return visit(broker.bootstrap)
