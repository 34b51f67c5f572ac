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
    from ottla.coordination.groups.consumer.requests import ConsumerHeartbeat
    from ottla.coordination.groups.group_shard_state import GroupShard

_QUIET_ROUNDS: Final = 2
"""Rounds of the event loop in a row without a join of the group, after which those that wait are decided."""

_ROUNDS_MAX: Final = 64
"""A join does not wait for more rounds than this, even if each of them brings another one."""

_BYTES_MAX: Final = 128 * 1024
"""Of the records of joins that are decided together, about, except for a single larger one: they are one batch, which
must stay far below `max.message.bytes`."""

_RECORDS_OF_JOIN: Final = 4
_BYTES_OF_JOIN: Final = 256


class _Gathering:
    """The joins of one group that wait."""

    __slots__ = ("joins", "quiet_rounds", "record_bytes", "rounds", "seen")

    def __init__(self) -> None:
        self.joins: list[PlainJoin] = []
        self.record_bytes = 0
        self.seen = 0
        self.rounds = 0
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
        size = _size_of(request)
        found = self._waiting.get(key)
        if found is not None and found.record_bytes + size > _BYTES_MAX:
            self._decide(key)
            found = None
        if found is None:
            found = self._waiting[key] = _Gathering()
            self._loop.call_soon(self._look, key, found)
        found.joins.append(join)
        found.record_bytes += size

    def decide_for(self, shard: "Shard[GroupShard]", group_id: str, member_id: str) -> None:
        """Decides now what waits, if this member has a join among it: its next request must not overtake that one."""
        if self._waiting:
            found = self._waiting.get((shard, group_id))
            if found is not None and any(join.request.member_id == member_id for join in found.joins):
                self._decide((shard, group_id))

    def _look(self, key: "tuple[Shard[GroupShard], str]", found: _Gathering) -> None:
        if self._waiting.get(key) is not found:
            return
        found.rounds += 1
        found.quiet_rounds = found.quiet_rounds + 1 if found.seen == len(found.joins) else 0
        found.seen = len(found.joins)
        if found.quiet_rounds < _QUIET_ROUNDS and found.rounds < _ROUNDS_MAX:
            self._loop.call_soon(self._look, key, found)
        else:
            self._decide(key)

    def _decide(self, key: "tuple[Shard[GroupShard], str]") -> None:
        shard, joins = key[0], self._waiting.pop(key).joins
        try:
            shard.check_active()
            shard.carry_out(shard.machine.join_consumers(joins, shard.now_ms()))
        except OttlaError as error:
            for reply in _unanswered(joins):
                reply.set_exception(error)
        except Exception as error:
            # No request is being handled here that could fail, and those that wait must not wait for ever.
            for reply in _unanswered(joins):
                reply.fail(error)


def _unanswered(joins: "list[PlainJoin]") -> list[Reply]:
    return [join.token for join in joins if isinstance(join.token, Reply) and not join.token.done()]


def _size_of(request: "ConsumerHeartbeat") -> int:
    """About the size of what is written for a join."""
    keys = _RECORDS_OF_JOIN * (len(request.group_id) + len(request.member_id))
    names = len(request.client_id) + len(request.client_host) + sum(map(len, request.topic_names or ()))
    return _BYTES_OF_JOIN + keys + names
