"""A registry for each test."""

import pytest

from tests.unit.registry.state.tiny_language import Registry


@pytest.fixture
def registry() -> Registry:
    """An empty registry, whose decisions are written to a log and read back."""
    return Registry()
