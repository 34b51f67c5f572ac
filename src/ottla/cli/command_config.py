"""`--command-config FILE` of every command that connects to brokers or to a schema registry: Kafka's client properties,
mostly for security.

The option is added to commands in one place (`command_runner.Application`), so that none lacks it. Its value is kept
while the command runs; `profile.store.chosen_connection` asks for it.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from ottla.cli.options import Bootstrap, CommandConfig, OptionalBootstrap, Profile, ProjectBootstrap
from ottla.cli.registry.options import Url

_BESIDE: Final = (
    {"bootstrap": Bootstrap, "profile": Profile},
    {"bootstrap": OptionalBootstrap, "profile": Profile},
    {"bootstrap": ProjectBootstrap, "profile": Profile},
    {"url": Url},
)
"""Commands with one of these sets of options connect to brokers, or to a registry."""
_PARAMETER: Final = "command_config"
_GIVEN: ContextVar[str | None] = ContextVar("command_config", default=None)


def given_command_config() -> str | None:
    """The file that the running command was given; None if it was given none."""
    return _GIVEN.get()


def with_command_config(function: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the option beside its others; as it is if it does not connect to brokers."""
    signature = inspect.signature(function)
    hints = {name: each.annotation for name, each in signature.parameters.items()}
    beside = next((each for each in _BESIDE if all(hints.get(name) == kind for name, kind in each.items())), None)
    if beside is None:
        return function

    @wraps(function)
    def command(*args: Any, command_config: str | None = None, **kwargs: Any) -> Any:
        token = _GIVEN.set(command_config)
        try:
            return function(*args, **kwargs)
        finally:
            _GIVEN.reset(token)

    parameters = list(signature.parameters.values())
    place = 1 + max(at for at, each in enumerate(parameters) if each.name in beside)
    kind = parameters[place - 1].kind
    parameters.insert(place, inspect.Parameter(_PARAMETER, kind, default=None, annotation=CommandConfig))
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # Typer reads it
    command.__annotations__ = {**function.__annotations__, _PARAMETER: CommandConfig}
    return command
