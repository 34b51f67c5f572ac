"""What a planted bug consists of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A bug: a description, and (owner, attribute, function from the old to the new value) for each patch."""

    what: str
    scenario: str = "failover"
    """The scenario that finds it fastest."""
    patches: tuple[tuple[Any, str, Callable[[Any], Any]], ...]


def always(value: Any) -> Callable[[Any], Any]:
    """A function that returns this, instead of the old one."""
    return lambda _: lambda *args, **kwargs: value


def always_property(value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A property that is computed so, instead of the old one."""
    return lambda _: property(value)
