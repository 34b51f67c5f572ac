"""Runs a script about one classic group against a shard, and says all that happened.

`script_blocks.py` has the form of a script. Commands, with clients by any name (`-` is a consumer that is no member):

| command | meaning |
|---|---|
| `join a [instance=i] [protocols=p,q] [session=6s] [rebalance=60s] [old]` | `old`: needs no id, cannot skip assigning |
| `sync a [a=x b=y]` | a leader says the assignments |
| `heartbeat a`, `leave a b`, `commit a t/0=5`, `restart a` | `restart`: it forgets who it was |
| `fetch [stable] t/0`, `fetch [stable]`, `transaction 1 t/0=5`, `marker 1 commit` | offsets, with producer 1 |
| `delete-offsets t/0`, `delete-topic t`, `delete-group`, `describe` | |
| `after 3s`, `failover`, `log fails`, `log works` | what the world does |
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.coordination.groups.records import OffsetKey, read_group, read_key, read_offset
from ottla.coordination.groups.requests import (
    DeleteGroupRequest,
    DeleteGroupResponse,
    HeartbeatResponse,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    LeavingMember,
    MemberProtocol,
    NewOffset,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncResponse,
    WantedPartition,
)
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.error_codes import ErrorCode
from tests.scenarios.script_blocks import milliseconds, options
from tests.unit.coordination.group_rig import GroupRig, Logged, subscription


@dataclass
class Client:
    """What a client of the script knows."""

    name: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class GroupScript:
    """One run of a script; `run` takes a command's line, and `happened` gives what came of it."""

    def __init__(self, rig: GroupRig | None = None) -> None:
        self.rig = GroupRig() if rig is None else rig
        self.clients: dict[str, Client] = {"-": Client("-")}
        self.names: dict[str, str] = {}
        self.askers: dict[Hashable, tuple[str, str]] = {}
        self.state = self.rig.state()

    def run(self, line: str) -> list[str]:
        """Carries a command out; what happened, in order: records, responses, who waits, and the group's new state."""
        command, *words = line.split()
        logged, before = len(self.rig.log), dict(self.rig.responses)
        waiting = dict(self.rig.waiting)
        perform: Callable[[list[str]], list[str] | None] = getattr(self, "do_" + command.replace("-", "_"))
        told = perform(words) or []
        answered = [token for token in self.rig.responses if token not in before]
        for token in answered:
            self.hear(token)
        happened = [self.record(entry) for entry in self.rig.log[logged:]] + told
        for token in answered:
            happened += self.response(*self.askers[token], self.rig.responses[token])
        happened += [f"{self.askers[token][0]}: waits" for token in self.rig.waiting if token not in waiting]
        if self.rig.state() != self.state:
            self.state = self.rig.state()
            happened.append(f"group: {self.state}")
        return happened

    # Commands

    def do_join(self, words: list[str]) -> None:
        client, said = self.client(words[0]), options(words[1:])
        client.instance_id = said.get("instance", client.instance_id)
        names = said.get("protocols", "range").split(",")
        metadata = self.metadata(client, said)
        request = self.rig.request(
            client.member_id,
            client.instance_id,
            client_id=client.name,
            protocols=tuple(MemberProtocol(name, metadata) for name in names),
            session_timeout_ms=milliseconds(said.get("session", "10s")),
            rebalance_timeout_ms=milliseconds(said.get("rebalance", "60s")),
            requires_member_id="old" not in said,
            can_skip_assignment="old" not in said,
        )
        self.ask(client.name, "join", request)

    def do_sync(self, words: list[str]) -> None:
        client = self.client(words[0])
        said = dict(each.split("=") for each in words[1:])
        assignments = {self.client(name).member_id: self.encoded(value) for name, value in said.items()}
        token = self.rig.sync(client.member_id, client.generation, assignments, instance_id=client.instance_id)
        self.askers[token] = (client.name, "sync")

    def do_heartbeat(self, words: list[str]) -> list[str]:
        client = self.client(words[0])
        error = self.rig.heartbeat(client.member_id, client.generation, client.instance_id)
        return [f"{client.name}: {error.name}"]

    def do_leave(self, words: list[str]) -> None:
        clients = [self.client(name) for name in words]
        members = tuple(LeavingMember(member_id=each.member_id, instance_id=each.instance_id) for each in clients)
        self.ask(words[0], "leave", LeaveRequest(group_id="g", members=members))

    def do_restart(self, words: list[str]) -> None:
        client = self.client(words[0])
        client.member_id, client.generation = "", -1

    def do_commit(self, words: list[str]) -> list[str]:
        client = self.client(words[0])
        offsets = new_offsets(words[1:])
        error = self.rig.commit(0, client.generation, client.member_id, instance_id=client.instance_id, offsets=offsets)
        return [f"{client.name}: {error.name}"]

    def do_transaction(self, words: list[str]) -> list[str]:
        error = self.rig.commit_in_transaction(0, int(words[0]), offsets=new_offsets(words[1:]))
        return [f"producer {words[0]}: {error.name}"]

    def do_marker(self, words: list[str]) -> None:
        self.rig.marker(int(words[0]), commit=words[1] == "commit")

    def do_fetch(self, words: list[str]) -> None:
        is_stable = words[:1] == ["stable"]
        wanted = tuple(partition(word) for word in words[is_stable:])
        request = OffsetFetchRequest(group_id="g", partitions=wanted or None, require_stable=is_stable)
        self.ask("-", "fetch_offsets", request)

    def do_delete_offsets(self, words: list[str]) -> None:
        wanted = tuple(partition(word) for word in words)
        self.ask("-", "delete_offsets", OffsetDeleteRequest(group_id="g", partitions=wanted))

    def do_delete_topic(self, words: list[str]) -> None:
        self.rig.run(self.rig.shard.on_topics_deleted(words, self.rig.now_ms))

    def do_delete_group(self, words: list[str]) -> None:
        self.ask("-", "delete_group", DeleteGroupRequest(group_id="g"))

    def do_describe(self, words: list[str]) -> list[str]:
        group = self.rig.shard.describe_group("g")
        members = [f"  {self.name(each.member_id)}: {self.decoded(each.assignment)}" for each in group.members]
        return [f"{group.state} type={group.protocol_type or '-'} protocol={group.protocol or '-'}", *members]

    def do_after(self, words: list[str]) -> None:
        self.rig.after(milliseconds(words[0]))

    def do_failover(self, words: list[str]) -> None:
        self.rig.crash()

    def do_log(self, words: list[str]) -> None:
        self.rig.writes_fail = words == ["fails"]

    # What is opaque to the coordinator of a classic group

    def metadata(self, client: Client, said: dict[str, str]) -> bytes:
        """What a client says of itself under each protocol."""
        return subscription("t")

    def encoded(self, assignment: str) -> bytes:
        return assignment.encode()

    def decoded(self, assignment: bytes) -> str:
        return assignment.decode() or "-"

    # What happened

    def ask(self, name: str, method: str, request: Any) -> None:
        self.askers[self.rig.ask(method, request)] = (name, method)

    def hear(self, token: Hashable) -> None:
        """A client takes in what it was answered."""
        name, response = self.askers.get(token, ("-", ""))[0], self.rig.responses[token]
        self.askers.setdefault(token, (name, "quiet"))
        if not isinstance(response, JoinResponse):
            return
        client = self.client(name)
        if response.member_id and response.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id, client.generation = response.member_id, response.generation
            if response.member_id not in self.names:
                earlier = sum(each.split("'")[0] == name for each in self.names.values())
                self.names[response.member_id] = name + "'" * earlier

    def response(self, name: str, method: str, response: Any) -> Iterator[str]:
        match response:
            case JoinResponse(error=ErrorCode.NONE):
                leader = f"leader={self.name(response.leader) or '-'}"
                names = ",".join(self.name(each.member_id) for each in response.members)
                members = f" members={names}" if names else ""
                skips = " skip-assignment" if response.skip_assignment else ""
                protocol = f"protocol={response.protocol_name}"
                yield f"{name}: joined generation={response.generation} {protocol} {leader}{members}{skips}"
            case SyncResponse(error=ErrorCode.NONE):
                yield f"{name}: synced {self.decoded(response.assignment)}"
            case LeaveResponse(error=ErrorCode.NONE):
                yield f"{name}: left " + ", ".join(
                    f"{self.name(each.member_id) or each.instance_id}={each.error.name}" for each in response.members
                )
            case OffsetFetchResponse(error=ErrorCode.NONE):
                for each in response.offsets:
                    offset = str(each.offset) if each.error is ErrorCode.NONE else each.error.name
                    yield f"{each.topic}/{each.partition} = {offset}"
            case OffsetDeleteResponse(error=ErrorCode.NONE):
                for outcome in response.partitions:
                    yield f"{outcome.topic}/{outcome.partition}: {outcome.error.name}"
            case HeartbeatResponse() | OffsetCommitResponse():
                return
            case DeleteGroupResponse():
                yield f"{response.error.name}"
            case _:
                yield f"{name}: {method} {response.error.name}"

    def record(self, entry: Any) -> str:
        if not isinstance(entry, Logged):
            return f"log: marker of producer {entry.producer_id}, {'commit' if entry.commit else 'abort'}"
        record: CoordinatorRecord = entry.record
        key = read_key(record.key)
        if isinstance(key, OffsetKey):
            offset = "deleted" if record.value is None else str(read_offset(record.value).offset)
            producer = "" if entry.producer_id < 0 else f", in the transaction of producer {entry.producer_id}"
            return f"log: offset {key.topic}/{key.partition} = {offset}{producer}"
        if record.value is None:
            return "log: group deleted"
        group = read_group(record.value)
        members = " ".join(f"{self.name(each.member_id)}={self.decoded(each.assignment)}" for each in group.members)
        leader = f" leader={self.name(group.leader)}" if group.leader else ""
        return f"log: group generation={group.generation}{leader} {members or 'empty'}"

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def name(self, member_id: str) -> str:
        return self.names.get(member_id, member_id)


def partition(word: str) -> WantedPartition:
    """`t/0`."""
    topic, _, index = word.partition("/")
    return WantedPartition(topic, int(index))


def new_offsets(words: list[str]) -> tuple[NewOffset, ...]:
    """`t/0=5` and so on."""
    pairs = [word.split("=") for word in words]
    return tuple(
        NewOffset(topic=partition(where).topic, partition=partition(where).partition, offset=int(offset))
        for where, offset in pairs
    )
