"""Runs a script about transactional ids against a shard, and says all that happened.

`script_blocks.py` has the form of a script. Commands, with producers by any name; `v1` is a producer that adds its
partitions itself and keeps its epoch, any other leaves it to the brokers and gets a new epoch with each end:

| command | meaning |
|---|---|
| `init a [v1] [id=x] [timeout=60s]` | a new process takes the id over |
| `recover a` | the same process asks for a new epoch, saying which it has |
| `add a t/0 t/1`, `verify a t/0` | partitions join the transaction; a broker asks whether they belong to it |
| `commit a`, `abort a` | the end |
| `claim a y` | from now on it says this transactional id, with the producer id and epoch that it has |
| `... lost` | at the end of any of these: the answer never arrives, so the producer knows what it knew |
| `markers arrive [t/1=ERROR]` | the brokers report on the markers under way: written, but for those named |
| `wear x 32765` | so many transactions pass that this is the id's epoch |
| `after 3s`, `failover`, `describe x`, `list` | |
| `log fails`, `log works`, `log stalls`, `log commits` | records are refused; are appended, but not yet committed |
| `producer-ids fail`, `producer-ids work` | whether there are new producer ids to be had |
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.coordination.transactions.records import TransactionStatus, decode_key, decode_value, entry_record
from ottla.coordination.transactions.requests import (
    AddPartitions,
    AddPartitionsResponse,
    EndTransaction,
    InitProducerId,
    ListFilter,
    ProducerIdResponse,
    SendMarkers,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ProducerEpoch, ProducerId, TopicPartition
from tests.scenarios.script_blocks import milliseconds, options
from tests.unit.coordination.transaction_rig import TransactionRig


@dataclass
class Producer:
    """What a producer of the script knows."""

    name: str
    transactional_id: str = "x"
    version: int = 2
    timeout_ms: int = 60_000
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class TransactionScript:
    """One run of a script."""

    def __init__(self) -> None:
        self.rig = TransactionRig()
        self.producers: dict[str, Producer] = {}
        self.askers: dict[Hashable, str] = {}
        self.deaf: set[Hashable] = set()
        self.tokens = 0

    def run(self, line: str) -> list[str]:
        """Carries a command out; what happened, in order: records, what was looked at, answers, markers, who waits."""
        command, *words = line.split()
        logged, answered, sent = len(self.rig.log), set(self.rig.answers), list(self.rig.markers)
        asked = set(self.askers)
        perform: Callable[[list[str]], list[str] | None] = getattr(self, "do_" + command.replace("-", "_"))
        told = perform(words) or []
        happened = [record(each) for each in self.rig.log[logged:]] + told
        happened += [self.hear(token) for token in self.rig.answers if token not in answered]
        happened += [markers(each) for each in self.rig.markers if each not in sent]
        waiting = [token for token in self.askers if token not in asked and token not in self.rig.answers]
        return happened + [f"{self.askers[token]}: waits" for token in waiting]

    # What producers and brokers ask

    def do_init(self, words: list[str]) -> None:
        said = options(words[1:])
        producer = self.producers[words[0]] = Producer(
            words[0],
            transactional_id=said.get("id", "x"),
            version=1 if "v1" in said else 2,
            timeout_ms=milliseconds(said.get("timeout", "60s")),
        )
        self.ask(producer, words, "init_producer_id", initialisation(producer))

    def do_recover(self, words: list[str]) -> None:
        producer = self.producers[words[0]]
        self.ask(producer, words, "init_producer_id", initialisation(producer))

    def do_add(self, words: list[str]) -> None:
        self.ask(self.producers[words[0]], words, "add_partitions", self.addition(words))

    def do_verify(self, words: list[str]) -> None:
        self.ask(self.producers[words[0]], words, "add_partitions", replace(self.addition(words), verify_only=True))

    def addition(self, words: list[str]) -> AddPartitions:
        producer = self.producers[words[0]]
        return AddPartitions(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            partitions=tuple(partition(word) for word in words[1:] if word != "lost"),
            client_version=client_version(producer),
        )

    def do_commit(self, words: list[str]) -> None:
        self.end(words, commit=True)

    def do_abort(self, words: list[str]) -> None:
        self.end(words, commit=False)

    def end(self, words: list[str], *, commit: bool) -> None:
        producer = self.producers[words[0]]
        request = EndTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            commit=commit,
            client_version=client_version(producer),
        )
        self.ask(producer, words, "end_transaction", request)

    def do_claim(self, words: list[str]) -> None:
        self.producers[words[0]].transactional_id = words[1]

    def ask(self, producer: Producer, words: list[str], method: str, request: Any) -> None:
        self.tokens += 1
        self.askers[self.tokens] = producer.name
        if words[-1] == "lost":
            self.deaf.add(self.tokens)
        self.rig.run(getattr(self.rig.shard, method)(request, self.rig.now_ms, self.tokens))

    def do_markers(self, words: list[str]) -> None:
        errors = {partition(where): ErrorCode[name] for where, name in options(words[1:]).items()}
        for sent in list(self.rig.markers):
            self.rig.written(sent, {each: errors.get(each, ErrorCode.NONE) for each in sent.partitions})

    # What the world does

    def do_wear(self, words: list[str]) -> None:
        entry = self.rig.shard.entries[words[0]]
        worn = replace(
            entry,
            producer_epoch=ProducerEpoch(int(words[1])),
            status=TransactionStatus.EMPTY,
            start_ms=NO_TIMESTAMP,
        )
        made = entry_record(words[0], worn, self.rig.settings.transaction_version)
        self.rig.log.append(made)
        self.rig.shard.replay(made)
        self.rig.commit()
        for producer in self.producers.values():
            if (producer.producer_id, producer.epoch) == (entry.producer_id, entry.producer_epoch):
                producer.epoch = worn.producer_epoch

    def do_after(self, words: list[str]) -> None:
        end_ms = self.rig.now_ms + milliseconds(words[0])
        while (deadline_ms := self.rig.shard.next_deadline()) is not None and deadline_ms <= end_ms:
            self.rig.tick(max(deadline_ms - self.rig.now_ms, 0))
        self.rig.now_ms = end_ms

    def do_failover(self, words: list[str]) -> None:
        self.rig.fail_over()
        self.askers = {token: name for token, name in self.askers.items() if token in self.rig.answers}

    def do_log(self, words: list[str]) -> None:
        match words:
            case ["fails" | "works" as state]:
                self.rig.appends_fail = state == "fails"
            case ["stalls" | "commits" as state]:
                self.rig.auto_commit = state == "commits"
                self.rig.run([])

    def do_producer_ids(self, words: list[str]) -> None:
        self.rig.producer_ids_fail = words == ["fail"]

    # Looking

    def do_describe(self, words: list[str]) -> list[str]:
        found = self.rig.shard.describe_transaction(words[0])
        if found.error is not ErrorCode.NONE:
            return [f"{words[0]}: {found.error.name}"]
        lacking = "".join(f" {shown(each)}" for each in found.partitions)
        return [f"{words[0]}: {found.state} producer={found.producer_id} epoch={found.producer_epoch}{lacking}"]

    def do_list(self, words: list[str]) -> list[str]:
        listed = self.rig.shard.list_transactions(ListFilter(), self.rig.now_ms).transactions
        return [f"{each.transactional_id}: {each.state} producer={each.producer_id}" for each in listed]

    # What happened

    def hear(self, token: Hashable) -> str:
        """A producer takes in what it was answered."""
        name = self.askers[token]
        producer, response = self.producers[name], self.rig.answers[token]
        is_lost = token in self.deaf
        lost = ", which is lost" if is_lost else ""
        match response:
            case AddPartitionsResponse(errors=errors):
                outcomes = {error for _, error in errors}
                if len(outcomes) == 1:
                    return f"{name}: {outcomes.pop().name}{lost}"
                return f"{name}: " + " ".join(f"{shown(where)}={error.name}" for where, error in errors) + lost
            case ProducerIdResponse(error=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch):
                if producer_id == NO_PRODUCER_ID:
                    return f"{name}: NONE{lost}"
                if not is_lost:
                    producer.producer_id, producer.epoch = producer_id, epoch
                return f"{name}: is producer={producer_id} epoch={epoch}{lost}"
        return f"{name}: {response.error.name}{lost}"


def initialisation(producer: Producer) -> InitProducerId:
    """What a producer says to have its id, or a new epoch of it."""
    return InitProducerId(
        transactional_id=producer.transactional_id,
        timeout_ms=producer.timeout_ms,
        expected_producer_id=producer.producer_id,
        expected_producer_epoch=producer.epoch,
    )


def client_version(producer: Producer) -> int:
    """How the producer's requests are marked."""
    return 2 if producer.version == 2 else 0


def record(logged: CoordinatorRecord) -> str:
    """A record of the log, in a line."""
    name = decode_key(logged.key)
    if logged.value is None:
        return f"log: {name} forgotten"
    entry = decode_value(logged.value)
    rotates = "" if entry.next_producer_id == NO_PRODUCER_ID else f" next={entry.next_producer_id}"
    where = "".join(f" {shown(each)}" for each in entry.partitions)
    who = f"producer={entry.producer_id} epoch={entry.producer_epoch}"
    return f"log: {name} {entry.status.wire_name} {who}{rotates}{where}"


def markers(sent: SendMarkers) -> str:
    """Markers on their way, in a line."""
    outcome = "commit" if sent.commit else "abort"
    where = " ".join(shown(each) for each in sent.partitions)
    by = f"coordinator={sent.coordinator_epoch}"
    return f"markers: {outcome} producer={sent.producer_id} epoch={sent.producer_epoch} {by} to {where}"


def partition(word: str) -> TopicPartition:
    """`t/0`."""
    topic, _, index = word.partition("/")
    return TopicPartition(topic, int(index))


def shown(where: TopicPartition) -> str:
    """`t/0`."""
    return f"{where.topic}/{where.partition}"
