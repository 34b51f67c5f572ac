"""The configs of client metrics subscriptions: which metrics which clients push, and how often.

Names, types, defaults and the errors for wrong values are those of Kafka 4.3, except that patterns are RE2's, whose
matching takes linear time. What a client is asked for is computed in `ottla.broker.telemetry.subscriptions`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.metadata.configs.definition import ConfigDefinition, ConfigSource, ConfigType, DescribedConfig, Synonym
from ottla.metadata.configs.definition import define as _define
from ottla.model.errors import InvalidConfigError, InvalidRequestError
from ottla.model.re2_patterns import InvalidPatternError, Pattern

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"

INTERVAL_MS_DEFAULT: Final = 300_000
_INTERVAL_MS_MIN: Final = 100
_INTERVAL_MS_MAX: Final = 3_600_000
_PATTERNS_MAX: Final = 100
_SHOWN_CHARACTERS_MAX: Final = 100

MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a client can be chosen by."""

CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigDefinition]] = MappingProxyType(
    {
        each.name: each
        for each in (
            _define(INTERVAL_MS, ConfigType.INT, str(INTERVAL_MS_DEFAULT),
                    "How often a client pushes its metrics, from 100 ms to an hour."),
            _define(MATCH, ConfigType.LIST, "",
                    f"The clients that the subscription is for, as key=pattern; keys are {', '.join(MATCH_KEYS)}. "
                    "All patterns must match; without any, the subscription is for all clients."),
            _define(METRICS, ConfigType.LIST, "",
                    "Prefixes of the names of the metrics that clients push; * for all metrics."),
        )
    }
)  # fmt: skip
"""Every config of a subscription by its name."""


def validate_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Raises InvalidRequestError for a name or an interval that is not allowed, InvalidConfigError for a value that is
    not of the config's type or a pattern that cannot be understood."""
    for name in configs:
        if name not in CLIENT_METRICS_CONFIGS:
            raise InvalidRequestError(
                f"Unknown client metrics configuration: {name[:_SHOWN_CHARACTERS_MAX]}; use {METRICS}, {INTERVAL_MS} "
                f"or {MATCH}"
            )
    values = {name: CLIENT_METRICS_CONFIGS[name].parse(text) for name, text in configs.items()}
    interval = values.get(INTERVAL_MS, INTERVAL_MS_DEFAULT)
    if not (isinstance(interval, int) and _INTERVAL_MS_MIN <= interval <= _INTERVAL_MS_MAX):
        raise InvalidRequestError(
            f"{INTERVAL_MS}={interval} is not allowed: it must be at least {_INTERVAL_MS_MIN} and at most "
            f"{_INTERVAL_MS_MAX}"
        )
    parse_match(configs.get(MATCH, ""))


def parse_match(text: str) -> Mapping[str, Pattern]:
    """The patterns of a `match` config by their key, compiled. Raises InvalidConfigError."""
    patterns: dict[str, Pattern] = {}
    entries = CLIENT_METRICS_CONFIGS[MATCH].parse(text)
    if not isinstance(entries, tuple) or len(entries) > _PATTERNS_MAX:
        raise InvalidConfigError(f"{MATCH} has more than {_PATTERNS_MAX} patterns")
    for entry in entries:
        key, _, pattern = entry.partition("=")
        key, pattern = key.strip(), pattern.strip()
        if key not in MATCH_KEYS or not pattern or "=" in pattern:
            raise InvalidConfigError(
                f"{entry[:_SHOWN_CHARACTERS_MAX]!r} is not allowed in {MATCH}: it must be key=pattern, with one of "
                f"the keys {', '.join(MATCH_KEYS)}"
            )
        try:
            patterns[key] = Pattern(pattern)
        except InvalidPatternError as error:
            raise InvalidConfigError(
                f"{entry[:_SHOWN_CHARACTERS_MAX]!r} in {MATCH} has no valid pattern: {error.reason}"
            ) from error
    return patterns


def describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Every config of a subscription with its value and its source, sorted by name."""
    found = []
    for name, definition in CLIENT_METRICS_CONFIGS.items():
        is_set = name in overrides
        found.append(
            DescribedConfig(
                name=name,
                value=overrides.get(name, definition.default),
                source=ConfigSource.CLIENT_METRICS if is_set else ConfigSource.DEFAULT,
                type=definition.type,
                synonyms=(Synonym(name, overrides[name], ConfigSource.CLIENT_METRICS),) if is_set else (),
                documentation=definition.documentation,
            )
        )
    return found
