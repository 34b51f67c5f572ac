"""The configs of share groups: type, default, range, and the broker configs behind them.

Names, types and defaults are those of Kafka 4.4; those that Kafka does not have say so. A value outside the range that
the broker allows is refused when it is set, and limited to that range when the range has changed since.
`ottla.broker.configs.group_settings` combines the values.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.metadata.configs.broker_limits import BrokerLimits
from ottla.metadata.configs.definition import ConfigType, ConfigValue, Rule, UpdateMode
from ottla.metadata.configs.definition import define as _define

_BOOLEAN, _INT, _STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING
_ANY: Final = UpdateMode.CLUSTER_WIDE
_RESETS: Final = frozenset({"earliest", "latest"})
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?"
)


def duration_ms(text: str) -> int | None:
    """The span of an ISO 8601 duration such as P1DT2H3M4.5S; None if it is not one."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.endswith("T"):
        return None
    days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(found["seconds"] or 0) * 1000)


def reset_age_ms(value: str) -> int | None:
    """How far back a reset `by_duration:<duration>` goes; None for the other resets."""
    return duration_ms(value.removeprefix(_BY_DURATION)) if value.startswith(_BY_DURATION) else None


def _is_reset(value: ConfigValue) -> bool:
    return isinstance(value, str) and (value in _RESETS or reset_age_ms(value) is not None)


_RESET_RULE: Final = Rule(_is_reset, "earliest, latest, or by_duration:<ISO 8601 duration> such as by_duration:PT1H")


def _may_have_dead_letters(value: ConfigValue) -> bool:
    return isinstance(value, str) and not value.startswith("__")


_DEAD_LETTER_RULE: Final = Rule(_may_have_dead_letters, "the name of a topic that does not start with __")


SHARE_GROUP_CONFIGS: Final = (
    _define("errors.deadletterqueue.topic.name", _STRING, "",
            "The topic for records that a share group rejected or delivered as often as its limit allows; empty for "
            "none.", rule=_DEAD_LETTER_RULE, update_mode=_ANY),
    _define("errors.deadletterqueue.copy.record.enable", _BOOLEAN, "false",
            "Whether a dead letter has the key, value and headers of its record, or only the headers that say which "
            "record it was.", update_mode=_ANY),
    _define("share.session.timeout.ms", _INT, "45000", "The session timeout of a share group's members.", 1,
            update_mode=_ANY),
    _define("share.heartbeat.interval.ms", _INT, "5000", "How often members of a share group send a heartbeat.",
            1, update_mode=_ANY),
    _define("share.assignment.interval.ms", _INT, "1000",
            "The shortest time between two assignments of a share group; 0 for no limit.", 0,
            update_mode=_ANY),
    _define("share.assignor.offload.enable", _BOOLEAN, "true",
            "Whether assignments are computed in a background thread. It has no effect in Ottla.", update_mode=_ANY),
    _define("share.record.lock.duration.ms", _INT, "30000",
            "How long a member may hold a record before it is delivered again.", 1000, update_mode=_ANY),
    _define("share.delivery.count.limit", _INT, "5", "How many times a record is delivered at most.", 2,
            update_mode=_ANY),
    _define("share.partition.max.record.locks", _INT, "2000",
            "How many records of a partition may be in flight.", 100, update_mode=_ANY),
    _define("share.auto.offset.reset", _STRING, "latest",
            "Where a share group starts in a partition: earliest, latest, or by_duration:<ISO 8601 duration>.",
            rule=_RESET_RULE, update_mode=_ANY),
    _define("share.isolation.level", _STRING, "read_uncommitted",
            "Whether records of open and aborted transactions are delivered (read_uncommitted) or not.",
            allowed=("read_committed", "read_uncommitted"), update_mode=_ANY),
    _define("share.renew.acknowledge.enable", _BOOLEAN, "true",
            "Whether members may renew the lock of a record.", update_mode=_ANY),
    _define("share.release.backoff.ms", _INT, "0",
            "How long a released record waits before it is delivered again, doubled with each delivery; 0 for "
            "no wait. Not a config of Kafka.", 0, update_mode=_ANY),
    _define("share.release.backoff.max.ms", _INT, "60000",
            "The largest backoff that share.release.backoff.ms grows to. Not a config of Kafka.", 0, update_mode=_ANY),
)  # fmt: skip

SHARE_LIMITS: Final[Mapping[str, BrokerLimits]] = MappingProxyType(
    {
        **{
            f"share.{name}": BrokerLimits(f"group.share.{name}", f"group.share.min.{name}", f"group.share.max.{name}")
            for name in (
                "session.timeout.ms",
                "heartbeat.interval.ms",
                "assignment.interval.ms",
                "record.lock.duration.ms",
                "delivery.count.limit",
                "partition.max.record.locks",
            )
        },
        "share.assignor.offload.enable": BrokerLimits("group.share.assignor.offload.enable"),
    }
)
"""The configs whose default and range are the broker's."""
