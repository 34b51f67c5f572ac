"""A classic group under random clients, clocks, failed writes and failovers.

Five clients of one group: dynamic ones of old and new versions, a static one, and two that fight for one instance id.
Each behaves as it is told, but joins, syncs and commits whenever the test wants, and may forget that it asked. Checked
all along: one leader and one set of assignments for each generation, each member its own; generations never go back;
offsets are what was last committed; a failover shows what was last written; and whoever waits is answered in the end.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordination.groups.requests import (
    DeleteGroupRequest,
    DescribedGroup,
    GroupSettings,
    JoinResponse,
    LeaveRequest,
    LeavingMember,
    MemberProtocol,
    SyncResponse,
)
from ottla.model.error_codes import ErrorCode
from tests.effort import effort
from tests.unit.coordination.group_rig import GroupRig, subscription

SETTINGS = GroupSettings(initial_rebalance_delay_ms=1_000, new_member_timeout_ms=30_000, group_size_max=4)
LONG_MS = 300_000
TOPICS = ("t", "u")
PROTOCOLS = [
    (MemberProtocol("range", subscription("t")),),
    (MemberProtocol("range", subscription("t")), MemberProtocol("sticky", subscription("t"))),
    (MemberProtocol("sticky", subscription("t", "u")), MemberProtocol("range", subscription("t", "u"))),
]


@dataclass
class Client:
    """What one client knows."""

    name: str
    instance_id: str | None = None
    requires_member_id: bool = True
    can_skip_assignment: bool = True
    member_id: str = ""
    generation: int = -1
    is_leader: bool = False
    members: tuple[str, ...] = ()
    asked: dict[Hashable, None] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Who it is to the group, whatever its member id."""
        return self.instance_id or self.name

    def reset(self) -> None:
        self.member_id, self.generation, self.is_leader, self.members = "", -1, False, ()


