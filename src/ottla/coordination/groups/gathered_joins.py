"""Joins of consumer groups that arrive together are decided together.

The consumers of a service start at the same time. If each join were decided alone, each would compute a target that the
next one replaces, and the first members would have to give up again most of what they got. So a join waits until the
event loop finds no further join of its group, which takes microseconds for a member that joins alone.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.coordination.runtime.reply import Reply
from ottla.coordination.runtime.shard import Shard
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.coordination.groups.consumer.groups_state import PlainJoin
    from ottla.coordination.groups.group_shard_state import GroupShard

_QUIET_ROUNDS: Final = 2
"""Rounds of the event loop in a row without a join of the group, after which those that wait are decided."""

_WAIT_SECONDS_MAX: Final = 0.02
"""A join does not wait longer than this, even if more arrive."""

_BYTES_MAX: Final = 64 * 1024
"""Of the subscriptions that are decided together, except for a single larger one: they are written as one batch."""


class _Gathering:
    """The joins of one group that wait."""

    __slots__ = ("began", "joins", "quiet_rounds", "seen", "subscription_bytes")

    def __init__(self, began: float) -> None:
        self.began = began
        self.joins: list[PlainJoin] = []
        self.subscription_bytes = 0
        self.seen = 0
        self.quiet_rounds = 0


class GatheredJoins:
    """The joins that wait, of all groups that this broker coordinates."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[Shard[GroupShard], str], _Gathering] = {}

    def add(self, shard: "Shard[GroupShard]", join: "PlainJoin") -> None:
        """Hands the join to the shard soon, together with others. Its token, a `Reply`, gets the response or error."""
        request = join.request
        key = (shard, request.group_id)
        size = sum(map(len, request.topic_names or ()))
        found = self._waiting.get(key)
        if found is not None and found.subscription_bytes + size > _BYTES_MAX:
            self._decide(key)
            found = None
        if found is None:
            found = self._waiting[key] = _Gathering(self._loop.time())
            self._loop.call_soon(self._look, key, found)
        found.joins.append(join)
        found.subscription_bytes += size

    def decide_for(self, shard: "Shard[GroupShard]", group_id: str, member_id: str) -> None:
        """Decides now what waits, if this member has a join among it: its next request must not overtake that one."""
        if self._waiting:
            found = self._waiting.get((shard, group_id))
            if found is not None and any(join.request.member_id == member_id for join in found.joins):
                self._decide((shard, group_id))

    def _look(self, key: "tuple[Shard[GroupShard], str]", found: _Gathering) -> None:
        if self._waiting.get(key) is not found:
            return
        found.quiet_rounds = found.quiet_rounds + 1 if found.seen == len(found.joins) else 0
        found.seen = len(found.joins)
        if found.quiet_rounds < _QUIET_ROUNDS and self._loop.time() - found.began < _WAIT_SECONDS_MAX:
            self._loop.call_soon(self._look, key, found)
        else:
            self._decide(key)

    def _decide(self, key: "tuple[Shard[GroupShard], str]") -> None:
        shard, joins = key[0], self._waiting.pop(key).joins
        try:
            shard.check_active()
        except OttlaError as error:
            for join in joins:
                if isinstance(join.token, Reply):
                    join.token.set_exception(error)
            return
        shard.carry_out(shard.machine.join_consumers(joins, shard.now_ms()))
