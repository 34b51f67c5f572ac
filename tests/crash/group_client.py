"""Members of groups, request by request over raw connections: of the classic protocol, and of the server-side one.

Answers are given as they come: what a member would do about them is the test's to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.wire.exchange import RawConnection, read_response, request_frame

JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
COMMIT_VERSION: Final = 9
REBALANCE_TIMEOUT: Final = timedelta(seconds=60)
PROTOCOL: Final = {"protocol_type": "consumer", "protocol_name": "range"}


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """One member; `member_id` and `generation` are those that it was last given."""

    address: str
    group: str
    member_id: str = ""
    generation: int = -1
    _parked: RawConnection | None = None

    @property
    def _who(self) -> dict[str, Any]:
        return {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}

    def begin_join(self) -> None:
        """Sends the request; the answer comes when all members have joined. A new member gets its id first."""
        if not self.member_id:
            with RawConnection(self.address) as connection:
                answer = connection.ask(ApiKey.JOIN_GROUP, JOIN_VERSION, self._join_request())
            assert ErrorCode.member_id_required is answer.error_code
            self.member_id = answer.member_id
        self._parked = RawConnection(self.address)
        self._parked.send(request_frame(ApiKey.JOIN_GROUP, JOIN_VERSION, self._join_request()))

    def end_join(self) -> Any:
        """The answer, with the generation that the member is in from now on."""
        assert self._parked is not None
        with self._parked as connection:
            _, answer = read_response(ApiKey.JOIN_GROUP, JOIN_VERSION, connection.receive())
        self._parked = None
        if answer.error_code is ErrorCode.none:
            self.generation = int(answer.generation_id)
        return answer

    def join(self) -> Any:
        """Both, for the last member to come."""
        self.begin_join()
        return self.end_join()

    def _join_request(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "group_instance_id": None,
            "session_timeout": REBALANCE_TIMEOUT,
            "rebalance_timeout": REBALANCE_TIMEOUT,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"any"}],
        }

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> tuple[ErrorCode, bytes]:
        """(error, this member's assignment); the leader says what each member gets."""
        given = [{"member_id": member, "assignment": content} for member, content in (assignments or {}).items()]
        answer = self._ask(ApiKey.SYNC_GROUP, SYNC_VERSION, {**self._who, **PROTOCOL, "assignments": given})
        return ErrorCode(answer.error_code), bytes(answer.assignment)

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        """What a member is told that is still there."""
        request = {**self._who, "generation_id": self.generation if generation is None else generation}
        return ErrorCode(self._ask(ApiKey.HEARTBEAT, 4, request).error_code)

    def commit(self, topic: str, partition: int, offset: int) -> ErrorCode:
        """How far the group has come."""
        part = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
        request = {
            **self._who,
            "generation_id_or_member_epoch": self.generation,
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [part]}],
        }
        answer = self._ask(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, request)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def _ask(self, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        with RawConnection(self.address) as connection:
            return connection.ask(api_key, version, {"group_instance_id": None, **values})


@dataclass(slots=True, kw_only=True)
class ServerSideMember:
    """One member; `owned` are the partitions that it works on, which `beat` tells the broker."""

    address: str
    group: str
    topic: str
    topic_id: UUID
    member_id: str
    epoch: int = 0
    owned: tuple[int, ...] = ()

    def beat(self) -> tuple[int, ...] | None:
        """The partitions that the member may have now, or None if nothing has changed; takes the new epoch over."""
        request = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_TIMEOUT,
            "subscribed_topic_names": [self.topic],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [{"topic_id": self.topic_id, "partitions": list(self.owned)}] if self.owned else [],
        }
        with RawConnection(self.address) as connection:
            answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert ErrorCode.none is answer.error_code, answer.error_message
        self.epoch = int(answer.member_epoch)
        if answer.assignment is None:
            return None
        return tuple(index for each in answer.assignment.topic_partitions for index in sorted(each.partitions))
