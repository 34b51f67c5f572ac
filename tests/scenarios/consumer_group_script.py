"""Runs a script about one group of server-side members, or of both kinds, and says all that happened.

`script_blocks.py` has the form of a script. A new-style consumer does what a real one must: it reports what it owns,
keeps a partition that it was told to give up until `release`, and forgets everything when it is fenced. All commands of
`group_script.py` are for consumers of the old style, whose assignments here are written `a=foo:0,1`; and:

| command | meaning |
|---|---|
| `topics foo=4 bar=2` | these are the cluster's topics from now on |
| `consume a [topics=foo] [pattern=f.*] [instance=i] [assignor=range] [rebalance=60s]` | joins |
| `beat a`, `beat a b c` | a heartbeat, which says only what is new |
| `again a` | it says all, as one does that missed a response |
| `release a` | it has given up what it was told to, and says so |
| `report a foo:0,1` | it says that it owns this, whatever it knows |
| `subscribe a [topics=foo] [pattern=f.*]` | it changes its mind |
| `quit a`, `pause a` | it leaves; it leaves to be back under its instance id |
| `at epoch 3 beat a` | it says that it is at this epoch, whatever it knows |
| `... lost` | at the end of any of these: the response never arrives |
| `restart a` | the process is a new one, which knows nothing; of the new style it makes itself another id |
| `join a [topics=foo]`, `sync a [a=foo:0,1]` | of the old style; what it owns, it says when it joins again |
| `policy upgrade` | which groups with members may change their kind |
| `describe` | the group, each member with what it has and shall have |
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from ottla.coordination.groups.consumer.records import (
    CurrentRecord,
    CurrentValue,
    EpochRecord,
    GroupRecord,
    Holdings,
    MemberRecord,
    MemberValue,
    PartitionMetadataRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    decode,
)
from ottla.coordination.groups.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse, MigrationPolicy
from ottla.coordination.groups.requests import JoinResponse, OffsetCommitRequest, OffsetCommitResponse, SyncResponse
from ottla.model.error_codes import ErrorCode
from ottla.protocol.consumer_protocol import PartitionsByTopic, read_assignment
from tests.scenarios.consumer_offsets_rig import ConsumerOffsetsRig
from tests.scenarios.group_script import Client, GroupScript, new_offsets
from tests.scenarios.script_blocks import milliseconds, options
from tests.unit.coordination.consumer_offsets_driver import assignment, subscription
from tests.unit.coordination.group_rig import Logged

FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass
class Consumer:
    """What a new-style consumer knows. `owned` is what it works on, `revoking` the part that it is to give up."""

    name: str
    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    subscription: dict[str, Any] = field(default_factory=dict)
    owned: dict[UUID, tuple[int, ...]] = field(default_factory=dict)
    assigned: dict[UUID, tuple[int, ...]] = field(default_factory=dict)

    def forget(self) -> None:
        """It was fenced, or is a new process."""
        self.epoch = 0
        self.owned, self.assigned = {}, {}


class ConsumerGroupScript(GroupScript):
    """One run of a script."""

    rig: ConsumerOffsetsRig

    def __init__(self) -> None:
        super().__init__(ConsumerOffsetsRig())
        self.consumers: dict[str, Consumer] = {}
        self.classic_owned: dict[str, PartitionsByTopic] = {}
        self.topic_names: dict[UUID, str] = {}
        self.deaf: set[Hashable] = set()

    # What new-style consumers do

    def do_consume(self, words: list[str]) -> None:
        said = options(words[1:])
        known = self.consumers.get(words[0])
        consumer = known or Consumer(words[0], words[0])
        consumer.forget()
        consumer.instance_id = said.get("instance", consumer.instance_id)
        if known is None or "topics" in said or "pattern" in said:
            consumer.subscription = subscribed(said)
        self.consumers[words[0]] = consumer
        self.beat(words, owned_partitions={}, **consumer.subscription, **self.manners(said))

    def manners(self, said: dict[str, str]) -> dict[str, Any]:
        return {
            "rebalance_timeout_ms": milliseconds(said.get("rebalance", "60s")),
            "server_assignor": said.get("assignor"),
        }

    def do_beat(self, words: list[str]) -> None:
        for name in (word for word in words if word != "lost"):
            self.beat([name, words[-1]])

    def do_again(self, words: list[str]) -> None:
        consumer = self.consumers[words[0]]
        self.beat(words, owned_partitions=consumer.owned, **consumer.subscription, **self.manners({}))

    def do_release(self, words: list[str]) -> None:
        consumer = self.consumers[words[0]]
        consumer.owned = dict(consumer.assigned)
        self.beat(words, owned_partitions=consumer.owned)

    def do_report(self, words: list[str]) -> None:
        topics = (each.split(":") for each in words[1].split("+"))
        owned = {self.rig.topics[name].topic_id: tuple(map(int, numbers.split(","))) for name, numbers in topics}
        self.beat(words, owned_partitions=owned)

    def do_subscribe(self, words: list[str]) -> None:
        consumer = self.consumers[words[0]]
        consumer.subscription = subscribed(options(words[1:]))
        self.beat(words, owned_partitions=consumer.owned, **consumer.subscription)

    def do_quit(self, words: list[str]) -> None:
        self.part(words, -1)

    def do_pause(self, words: list[str]) -> None:
        self.part(words, -2)

    def part(self, words: list[str], epoch: int) -> None:
        consumer = self.consumers[words[0]]
        consumer.epoch = epoch
        self.beat(words)
        consumer.forget()

    def do_at(self, words: list[str]) -> None:
        self.consumers[words[3]].epoch = int(words[1])
        getattr(self, "do_" + words[2])(words[3:])

    def do_restart(self, words: list[str]) -> None:
        consumer = self.consumers.get(words[0])
        if consumer is None:
            self.classic_owned.pop(words[0], None)
            super().do_restart(words)
        else:
            consumer.forget()
            consumer.member_id += "'"

    def beat(self, words: list[str], **fields: Any) -> None:
        consumer = self.consumers[words[0]]
        request = ConsumerHeartbeat(
            group_id="g",
            member_id=consumer.member_id,
            member_epoch=consumer.epoch,
            instance_id=consumer.instance_id,
            client_id=consumer.name,
            **fields,
        )
        token = self.rig.ask("consumer_heartbeat", request)
        self.askers[token] = (consumer.name, "beat")
        if words[-1] == "lost":
            self.deaf.add(token)

    # What old-style consumers say and are told, and offsets of both

    def client(self, name: str) -> Client:
        consumer = self.consumers.get(name)
        if consumer is None:
            return super().client(name)
        return Client(name, consumer.member_id, consumer.instance_id, consumer.epoch)

    def do_commit(self, words: list[str]) -> list[str]:
        client = self.client(words[0])
        request = OffsetCommitRequest(
            group_id="g",
            generation=client.generation,
            member_id=client.member_id,
            instance_id=client.instance_id,
            offsets=new_offsets(words[1:]),
        )
        self.ask(client.name, "commit_offsets", request)
        return []

    def metadata(self, client: Client, said: dict[str, str]) -> bytes:
        return subscription(*said.get("topics", "foo").split(","), owned=self.classic_owned.get(client.name))

    def encoded(self, said: str) -> bytes:
        topics = (each.split(":") for each in said.split("+"))
        return assignment({topic: tuple(map(int, numbers.split(","))) for topic, numbers in topics})

    def decoded(self, said: bytes) -> str:
        return "+".join(f"{topic}:{numbers(of)}" for topic, of in read_assignment(said).partitions.items()) or "-"

    # What the world does

    def do_topics(self, words: list[str]) -> None:
        self.rig.set_topics({name: int(count) for name, count in options(words).items()})
        self.topic_names |= {topic.topic_id: name for name, topic in self.rig.topics.items()}

    def do_policy(self, words: list[str]) -> None:
        self.rig.config = replace(self.rig.config, migration_policy=MigrationPolicy(words[0]))
        self.rig.shard.consumers.config = self.rig.config

    def do_describe(self, words: list[str]) -> list[str]:
        if self.rig.group is None:
            return super().do_describe(words)
        group = self.rig.shard.describe_consumer_group("g")
        head = f"{group.group_state} epoch={group.group_epoch} target={group.assignment_epoch} {group.assignor}"
        lines = [head]
        for member in group.members:
            has = {each.topic_id: each.partitions for each in member.assignment}
            shall = {each.topic_id: each.partitions for each in member.target_assignment}
            kind = " classic" if member.is_classic else ""
            instance = "" if member.instance_id is None else f" instance={member.instance_id}"
            lines.append(
                f"  {self.name(member.member_id)}{kind}{instance}: epoch={member.member_epoch} "
                f"has {self.shown(has)}, shall have {self.shown(shall)}"
            )
        return lines

    # What happened

    def hear(self, token: Hashable) -> None:
        super().hear(token)
        name, response = self.askers[token][0], self.rig.responses[token]
        match response:
            case ConsumerHeartbeatResponse() if token not in self.deaf:
                self.take_in(self.consumers[name], response)
            case SyncResponse(error=ErrorCode.NONE):
                self.classic_owned[name] = read_assignment(response.assignment).partitions
            case JoinResponse(error=ErrorCode.UNKNOWN_MEMBER_ID):
                self.classic_owned.pop(name, None)

    def take_in(self, consumer: Consumer, response: ConsumerHeartbeatResponse) -> None:
        if response.error in FENCED:
            consumer.forget()
        if response.error is not ErrorCode.NONE or response.member_epoch < 0:
            return
        consumer.epoch = response.member_epoch
        if response.assignment is not None:
            consumer.assigned = dict(response.assignment)
            consumer.owned = {
                topic_id: tuple(sorted({*consumer.owned.get(topic_id, ()), *consumer.assigned.get(topic_id, ())}))
                for topic_id in {**consumer.owned, **consumer.assigned}
            }

    def response(self, name: str, method: str, response: Any) -> Iterator[str]:
        match response:
            case ConsumerHeartbeatResponse(error=ErrorCode.NONE, member_epoch=epoch) if epoch < 0:
                yield f"{name}: left"
            case ConsumerHeartbeatResponse(error=ErrorCode.NONE):
                has = "" if response.assignment is None else f" has {self.shown(response.assignment)}"
                yield f"{name}: epoch={response.member_epoch}{has}{self.to_give_up(name, response)}"
            case ConsumerHeartbeatResponse():
                yield f"{name}: {response.error.name}"
            case OffsetCommitResponse():
                yield f"{name}: " + " ".join(
                    f"{each.topic}/{each.partition}={each.error.name}" for each in response.partitions
                )
            case _:
                yield from super().response(name, method, response)

    def to_give_up(self, name: str, response: ConsumerHeartbeatResponse) -> str:
        """What the consumer still works on and was not given again."""
        if response.assignment is None:
            return ""
        owned = self.consumers[name].owned
        left = {
            topic_id: tuple(each for each in partitions if each not in response.assignment.get(topic_id, ()))
            for topic_id, partitions in owned.items()
        }
        left = {topic_id: partitions for topic_id, partitions in left.items() if partitions}
        return f", gives up {self.shown(left)}" if left else ""

    def record(self, entry: Any) -> str:
        decoded = decode(entry.record) if isinstance(entry, Logged) else None
        return super().record(entry) if decoded is None else f"log: {self.told(decoded)}"

    def told(self, record: GroupRecord) -> str:
        match record:
            case EpochRecord(_, None):
                return "group deleted"
            case EpochRecord(_, epoch) if epoch is not None:
                return f"group epoch={epoch.epoch}"
            case MemberRecord(_, member_id, None):
                return f"{self.name(member_id)} is no member"
            case MemberRecord(_, member_id, said) if said is not None:
                return f"{self.name(member_id)} is a member, {wishes(said)}"
            case TargetEpochRecord(_, None):
                return "target deleted"
            case TargetEpochRecord(_, target) if target is not None:
                return f"target epoch={target.epoch}"
            case TargetRecord(_, member_id, None):
                return f"{self.name(member_id)} shall have nothing more"
            case TargetRecord(_, member_id, shall) if shall is not None:
                return f"{self.name(member_id)} shall have {self.shown(shall)}"
            case CurrentRecord(_, member_id, None):
                return f"{self.name(member_id)} has nothing more"
            case CurrentRecord(_, member_id, current) if current is not None:
                return f"{self.name(member_id)} {self.progress(current)}"
            case RegexRecord(_, regex, None):
                return f"pattern {regex} deleted"
            case RegexRecord(_, regex, resolved) if resolved is not None:
                return f"pattern {regex} = {','.join(resolved.topics) or '-'}"
            case PartitionMetadataRecord():
                return "old metadata deleted"
        raise AssertionError(record)

    def progress(self, current: CurrentValue) -> str:
        gives_up = f", gives up {self.held(current.revoking)}" if current.revoking else ""
        return f"{current.state.name.lower()} epoch={current.member_epoch} has {self.held(current.assigned)}{gives_up}"

    def held(self, holdings: Holdings) -> str:
        return self.shown({topic_id: tuple(epochs) for topic_id, epochs in holdings.items()})

    def shown(self, partitions: Any) -> str:
        return " ".join(f"{self.topic_names[topic_id]}:{numbers(of)}" for topic_id, of in partitions.items()) or "-"


def subscribed(said: dict[str, str]) -> dict[str, Any]:
    """What a consumer wants, as its heartbeat says it."""
    names = tuple(each for each in said.get("topics", "" if "pattern" in said else "foo").split(",") if each)
    return {"topic_names": names, "topic_regex": said.get("pattern", "")}


def wishes(said: MemberValue) -> str:
    """What a member says of itself, in a few words."""
    words = [f"topics={','.join(said.topic_names) or '-'}"]
    words += [f"pattern={said.topic_regex}"] if said.topic_regex else []
    words += [f"instance={said.instance_id}"] if said.instance_id is not None else []
    words += [f"assignor={said.server_assignor}"] if said.server_assignor is not None else []
    return " ".join([*words, *(["classic"] if said.classic is not None else [])])


def numbers(partitions: tuple[int, ...]) -> str:
    """`0,1`."""
    return ",".join(map(str, partitions))
