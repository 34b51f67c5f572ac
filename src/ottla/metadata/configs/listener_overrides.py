"""Configs of one listener: `listener.name.<listener>.` before the name of a config, the listener in lower case.

Those of SASL can also be set for one mechanism of a listener, with its name in lower case after the prefix. Which
configs may have the prefix follows from their names. `broker_configs.py` has the definitions.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from ottla.metadata.configs.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs.definition import ConfigDefinition, UpdateMode

V = TypeVar("V")

_PREFIX: Final = "listener.name."
_OVERRIDE: Final = re.compile(r"listener\.name\.(?P<listener>[a-z0-9_]{1,255})\.(?P<rest>[a-z0-9.-]{1,255})")
_MECHANISMS: Final = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
_FAMILIES: Final = ("ssl.", "sasl.")
_OTHERS: Final = frozenset({"connections.max.reauth.ms"})
"""Limits of connections hold for all listeners together."""
_OF_A_MECHANISM: Final = frozenset(
    {
        "sasl.jaas.config",
        "sasl.server.callback.handler.class",
        "sasl.login.callback.handler.class",
        "connections.max.reauth.ms",
    }
)
"""What can be set for one mechanism; OAUTHBEARER has configs of its own besides."""
_NOT_OF_A_LISTENER: Final = frozenset({"sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms.controller"})


def definition_of(name: str) -> ConfigDefinition | None:
    """The definition of a broker config, also of one with the prefix of a listener; None if there is none."""
    known = BROKER_CONFIGS.get(name)
    return _override(name) if known is None and name.startswith(_PREFIX) else known


def is_only_per_listener(name: str) -> bool:
    """Whether a config may change while the broker runs only if it has the prefix of a listener, as in Kafka."""
    return name.startswith(_FAMILIES) and name in BROKER_CONFIGS


def override_name(listener: str, name: str, mechanism: str | None = None) -> str:
    """The name of a config with the prefix of a listener, and of a SASL mechanism if one is given."""
    of_mechanism = f"{mechanism.lower()}." if mechanism else ""
    return f"{_PREFIX}{listener.lower()}.{of_mechanism}{name}"


def value_for_listener(values: Mapping[str, V], listener: str, name: str, *, mechanism: str | None = None) -> V | None:
    """The value of a config for a listener, and a SASL mechanism if one is given: the closest one that is set."""
    names = [override_name(listener, name), name]
    if mechanism:
        names.insert(0, override_name(listener, name, mechanism))
    return next((found for each in names if (found := values.get(each)) is not None), None)


@lru_cache(maxsize=1000)
def _override(name: str) -> ConfigDefinition | None:
    found = _OVERRIDE.fullmatch(name)
    if found is None:
        return None
    rest = found["rest"]
    mechanism = next((each for each in _MECHANISMS if rest.startswith(f"{each}.")), None)
    if mechanism is not None:
        rest = rest.removeprefix(f"{mechanism}.")
    overridden = BROKER_CONFIGS.get(rest)
    if overridden is None or rest in _NOT_OF_A_LISTENER or not (rest.startswith(_FAMILIES) or rest in _OTHERS):
        return None
    if mechanism is not None and rest not in _OF_A_MECHANISM and not rest.startswith(f"sasl.{mechanism}."):
        return None
    update_mode = UpdateMode.AT_START if overridden.update_mode is UpdateMode.AT_START else UpdateMode.PER_BROKER
    # Shown only where it is set.
    return replace(overridden, name=name, default=None, update_mode=update_mode, is_hidden=True)
