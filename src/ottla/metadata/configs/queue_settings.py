"""What the queue configs of a topic mean: delayed delivery, expiry, retry, half messages, dead letters.

The configs are defined in `topic_configs.py`. Which companion topics follow from them is decided in
`ottla.controller.companions_state`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Self, TypeVar

from ottla.metadata.configs.definition import ConfigValue
from ottla.metadata.configs.topic_configs import COMPANION_KIND, COMPANION_OF, CONTROLLER_CONFIGS, TOPIC_CONFIGS
from ottla.model.errors import InvalidConfigError
from ottla.model.queue_names import CompanionKind, dead_letter_topic

T = TypeVar("T", bool, int, float, str)

DEAD_LETTER_NAME: Final = "errors.deadletterqueue.topic.name"
QUEUE_CONFIGS: Final = (
    frozenset(name for name in TOPIC_CONFIGS if name.startswith("ottla.") or name == DEAD_LETTER_NAME)
    - CONTROLLER_CONFIGS
)
"""The configs by which a topic opts in to queues, and those that say how they work."""


class CompanionMark(NamedTuple):
    """What makes a topic a companion."""

    topic: str
    """The topic that it was created for."""
    kind: CompanionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The queue configs of a topic that has opted in to something, or the mark of a companion."""

    companion: CompanionMark | None = None
    """None for a topic that is not a companion. How a companion works follows from the settings of its topic."""
    delay_enable: bool = False
    delay_ms: int = 0
    """The delay of records without a header."""
    delay_max_ms: int = 31_622_400_000
    delay_cancelled_max: int = 100_000
    """Of each partition."""
    ttl_enable: bool = False
    ttl_ms: int = -1
    """How long records without a header live; -1 for ever."""
    retry_enable: bool = False
    retry_backoff_ms: int = 1000
    retry_backoff_max_ms: int = 300_000
    """At least `retry_backoff_ms`."""
    retry_backoff_jitter: float = 0.2
    """From 0 to 1."""
    retry_max_attempts: int = 5
    retry_keeps_key_order: bool = False
    half_enable: bool = False
    half_check_after_ms: int = 60_000
    half_check_interval_ms: int = 60_000
    half_check_max: int = 15
    half_open_max: int = 100_000
    """Of each partition."""
    dead_letter_name: str = ""
    """Empty if the topic does not name a dead-letter topic; see `dead_letters_of`."""
    has_spring_headers: bool = False
    """Whether dead letters have Spring's headers instead of those of KIP-1191."""

    @classmethod
    def resolve(cls, values: Mapping[str, ConfigValue | None]) -> Self | None:
        """The settings of a topic with these values of all topic configs; None for a plain topic."""
        kind, of = values[COMPANION_KIND], values[COMPANION_OF]
        if isinstance(kind, str) and isinstance(of, str):
            return cls(companion=CompanionMark(of, CompanionKind(kind)))
        backoff_ms = _get(values, "ottla.retry.backoff.ms", int)
        settings = cls(
            delay_enable=_get(values, "ottla.delay.enable", bool),
            delay_ms=_get(values, "ottla.delay.ms", int),
            delay_max_ms=_get(values, "ottla.delay.max.ms", int),
            delay_cancelled_max=_get(values, "ottla.delay.cancelled.max", int),
            ttl_enable=_get(values, "ottla.ttl.enable", bool),
            ttl_ms=_get(values, "ottla.ttl.ms", int),
            retry_enable=_get(values, "ottla.retry.enable", bool),
            retry_backoff_ms=backoff_ms,
            # A stored value that cannot be parsed is replaced by the default, so that the two may disagree.
            retry_backoff_max_ms=max(backoff_ms, _get(values, "ottla.retry.backoff.max.ms", int)),
            retry_backoff_jitter=float(_get(values, "ottla.retry.backoff.jitter", float)),
            retry_max_attempts=_get(values, "ottla.retry.max.attempts", int),
            retry_keeps_key_order=_get(values, "ottla.retry.order", str) == "key",
            half_enable=_get(values, "ottla.half.enable", bool),
            half_check_after_ms=_get(values, "ottla.half.check.after.ms", int),
            half_check_interval_ms=_get(values, "ottla.half.check.interval.ms", int),
            half_check_max=_get(values, "ottla.half.check.max", int),
            half_open_max=_get(values, "ottla.half.open.max", int),
            dead_letter_name=_get(values, DEAD_LETTER_NAME, str),
            has_spring_headers=_get(values, "ottla.deadletter.headers", str) == "spring",
        )
        return settings if settings.has_opted_in else None

    @property
    def has_ttl(self) -> bool:
        """Whether records of the topic may expire."""
        return self.ttl_enable or self.ttl_ms >= 0

    @property
    def has_opted_in(self) -> bool:
        """Whether anything is enabled."""
        return self.delay_enable or self.retry_enable or self.half_enable or self.has_ttl or bool(self.dead_letter_name)

    def dead_letters_of(self, topic: str) -> str:
        """The dead-letter topic of `topic`, which has these settings."""
        return self.dead_letter_name or dead_letter_topic(topic)

    def enables(self, kind: CompanionKind) -> bool:
        """Whether the topic has companions of this kind now; those of a disabled kind deliver what they hold."""
        match kind:
            case CompanionKind.DELAYED:
                return self.delay_enable
            case CompanionKind.RETRY | CompanionKind.REDELIVERY:
                return self.retry_enable
            case CompanionKind.HALF | CompanionKind.HALF_CHECKS:
                return self.half_enable
            case CompanionKind.DEAD_LETTERS:
                return self.delay_enable or self.retry_enable or self.half_enable or bool(self.dead_letter_name)


