"""Which change of a feature's level is meant."""

from enum import IntEnum


class UpgradeType(IntEnum):
    """Whether a feature's level may be raised or lowered, by the number in the protocol."""

    UPGRADE = 1
    """To a higher level."""
    SAFE_DOWNGRADE = 2
    """To a lower level, if that loses no metadata."""
    UNSAFE_DOWNGRADE = 3
    """To a lower level, even if that loses metadata."""
