"""What the gate accepts of half messages, and the verdicts about them."""

from array import array
from collections.abc import Sequence

import pytest

from ottla.model.dead_letters import read_dead_letter
from ottla.model.errors import InvalidRecordError, OpenHalfMessagesError
from ottla.model.ids import Offset, TimestampMs, TopicPartition
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.gate import Gate
from ottla.queues.kinds import half_queue
from ottla.queues.kinds.half_admission import HalfAdmission
from ottla.queues.kinds.half_queue import HalfQueue, HalfSettings
from ottla.queues.kinds.kind import Ask, Consequence, DeadLetter, Deliver, Drop
from ottla.queues.progress_records import Action, Plan, Settled
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.record import Headers, Record

NOW = 1_700_000_000_000
TARGET = TopicPartition("orders", 1)
QUESTIONS = TopicPartition("orders.half-checks", 1)
NEXT = TopicPartition("orders.half", 2)
SINK = TopicPartition("dlq.orders", 1)
NO_DECISION = DeadLetter("half message: no decision after 2 checks")
REPEATED = DeadLetter("half message: repeated id; another one with this ottla.half.id was waiting for its decision")


def half(id: str, state: str, **others: str) -> Headers:
    more = tuple((f"ottla.half.{name.replace('_', '-')}", value.encode()) for name, value in others.items())
    return (("ottla.half.id", id.encode()), ("ottla.half.state", state.encode()), *more)


class Log:
    """A queue and the records that it has read."""

    def __init__(self, *, partitions: int = 4, open_max: int = 1000) -> None:
        self.open_max = open_max
        self.kind = HalfQueue(TARGET, lambda: DeadLetterPlace(SINK), lambda: HalfSettings(100, 2, partitions))
        self.records: dict[int, Record] = {}
        self.end = 10

    def gated(self, *headers: Headers, knows_nothing: bool = False, is_handed_on: bool = True) -> Batch:
        kind = self.kind
        rules = HalfAdmission(
            check_after_ms=500,
            is_enabled=True,
            open_max=self.open_max,
            open_count=0 if knows_nothing else kind.open_count,
            is_open=(lambda _: False) if knows_nothing else kind.is_open,
            is_known=(lambda _: False) if knows_nothing else kind.is_known,
            is_handed_on=is_handed_on,
        )
        records = [Record(self.end + at, NOW, b"k", b"v", some) for at, some in enumerate(headers)]
        batch = Gate(rules.admit).admit(Batch(bytearray(build_batch(records))), TimestampMs(NOW))
        return batch

    def add(self, *headers: Headers, knows_nothing: bool = False) -> Consequence:
        batch = self.gated(*headers, knows_nothing=knows_nothing)
        self.records |= {record.offset: record for record in decode_records(batch)}
        self.end += batch.count
        return self.kind.apply(self.kind.read(batch))

    def verdict(self, offset: int) -> object:
        return self.kind.verdict(self.records[offset], NOW)

    def planned(self, action: Action, offset: int, detail: str = "") -> None:
        self.kind.on_progress(Plan("x", 0, 1, 0, 0, (offset, 1), action, detail, NOW + 100))


def faults(log: Log, *headers: Headers) -> Sequence[tuple[int, str]]:
    with pytest.raises(InvalidRecordError) as caught:
        log.gated(*headers)
    return caught.value.record_errors


def test_half_messages_are_due_when_their_producer_is_asked() -> None:
    log = Log()
    found = log.kind.read(
        log.gated(half("a", "prepare"), half("b", "prepare", check_after_ms="7"), half("a", "commit"))
    )
    assert (array("q", [NOW + 500, NOW + 7]), array("q", [10, 11])) == (found.due_ms, found.offsets)


def test_the_gate_names_the_header_of_each_invalid_record() -> None:
    log = Log()
    log.add(half("open", "prepare"))
    good = half("a", "prepare")
    found = faults(log, good, (), half("open", "prepare"), good, half("c", "what"))
    assert [1, 2, 3, 4] == [index for index, _ in found]
    names = [text.removeprefix("header ").split(":")[0].split()[0] for _, text in found]
    assert [f"ottla.half.{name}" for name in ("id", "id", "id", "state")] == names


def test_an_id_is_free_after_its_decision_in_the_same_batch() -> None:
    log = Log()
    log.add(half("a", "prepare"))
    consequence = log.add(half("a", "commit"), half("a", "prepare"), half("a", "rollback"))
    assert ([10, 12], ()) == (list(consequence.due_now), tuple(consequence.contradictions))
    assert (Deliver(TARGET), Drop()) == (log.verdict(10), log.verdict(12))


def test_half_messages_beyond_the_limit_are_refused_until_others_are_decided() -> None:
    log = Log(open_max=3)
    log.add(half("a", "prepare"))
    # A batch is accepted or refused as a whole: the last one may exceed the limit.
    log.add(half("b", "prepare"), half("c", "prepare"), half("d", "prepare"))
    for refused in ([half("e", "prepare")], [half("a", "commit"), half("e", "prepare"), half("f", "prepare")]):
        with pytest.raises(OpenHalfMessagesError, match=r"4 half messages .*ottla\.half\.open\.max=3"):
            log.gated(*refused)
    # Decisions are always accepted, and so is a batch that closes as many as it opens.
    log.add(half("unknown", "commit"), half("a", "commit"), half("e", "prepare"))
    assert 4 == log.kind.open_count
    log.add(half("b", "rollback"), half("c", "commit"))
    log.add(half("f", "prepare"))
    assert 3 == log.kind.open_count