def queue_settings_of(configs: Mapping[str, str]) -> QueueSettings | None:
    """The queue settings of a topic with these configs of its own; None for a plain topic.

    A value that this version does not understand counts as not set. The broker has no defaults for queue configs, so
    that the configs of the topic alone decide.
    """
    own = [item for item in configs.items() if item[0].startswith(("ottla.", DEAD_LETTER_NAME))]
    return _resolved(tuple(sorted(own))) if own else None


@lru_cache(maxsize=1000)
def _resolved(own: tuple[tuple[str, str], ...]) -> QueueSettings | None:
    values = dict(_DEFAULTS)
    for name, text in own:
        try:
            values[name] = TOPIC_CONFIGS[name].parse(text)
        except (KeyError, InvalidConfigError):
            continue
    return QueueSettings.resolve(values)


def queue_config_faults(own: Mapping[str, ConfigValue]) -> list[str]:
    """What is wrong with a topic's own queue configs together; each value alone is valid."""
    if COMPANION_OF in own:
        foreign = sorted(QUEUE_CONFIGS & own.keys())
        if foreign:
            return [f"{foreign[0]} cannot be set on a companion; set it on topic {own[COMPANION_OF]}"]
        return []
    values = {**_DEFAULTS, **own}
    faults = []
    for lower, upper in (
        ("ottla.retry.backoff.ms", "ottla.retry.backoff.max.ms"),
        ("ottla.delay.ms", "ottla.delay.max.ms"),
    ):
        least, most = _get(values, lower, int), _get(values, upper, int)
        if least > most:
            faults.append(f"{lower}={least} is more than {upper}={most}; lower the one or raise the other")
    return faults


def _get(values: Mapping[str, ConfigValue | None], name: str, type_: type[T]) -> T:
    value = values[name]
    if not isinstance(value, type_):
        raise InvalidConfigError(f"{name} has a value of the wrong type: {value!r}")
    return value


_DEFAULTS: Final[Mapping[str, ConfigValue | None]] = {
    name: None if definition.default is None else definition.parse(definition.default)
    for name, definition in TOPIC_CONFIGS.items()
    if name in QUEUE_CONFIGS or name in (COMPANION_OF, COMPANION_KIND)
}
