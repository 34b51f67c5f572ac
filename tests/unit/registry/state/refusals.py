"""What a refused request answers."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.registry.state.errors import RegistryError


def refusal(request: Callable[[], Any]) -> tuple[int, int, str]:
    """Status, error code and message of a request that must be refused."""
    with pytest.raises(RegistryError) as caught:
        request()
    return caught.value.status, caught.value.error_code, caught.value.message


def refused_with(request: Callable[[], Any]) -> int:
    """The error code of a request that must be refused."""
    return refusal(request)[1]
