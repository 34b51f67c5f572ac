"""The members of one classic group: who they are, who leads, which protocol all of them speak, what they subscribe.

Pure bookkeeping without time. When members come and go, and what they are told, is decided in `classic_group_state.py`.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final

from ottla.coordination.groups.records import MemberValue
from ottla.coordination.groups.requests import JoinedMember, MemberProtocol
from ottla.coordination.runtime.record_fields import FieldReader
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError
from ottla.model.invariants import violated

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type whose metadata is not opaque: it starts with the topics that a consumer subscribes."""


class ClassicMember:
    """One member. A token is that of its request which waits for the group; it waits for one thing at a time.

    `is_new` until it was first told its generation: before that it knows no id to send heartbeats with.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[MemberProtocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_token: Hashable | None = None
        self.sync_token: Hashable | None = None
        self.is_new = False

    @property
    def waits(self) -> bool:
        """Whether the group owes it an answer, so that it cannot be expected to send heartbeats."""
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What it said for a protocol; nothing for one that it does not speak."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def value(self, protocol: str, assignment: bytes) -> MemberValue:
        """The member as it is written."""
        return MemberValue(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


class ClassicMembers:
    """All members, in the order in which they came, and the id of the leader.

    Invariants: there is a leader if and only if there are members, and it is one of them; an instance id belongs to one
    member at most; an id that was given out and not yet used to join (`promised`) is not a member's.
    """

    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._by_instance: dict[str, str] = {}
        self._speakers: dict[str, int] = {}
        self.leader: str | None = None
        self.promised: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def get(self, member_id: str) -> ClassicMember | None:
        """The member of that id."""
        return self._members.get(member_id)

    def of_instance(self, instance_id: str) -> ClassicMember | None:
        """The static member of that instance id."""
        member_id = self._by_instance.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why somebody is not who they say they are; NONE if they are."""
        if instance_id is not None:
            owner = self._by_instance.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def waiting_to_join(self) -> int:
        """How many have joined the next generation."""
        return sum(member.join_token is not None for member in self._members.values())

    def have_all_joined(self) -> bool:
        """Whether nobody is missing, those included who were only promised a place."""
        return not self.promised and all(member.join_token is not None for member in self._members.values())

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member may take to join again."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    # Coming and going

    def add(self, member: ClassicMember) -> None:
        """A new member; the first one leads."""
        if member.instance_id is not None:
            if member.instance_id in self._by_instance:
                violated(f"two members with the instance id {member.instance_id}")
            self._by_instance[member.instance_id] = member.member_id
        self._members[member.member_id] = member
        self._count(member, 1)
        self.promised.pop(member.member_id, None)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """The member goes, or the promise of its place; if it led, the next one does."""
        self.promised.pop(member_id, None)
        member = self._members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                del self._by_instance[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """A static member comes back under another id, and takes over the leadership if it had it."""
        was_leader = self.leader == old.member_id
        del self._members[old.member_id]
        self._count(old, -1)
        self._members[new.member_id] = new
        self._count(new, 1)
        if new.instance_id is not None:
            self._by_instance[new.instance_id] = new.member_id
        if was_leader:
            self.leader = new.member_id

    def reset(self, members: list[ClassicMember], leader: str | None) -> None:
        """These are the members, as they were written; who was only promised a place keeps it."""
        promised = self.promised
        self._members = {}
        self._by_instance = {}
        self._speakers = {}
        self.leader = None
        for member in members:
            self.add(member)
        if leader in self._members:
            self.leader = leader
        self.promised = {member_id: None for member_id in promised if member_id not in self._members}

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is one who has joined; false if nobody has."""
        if self.leader is not None and self._members[self.leader].join_token is not None:
            return True
        joined = next((member for member in self._members.values() if member.join_token is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    # Protocols

    def speak(self, member: ClassicMember, protocols: tuple[MemberProtocol, ...]) -> None:
        """A member speaks these protocols now."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def candidates(self) -> list[str]:
        """The protocols that every member speaks."""
        return [name for name, speakers in self._speakers.items() if speakers == len(self._members)]

    def select_protocol(self) -> str:
        """The one with most votes among those that all speak; each member votes for the first on its own list."""
        candidates = self.candidates()
        votes = dict.fromkeys(candidates, 0)
        for member in self._members.values():
            chosen = next((protocol.name for protocol in member.protocols if protocol.name in votes), None)
            if chosen is None:
                violated(f"member {member.member_id} speaks none of the protocols {candidates} that all speak")
            votes[chosen] += 1
        return max(candidates, key=votes.__getitem__)

    def joined(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """What the leader is told."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self._members.values()
        )

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """The topics that consumers subscribe under a protocol; None if that cannot be read."""
        topics: set[str] = set()
        for member in self._members.values():
            try:
                topics.update(_topics(member.metadata(protocol)))
            except CorruptError:
                return None
        return frozenset(topics)

    def check(self, group_id: str) -> None:
        """Raises when an invariant does not hold."""
        if (self.leader is None) != (not self._members) or (self.leader or "") not in {*self._members, ""}:
            violated(f"group {group_id} is led by {self.leader}, its members are {list(self._members)}")
        expected = {each.instance_id: each.member_id for each in self._members.values() if each.instance_id is not None}
        if expected != self._by_instance:
            violated(f"group {group_id} has the instances {self._by_instance}, its members say {expected}")
        names = [
            name for each in self._members.values() for name in dict.fromkeys(each.name for each in each.protocols)
        ]
        if Counter(names) != self._speakers:
            violated(f"group {group_id} counts the speakers {self._speakers}, its members say {Counter(names)}")
        if any(member_id in self._members for member_id in self.promised):
            violated(f"group {group_id} promises places to its own members: {list(self.promised)}")

    def _count(self, member: ClassicMember, change: int) -> None:
        for name in dict.fromkeys(protocol.name for protocol in member.protocols):
            self._speakers[name] = self._speakers.get(name, 0) + change
            if self._speakers[name] == 0:
                del self._speakers[name]


def _topics(subscription: bytes) -> list[str]:
    """The topics at the start of a consumer's subscription, which are the same in all its versions."""
    fields = FieldReader(subscription, "a subscription")
    return [fields.text() for _ in range(fields.count())]
