"""The verdicts about records that were handed back, and the headers of those that are dead."""

from array import array

from ottla.model.dead_letters import DeadLetterHeaders, read_dead_letter
from ottla.model.ids import Offset, TimestampMs, TopicPartition
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.gate import Gate
from ottla.queues.kinds.kind import DeadLetter, Deliver, Later
from ottla.queues.kinds.retry_admission import RetryAdmission
from ottla.queues.kinds.retry_queue import RetryQueue, group_of
from ottla.queues.progress_records import Action
from ottla.queues.settled_offsets import SettledOffsets
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.record import Headers, Record

NOW = 1_700_000_000_000
RULES = RetryAdmission(secret=b"topic id", backoff_ms=1000, backoff_max_ms=5000, jitter=0.0, attempts_max=3)
BACK = Deliver(TopicPartition("orders.billing.redelivery", 3))
SINK = TopicPartition("dlq.orders", 1)
REJECT: Headers = (("ottla.retry.reject", b"never"), ("ottla.retry.exception", b"shop.Error"))


def parked(*headers: Headers) -> Batch:
    records = [Record(10 + at, NOW, b"k", b"v", some) for at, some in enumerate(headers)]
    return Gate(RULES.admit).admit(Batch(bytearray(build_batch(records))), TimestampMs(NOW))


def queue(style: DeadLetterHeaders = DeadLetterHeaders.KIP1191) -> RetryQueue:
    return RetryQueue(TopicPartition("orders", 3), "billing", lambda: DeadLetterPlace(SINK, style))


def test_records_are_due_when_the_gate_said_and_return_to_their_partition() -> None:
    kind = queue()
    found = kind.read(parked((), ()))
    kind.apply(found)
    assert (array("q", [NOW + 1000] * 2), array("q", [10, 11])) == (found.due_ms, found.offsets)
    assert (BACK, SINK) == (kind.uniform_verdict(), kind.dead_letter_sink())


def test_dead_records_are_dead_until_the_log_start_passed_them() -> None:
    kind, batch = queue(), parked((), REJECT, ())
    found = kind.read(batch)
    assert BACK == kind.uniform_verdict(), "a transaction may still be aborted"
    kind.apply(found)
    assert None is kind.uniform_verdict()
    assert [BACK, DeadLetter(""), BACK] == [kind.verdict(record, NOW) for record in decode_records(batch)]
    kind.on_start(Offset(11))
    assert None is kind.uniform_verdict()
    kind.on_start(Offset(12))
    assert BACK == kind.uniform_verdict()


def test_dead_letters_tell_their_story_in_both_styles() -> None:
    record = decode_records(parked((*REJECT, ("ottla.retry.origin", b"orders/3/77"))))[0]
    for style in DeadLetterHeaders:
        letter = read_dead_letter(queue(style).added_headers(Action.DEAD, "", record))
        assert letter is not None
        assert ("orders/3/77", "never", "shop.Error", "billing", 1) == (
            str(letter.origin), letter.reason, letter.exception, letter.group, letter.attempts,
        )  # fmt: skip
    assert (True, False) == (queue().is_stamping(Action.DEAD), queue().is_stamping(Action.DELIVER))


def test_a_letter_of_a_plain_client_has_what_is_known() -> None:
    record = decode_records(parked((("ottla.retry.attempt", b"7"),)))[0]
    letter = read_dead_letter(queue().added_headers(Action.DEAD, "", record))
    assert letter is not None
    assert ("orders/3/", None) == (str(letter.origin), letter.attempts)
    refused = read_dead_letter(queue().added_headers(Action.DEAD, "too large", record))
    assert refused is not None
    assert "too large" == refused.reason


def ordered(*keys: bytes | None) -> tuple[RetryQueue, list[Record], SettledOffsets]:
    """A queue that keeps the order of keys, its records, and the offsets that are settled."""
    kind = RetryQueue(TopicPartition("orders", 3), "billing", lambda: DeadLetterPlace(SINK), lambda: True)
    settled = SettledOffsets(0)
    kind.begin(settled)
    batch = Gate(RULES.admit).admit(
        Batch(bytearray(build_batch([Record(10 + at, NOW, key, b"v") for at, key in enumerate(keys)]))),
        TimestampMs(NOW),
    )
    kind.apply(kind.read(batch))
    return kind, decode_records(batch), settled


def test_a_record_waits_for_earlier_ones_of_its_key() -> None:
    kind, (first, second, other, without, third), _ = ordered(b"a", b"a", b"b", None, b"a")
    assert None is kind.uniform_verdict()
    waits = Later(NOW + 1000)
    assert [waits, waits, BACK, BACK] == [kind.verdict(each, NOW) for each in (third, second, other, without)]
    assert Later(NOW + 5001) == kind.verdict(second, NOW + 5000), "the first one is due too, and comes first"
    assert [BACK, waits, BACK, BACK] == [kind.verdict(each, NOW) for each in (first, third, second, third)]
    assert BACK == kind.uniform_verdict()


def test_after_a_restart_settled_records_hold_up_nothing() -> None:
    kind, (first, second), settled = ordered(b"a", b"a")
    settled.settle(first.offset)
    assert (BACK, BACK) == (kind.verdict(second, NOW), kind.uniform_verdict())


def test_the_group_in_the_name_of_a_companion() -> None:
    assert ("billing", "b.c", "retry") == (
        group_of("orders.billing.retry", "orders"),
        group_of("a.b.c.retry", "a"),
        group_of("a.b.retry.retry", "a.b"),
    )