def test_the_first_decision_counts() -> None:
    log = Log()
    log.add(half("a", "prepare"), half("b", "prepare"))
    assert [10] == list(log.add(half("a", "commit")).due_now)
    assert Consequence([], []) == log.add(half("a", "commit"))
    (why,) = log.add(half("a", "rollback")).contradictions
    assert "half message 'a' is committed; the decision at offset 14 says rolled back" == why
    assert Deliver(TARGET) == log.verdict(10)


def test_questions_are_counted_by_the_log_and_end_with_a_dead_letter() -> None:
    log = Log()
    log.add(half("a", "prepare"))
    assert [Ask(QUESTIONS, "1", NOW + 100)] * 2 == [log.verdict(10), log.verdict(10)]
    log.planned(Action.ASK, 10, "1")
    assert Ask(QUESTIONS, "2", NOW + 100) == log.verdict(10)
    log.planned(Action.ASK, 10, "2")
    assert NO_DECISION == log.verdict(10)
    # From now on it is too late, whether the dead letter is planned or not.
    (why,) = log.add(half("a", "commit")).contradictions
    assert "is dead" in why
    log.planned(Action.DEAD, 10)
    assert (False, True) == (log.kind.is_open(b"a"), log.kind.is_known(b"a"))


def test_a_dead_letter_of_an_earlier_leader_closes_its_id() -> None:
    log = Log()
    log.add(half("a", "prepare"))
    log.planned(Action.DEAD, 10)
    assert not log.kind.is_open(b"a")
    assert 1 == len(log.add(half("a", "commit")).contradictions)


def test_a_repeated_id_that_passed_the_gate_is_dead_and_holds_the_first_one() -> None:
    log = Log()
    log.add(half("a", "prepare"))
    assert [11] == list(log.add(half("a", "prepare"), knows_nothing=True).due_now)
    assert REPEATED == log.verdict(11)
    log.add(half("a", "commit"))
    log.planned(Action.DELIVER, 10)
    assert 10 == log.kind.needed_from(), "without the first one, it would be delivered too"
    log.planned(Action.DEAD, 11)
    assert None is log.kind.needed_from()


def test_a_decision_without_its_half_message_goes_round() -> None:
    log = Log()
    log.add(half("x", "commit"), half("y", "rollback", hops="2"), half("z", "commit", hops="3"))
    unknown = Drop(is_noted=True, why="no partition knows a half message with the id 'z'")
    assert [Deliver(NEXT), Deliver(NEXT), unknown] == [log.verdict(offset) for offset in (10, 11, 12)]
    first = dict(log.kind.added_headers(Action.DELIVER, "", log.records[10]))
    second = dict(log.kind.added_headers(Action.DELIVER, "", log.records[11]))
    due = str(NOW).encode()
    assert {"ottla.half.state": b"commit", "ottla.half.hops": b"1", "ottla.due-ms": due} == first
    assert {"ottla.half.state": b"rollback", "ottla.half.hops": b"3", "ottla.due-ms": due} == second
    alone = Log(partitions=1)
    alone.add(half("z", "commit"))
    assert unknown == alone.verdict(10)


def test_a_client_cannot_keep_its_decision_from_going_round() -> None:
    log = Log()
    for hops in ("99", "x"):
        (record,) = decode_records(log.gated(half("x", "commit", hops=hops), is_handed_on=False))
        assert "ottla.half.hops" not in dict(record.headers)


def test_a_parked_decision_that_found_its_half_message_does_not_go_round() -> None:
    log = Log()
    log.add(half("a", "prepare"))
    assert [10] == list(log.add(half("a", "commit"), knows_nothing=True).due_now)
    assert Drop(is_noted=True) == log.verdict(11)
    log.planned(Action.DELIVER, 10)
    assert 10 == log.kind.needed_from(), "without its half message, it would go round when the log is read again"
    log.kind.on_progress(Settled((11, 1)))
    assert None is log.kind.needed_from()


def test_decided_ids_are_forgotten_with_the_log_and_beyond_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_queue, "DECIDED_MAX", 2)
    log = Log()
    for id in "abc":
        log.add(half(id, "prepare"), half(id, "commit"))
    assert [False, True, True] == [log.kind.is_known(id) for id in (b"a", b"b", b"c")]
    log.kind.on_start(Offset(15))
    assert [False, True] == [log.kind.is_known(id) for id in (b"b", b"c")]


def test_questions_and_dead_letters_say_what_they_are() -> None:
    log = Log()
    log.add(half("a", "prepare"))
    record = log.records[10]
    assert (("ottla.half.checks", b"3"),) == log.kind.added_headers(Action.ASK, "3", record)
    assert () == log.kind.added_headers(Action.DELIVER, "", record)
    story = read_dead_letter(log.kind.added_headers(Action.DEAD, "why", record))
    assert story is not None
    assert ("why", "orders", 1) == (story.reason, story.origin.topic, story.origin.partition)
