"""Expired records are counted, and moved to the dead-letter topic once."""

from ottla.model.dead_letters import DeadLetter, Origin, read_dead_letter
from ottla.model.ids import TimestampMs, TopicPartition
from ottla.model.queue_names import TTL_MS
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.kinds.expiry_queue import ExpiryQueue
from ottla.queues.kinds.kind import DeadLetter as VerdictDeadLetter
from ottla.queues.kinds.kind import Drop
from ottla.queues.progress_records import Action
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.expiry import NO_TTL
from ottla.records.record import Record


def test_what_expired_before_is_not_counted_again() -> None:
    records = [Record(5, 1000, None, b"a", ((TTL_MS, b"10"),)), Record(7, 1000, None, b"b", ((TTL_MS, b"20"),))]
    batch = Batch(build_batch(records))
    counting = ExpiryQueue(TopicPartition("t", 0), NO_TTL, None, since=TimestampMs(1010))
    found = counting.read(batch)
    assert ([1020], [7]) == (list(found.due_ms), list(found.offsets))
    assert Drop() == counting.uniform_verdict()
    later = counting.read(Batch(build_batch(records[:1])))
    assert ([], []) == (list(later.due_ms), list(later.offsets))


def test_dead_letters_say_where_they_were() -> None:
    place = DeadLetterPlace(TopicPartition("dead", 1))
    queue = ExpiryQueue(TopicPartition("t", 3), NO_TTL, lambda: place, since=TimestampMs(0))
    assert (place.sink, VerdictDeadLetter("expired")) == (queue.dead_letter_sink(), queue.uniform_verdict())
    letter = read_dead_letter(queue.added_headers(Action.DEAD, "expired", Record(7, 1000, None, b"a")))
    assert DeadLetter(origin=Origin(topic="t", partition=3, offset=7), reason="expired") == letter


def test_without_a_dead_letter_topic_headers_are_those_of_kip_1191() -> None:
    queue = ExpiryQueue(TopicPartition("t", 1), NO_TTL, None, since=TimestampMs(0))
    headers = queue.added_headers(Action.DEAD, "expired", Record(5, 0, None, b"v", ()))
    assert ("__dlq.errors.offset", b"5") in headers
