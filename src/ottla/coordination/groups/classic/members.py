"""The members of one classic group: the leader, the protocols that all members support, the subscribed topics.

Pure bookkeeping without time. When members join and leave, and their responses, are decided in `group_state.py`.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from operator import is_

from ottla.coordination.groups.records import MemberValue
from ottla.coordination.groups.requests import JoinedMember, MemberProtocol
from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import violated
from ottla.protocol.consumer_protocol import ConsumerProtocolError, read_topics


class ClassicMember:
    """One member. A token is that of its waiting request; a member has one waiting request at most.

    `is_new` until it first gets its generation: before that it does not know its member id and sends no heartbeats.
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
        """Whether a request of the member waits; it sends no heartbeats then."""
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol; empty for one that it does not support."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def is_as(self, written: MemberValue) -> bool:
        """Whether it was written as it is, but for its metadata and assignment."""
        return (
            self.member_id == written.member_id
            and self.instance_id == written.instance_id
            and self.client_id == written.client_id
            and self.client_host == written.client_host
            and self.rebalance_timeout_ms == written.rebalance_timeout_ms
            and self.session_timeout_ms == written.session_timeout_ms
        )

    def value(self, protocol: str, assignment: bytes) -> MemberValue:
        """The member as it is written to the log."""
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
    """All members, in the order in which they joined, and the id of the leader.

    Invariants: there is a leader if and only if there are members, and it is one of them; an instance id belongs to one
    member at most; an id that was handed out but has not joined yet (`promised`) is not a member's.
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
        """The error for a request with this member and instance id; NONE if they belong to a member."""
        if instance_id is not None:
            owner = self._by_instance.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def waiting_to_join(self) -> int:
        """How many members have joined the next generation."""
        return sum(member.join_token is not None for member in self._members.values())

    def have_all_joined(self) -> bool:
        """Whether all members have joined, and all promised ids have too."""
        return not self.promised and all(member.join_token is not None for member in self._members.values())

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member may take to join again."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    # Coming and going

    def add(self, member: ClassicMember) -> None:
        """Adds a member; the first one becomes leader."""
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
        """Removes a member or a promised id; if it was the leader, the next member becomes leader."""
        self.promised.pop(member_id, None)
        member = self._members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                del self._by_instance[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """A static member comes back under another id; it stays leader if it was."""
        was_leader = self.leader == old.member_id
        del self._members[old.member_id]
        self._count(old, -1)
        self._members[new.member_id] = new
        self._count(new, 1)
        if new.instance_id is not None:
            self._by_instance[new.instance_id] = new.member_id
        if was_leader:
            self.leader = new.member_id

    def has_just(self, members: list[ClassicMember]) -> bool:
        """Whether these very members are all there are, in this order."""
        return len(members) == len(self._members) and all(map(is_, members, self._members.values()))

    def reset(self, members: list[ClassicMember], leader: str | None) -> None:
        """Replaces all members by those of a record; promised ids stay."""
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
        """Makes a member that has joined the leader; false if none has."""
        if self.leader is not None and self._members[self.leader].join_token is not None:
            return True
        joined = next((member for member in self._members.values() if member.join_token is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    # Protocols

    def speak(self, member: ClassicMember, protocols: tuple[MemberProtocol, ...]) -> None:
        """Changes the protocols of a member."""
        if member.protocols != protocols:
            self._count(member, -1)
            member.protocols = protocols
            self._count(member, 1)

    def candidates(self) -> list[str]:
        """The protocols that every member supports."""
        return [name for name, speakers in self._speakers.items() if speakers == len(self._members)]

    def select_protocol(self) -> str:
        """The protocol with most votes among those that all support; each member votes for the first on its list."""
        candidates = self.candidates()
        votes = dict.fromkeys(candidates, 0)
        for member in self._members.values():
            for chosen, _ in member.protocols:
                if chosen in votes:
                    break
            else:
                violated(
                    f"member {member.member_id} supports none of the protocols {candidates} that all members support"
                )
            votes[chosen] += 1
        return max(candidates, key=votes.__getitem__)

    def joined(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """The members as the leader gets them."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self._members.values()
        )

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """The topics that consumers subscribe to under a protocol; None if that cannot be read."""
        topics: set[str] = set()
        # Often all members say the same.
        for metadata in {member.metadata(protocol) for member in self._members.values()}:
            try:
                topics.update(read_topics(metadata))
            except ConsumerProtocolError:
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
        for name in dict.fromkeys([name for name, _ in member.protocols]):
            self._speakers[name] = self._speakers.get(name, 0) + change
            if self._speakers[name] == 0:
                del self._speakers[name]
