"""Which broker configs are behind the configs of groups."""

from typing import NamedTuple


class BrokerLimits(NamedTuple):
    """The broker configs behind a group config: its default, and its smallest and largest value, if it has any."""

    default: str
    lowest: str | None = None
    highest: str | None = None