class GroupMachine(RuleBasedStateMachine):
    """The rig, its clients, and what they must see."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = GroupRig(SETTINGS)
        self.clients = [
            Client("new"),
            Client("old", requires_member_id=False, can_skip_assignment=False),
            Client("static", instance_id="s", can_skip_assignment=False),
            Client("rival-a", instance_id="r"),
            Client("rival-b", instance_id="r"),
        ]
        self.owners: dict[str, str] = {}
        self.nonce = 0
        # A deleted group starts anew from the first generation.
        self.incarnation = 0
        self.leaders: dict[tuple[int, int, int], str] = {}
        self.nonces: dict[tuple[int, int], bytes] = {}
        self.given: dict[tuple[int, int, str], bytes] = {}
        self.stable_generation = 0
        self.written: DescribedGroup = self.rig.shard.describe_group("g")
        self.offsets: dict[str, tuple[int, int]] = {}
        self.pending: dict[int, dict[str, tuple[int, int]]] = {}
        self.turn = 0

    # What clients do

    @rule(index=st.integers(0, 4), protocols=st.sampled_from(PROTOCOLS), session_ms=st.sampled_from([6_000, 20_000]))
    def join(self, index: int, protocols: tuple[MemberProtocol, ...], session_ms: int) -> None:
        client = self.clients[index]
        token = self.rig.join(
            client.member_id,
            client.instance_id,
            client_id=client.name,
            protocols=protocols,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=15_000,
            requires_member_id=client.requires_member_id,
            can_skip_assignment=client.can_skip_assignment,
        )
        client.asked[token] = None
        self.hear()

    @rule(index=st.integers(0, 4), is_partial=st.booleans())
    def sync(self, index: int, is_partial: bool) -> None:
        client = self.clients[index]
        assignments = {}
        if client.is_leader:
            self.nonce += 1
            members = client.members[:-1] if is_partial else client.members
            assignments = {each: f"{self.nonce} {client.generation} {each}".encode() for each in members}
        token = self.rig.sync(client.member_id, client.generation, assignments, instance_id=client.instance_id)
        client.asked[token] = None
        self.hear()

    @rule(indexes=st.sets(st.integers(0, 4), min_size=1), protocols=st.sampled_from(PROTOCOLS))
    def work_together(self, indexes: set[int], protocols: tuple[MemberProtocol, ...]) -> None:
        """Clients do what makes a group stable: otherwise it seldom is for long."""
        for index in sorted(indexes) * 2:
            client = self.clients[index]
            if not any(token in self.rig.waiting for token in client.asked):
                self.join(index, protocols, 20_000)
        for _ in range(20):
            if self.rig.state() == "PreparingRebalance":
                self.time_passes(1_000)
        for index in sorted(indexes, key=lambda index: self.clients[index].is_leader):
            self.sync(index, False)

    @rule(index=st.integers(0, 4))
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        error = self.rig.heartbeat(client.member_id, client.generation, client.instance_id)
        if error is ErrorCode.NONE:
            assert self.rig.shard.classic.groups["g"].generation == client.generation
        self.on_error(client, error)
        self.hear()

    @rule(index=st.integers(0, 4))
    def leave(self, index: int) -> None:
        client = self.clients[index]
        leaving = LeavingMember(member_id=client.member_id, instance_id=client.instance_id)
        self.rig.ask("leave", LeaveRequest(group_id="g", members=(leaving,)))
        client.reset()
        self.hear()

    @rule(index=st.integers(0, 4))
    def forget_what_was_asked(self, index: int) -> None:
        """Its connection broke, so what it hears no longer counts."""
        self.clients[index].asked.clear()

    @rule(index=st.integers(0, 4))
    def start_again(self, index: int) -> None:
        self.clients[index].reset()
        self.clients[index].asked.clear()

    @rule(index=st.integers(0, 4), offset=st.integers(0, 99))
    def commit(self, index: int, offset: int) -> None:
        client = self.clients[index]
        error = self.rig.commit(offset, client.generation, client.member_id, instance_id=client.instance_id)
        if error is ErrorCode.NONE:
            self.turn += 1
            self.offsets["t"] = (self.turn, offset)
        self.on_error(client, error)

    @rule(producer_id=st.integers(1, 2), offset=st.integers(100, 199))
    def commit_in_transaction(self, producer_id: int, offset: int) -> None:
        if self.rig.commit_in_transaction(offset, producer_id) is ErrorCode.NONE:
            self.turn += 1
            self.pending.setdefault(producer_id, {})["t"] = (self.turn, offset)

    @rule(producer_id=st.integers(1, 2), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        self.rig.marker(producer_id, commit=commit)
        for topic, new in self.pending.pop(producer_id, {}).items():
            if commit:
                self.offsets[topic] = max(self.offsets.get(topic, (0, 0)), new)

    @rule()
    def delete_topic(self) -> None:
        self.rig.run(self.rig.shard.on_topics_deleted(["t"], self.rig.now_ms))
        if not self.rig.writes_fail:
            self.offsets.pop("t", None)
            self.pending.clear()

    @rule()
    def delete_group(self) -> None:
        if self.rig.answer("delete_group", DeleteGroupRequest(group_id="g")).error is ErrorCode.NONE:
            self.offsets.clear()
            self.pending.clear()
        self.hear()

    # What the world does

    @rule(ms=st.sampled_from([1, 999, 1_000, 5_000, 6_000, 15_000, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.rig.after(ms)
        self.hear()

    @rule(fail=st.booleans())
    def log(self, fail: bool) -> None:
        self.rig.writes_fail = fail

    @rule()
    def failover(self) -> None:
        self.rig.writes_fail = False
        self.rig.crash()
        for client in self.clients:
            client.asked.clear()
        after = self.rig.shard.describe_group("g")
        assert self.written == after
        assert self.rig.waiting == {}

    @precondition(lambda self: self.rig.waiting)
    @rule()
    def everyone_falls_silent(self) -> None:
        self.rig.writes_fail = False
        self.rig.after(LONG_MS)
        assert {} == self.rig.waiting
        assert self.rig.state() in ("Empty", "Dead")
        self.hear()

    def teardown(self) -> None:
        self.rig.writes_fail = False
        self.rig.after(LONG_MS)
        assert {} == self.rig.waiting

    # What must be

    def hear(self) -> None:
        """Clients take in what they were answered."""
        self.note_what_is_written()
        for client in self.clients:
            for token in list(client.asked):
                if token in self.rig.waiting:
                    continue
                del client.asked[token]
                match self.rig.responses[token]:
                    case JoinResponse() as joined:
                        self.on_joined(client, joined)
                    case SyncResponse() as synced:
                        self.on_synced(client, synced)

    def on_joined(self, client: Client, joined: JoinResponse) -> None:
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            assert client.requires_member_id
            assert client.instance_id is None
            client.member_id = joined.member_id
        if joined.error is not ErrorCode.NONE:
            self.on_error(client, joined.error)
            return
        self.owners[joined.member_id] = client.identity
        client.member_id, client.generation = joined.member_id, joined.generation
        client.is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        client.members = tuple(each.member_id for each in joined.members)
        assert client.is_leader <= (joined.member_id in client.members)
        assert joined.generation >= self.stable_generation
        # Each broker's word is its own, until it is written.
        key = (self.incarnation, self.rig.lives, joined.generation)
        if joined.members and joined.leader == joined.member_id:
            assert client.identity == self.leaders.setdefault(key, client.identity)

    def on_synced(self, client: Client, synced: SyncResponse) -> None:
        if synced.error is not ErrorCode.NONE:
            self.on_error(client, synced.error)
            return
        key = (self.incarnation, client.generation)
        if not synced.assignment:
            return
        nonce, generation, member_id = synced.assignment.decode().split(" ", 2)
        assert client.generation == int(generation)
        assert client.identity == self.owners.get(member_id, client.identity)
        assert nonce.encode() == self.nonces.setdefault(key, nonce.encode())
        assert synced.assignment == self.given.setdefault((*key, client.identity), synced.assignment)
        self.stable_generation = client.generation

    @staticmethod
    def on_error(client: Client, error: ErrorCode) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.reset()
        if error is ErrorCode.ILLEGAL_GENERATION:
            client.generation, client.is_leader, client.members = -1, False, ()

    def note_what_is_written(self) -> None:
        group = self.rig.shard.classic.groups.get("g")
        described = self.rig.shard.describe_group("g")
        if group is None or not group.is_written:
            if described.state == "Dead":
                self.written = described
                self.incarnation += 1
                self.stable_generation = 0
        elif described.state in ("Stable", "Empty"):
            self.written = described
        elif self.written.state == "Dead":
            # An offset was committed while the first members wait: all that is written of the group is that it exists.
            self.written = DescribedGroup(group_id="g", state="Empty")

    @invariant()
    def offsets_are_what_was_last_committed(self) -> None:
        self.note_what_is_written()
        committed = self.offsets.get("t", (0, -1))[1]
        assert committed == self.rig.offset()
        is_pending = any("t" in offsets for offsets in self.pending.values())
        expected = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_pending else committed
        assert expected == self.rig.offset(require_stable=True)

    @invariant()
    def books_agree(self) -> None:
        self.rig.shard.check()
        waiting = [*self.rig.waiting]
        group = self.rig.shard.classic.groups.get("g")
        tokens = (
            []
            if group is None
            else [
                token
                for member in group.members
                for token in (member.join_token, member.sync_token)
                if token is not None
            ]
        )
        assert sorted(waiting, key=repr) == sorted(tokens, key=repr)

    @invariant()
    def nobody_is_left_without_a_deadline(self) -> None:
        deadline_ms = self.rig.shard.next_deadline()
        assert deadline_ms is not None
        assert deadline_ms >= self.rig.now_ms


TestClassicGroups = GroupMachine.TestCase
TestClassicGroups.settings = effort(examples=60, steps=60)
