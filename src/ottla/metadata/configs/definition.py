"""The definition of a config: its type on the wire, its default, its allowed values, and when it may change.

The configs themselves are in `topic_configs.py` and `broker_configs.py`. Only this module parses values, as Kafka does.
Where a value comes from (file, store, default) is decided in `ottla.broker.configs.configuration`.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ottla.model.errors import InvalidConfigError
from ottla.protocol.config_resources import ConfigSource as ConfigSource

ConfigValue = bool | int | float | str | tuple[str, ...]
"""A parsed value; its type follows from the config's type."""


class ConfigType(IntEnum):
    """A config's type, as DescribeConfigs numbers it."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """How a broker's config may be changed while the broker runs."""

    AT_START = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    """For one broker or for all."""


class Rule(NamedTuple):
    """A constraint that is neither a range nor a set of values."""

    holds: Callable[[ConfigValue], bool]
    allowed: str
    """The constraint, to end the sentence "it must be …"."""


class Synonym(NamedTuple):
    """One of the sources of a value, and the value found there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """A config with its value, as DescribeConfigs shows it."""

    name: str
    value: str | None
    """None if it has no value, or a sensitive one."""
    source: ConfigSource
    type: ConfigType = ConfigType.UNKNOWN
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()
    """Every value that it could have had; the first one is in effect."""
    documentation: str | None = None


_WHOLE_RANGES: Final[Mapping[ConfigType, tuple[int, int]]] = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(
    r"([+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?)[dDfF]?"
)
_BOOLEANS: Final = {"true": True, "false": False}
COMPLAINTS_MAX: Final = 20
"""How many faults in a client's configs are reported: finding the nearest name takes time."""
_SHOWN_CHARACTERS_MAX: Final = 100
_WHAT: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "values separated by commas, none of them empty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDefinition:
    """One config: its name, type, allowed values, default and documentation."""

    name: str
    type: ConfigType
    default: str | None
    """The default value as text; None if there is none."""
    documentation: str
    lowest: float | None = None
    highest: float | None = None
    allowed: tuple[str, ...] = ()
    """The only allowed values of a text, or entries of a list; empty if any is allowed."""
    rule: Rule | None = None
    update_mode: UpdateMode = UpdateMode.AT_START
    is_hidden: bool = False
    """Shown only if it was set: internal configs, and configs without a default."""

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown. That of a config that is not known may be a password."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    @property
    def allowed_text(self) -> str:
        """The allowed values, to end the sentence "it must be …"."""
        if self.rule is not None:
            return self.rule.allowed
        if self.allowed:
            quantity = "any of" if self.type is ConfigType.LIST else "one of"
            return f"{quantity} {', '.join(self.allowed)}"
        limits = []
        if self.lowest is not None:
            limits.append(f"at least {_render_number(self.lowest)}")
        if self.highest is not None:
            limits.append(f"at most {_render_number(self.highest)}")
        return ", ".join(
            [_WHAT.get(self.type, "text"), " and ".join(limits)] if limits else [_WHAT.get(self.type, "text")]
        )

    def parse(self, text: str) -> ConfigValue:
        """Parses a value. Raises `InvalidConfigError` with the text, the key, and what is allowed. It begins as Kafka's
        does: clients look for these words."""
        value = _PARSERS.get(self.type, str.strip)(text)
        if value is None or not self._takes(value):
            shown = "[hidden]" if self.is_sensitive else _shortened(text)
            raise InvalidConfigError(
                f"Invalid value {shown} for configuration {self.name}: it must be {self.allowed_text}"
            )
        return value

    def render(self, value: ConfigValue | None) -> str | None:
        """A value as Kafka shows it: `true`, `1.0E7`, `compact,delete`; None stays None."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case str():
                return value
        return _render_double(float(value)) if self.type is ConfigType.DOUBLE else str(value)

    def _takes(self, value: ConfigValue) -> bool:
        if self.type in _WHOLE_RANGES:
            lowest, highest = _WHOLE_RANGES[self.type]
            if not (isinstance(value, int) and lowest <= value <= highest):
                return False
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.lowest is not None and value < self.lowest:
                return False
            if self.highest is not None and value > self.highest:
                return False
        if self.allowed and not set(value if isinstance(value, tuple) else (value,)) <= set(self.allowed):
            return False
        return self.rule is None or self.rule.holds(value)


def define(
    name: str,
    type_: ConfigType,
    default: str | None,
    documentation: str,
    lowest: float | None = None,
    highest: float | None = None,
    *,
    allowed: tuple[str, ...] = (),
    rule: Rule | None = None,
    update_mode: UpdateMode = UpdateMode.AT_START,
    is_hidden: bool = False,
) -> ConfigDefinition:
    """A definition, written short enough for tables."""
    return ConfigDefinition(
        name=name,
        type=type_,
        default=default,
        documentation=documentation,
        lowest=lowest,
        highest=highest,
        allowed=allowed,
        rule=rule,
        update_mode=update_mode,
        is_hidden=is_hidden,
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant; None if none is close."""
    close = difflib.get_close_matches(name[:_SHOWN_CHARACTERS_MAX], list(known), n=1, cutoff=0.7)
    return close[0] if close else None


def unknown_config(name: str, known: Iterable[str], owner: str) -> InvalidConfigError:
    """The error about a name that does not exist, with the name that was most likely meant. It begins as Kafka's does:
    clients look for these words."""
    meant = nearest(name, known)
    hint = f"; did you mean {meant}?" if meant else ""
    return InvalidConfigError(f"Unknown {owner} config name: {_shortened(name)}{hint}")


def undefined(name: str) -> ConfigDefinition:
    """The definition of a broker config that clients have set, and that nothing here knows."""
    return define(name, ConfigType.UNKNOWN, None, "Not a known config; it has no effect in Ottla.", is_hidden=True)


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a list as written, including empty ones; an empty text has none."""
    stripped = text.strip()
    return tuple(each.strip() for each in stripped.split(",")) if stripped else ()


def _parse_whole(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if _WHOLE.fullmatch(stripped) else None


def _parse_double(text: str) -> float | None:
    found = _DECIMAL.fullmatch(text.strip())
    number = float(found[1]) if found else math.inf
    return number if math.isfinite(number) else None


def _parse_list(text: str) -> tuple[str, ...] | None:
    entries = split_list(text)
    return None if "" in entries else tuple(dict.fromkeys(entries))


_PARSERS: Final[Mapping[ConfigType, Callable[[str], ConfigValue | None]]] = {
    ConfigType.BOOLEAN: lambda text: _BOOLEANS.get(text.strip().lower()),
    ConfigType.SHORT: _parse_whole,
    ConfigType.INT: _parse_whole,
    ConfigType.LONG: _parse_whole,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.PASSWORD: lambda text: text,
}


def _render_number(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _render_double(number: float) -> str:
    """As Java writes a double: plain between a thousandth and ten million, otherwise with an exponent."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, _ = Decimal(repr(number)).normalize().as_tuple()
    exponent = Decimal(repr(number)).adjusted()
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent}"


def _shortened(text: str) -> str:
    """Enough of a client's text to recognise it."""
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"
