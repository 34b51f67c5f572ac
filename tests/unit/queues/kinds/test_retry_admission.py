"""The gate of retry companions: counted attempts, tokens, backoff, and what makes a record a dead letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import InvalidRecordError
from ottla.model.ids import TimestampMs
from ottla.queues.gate import Gate
from ottla.queues.kinds.retry_admission import CHANGED_COUNT, WAITS_MAX, RetryAdmission
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.record import Headers, Record

NOW = TimestampMs(1_700_000_000_000)
RULES = RetryAdmission(secret=b"topic id", backoff_ms=1000, backoff_max_ms=5000, jitter=0.0, attempts_max=3)
REASON = ("ottla.retry.reason", b"no stock")


def admitted(*headers: Headers, rules: RetryAdmission = RULES, now: int = NOW) -> list[dict[str, bytes | None]]:
    records = [Record(at, NOW, b"k", b"v", some) for at, some in enumerate(headers)]
    batch = Gate(rules.admit).admit(Batch(bytearray(build_batch(records))), TimestampMs(now))
    return [dict(record.headers) for record in decode_records(batch)]


def handed_back(headers: dict[str, bytes | None], **changes: bytes | None) -> Headers:
    """As a client sends the record that it got, with some of the headers changed, or left out (None)."""
    changed = {f"ottla.{name.replace('_', '.')}": value for name, value in changes.items()}
    changed = {name.replace("due.ms", "due-ms"): value for name, value in changed.items()}
    return tuple((name, value) for name, value in {**headers, **changed}.items() if value is not None)


def test_attempts_are_counted_and_the_backoff_doubles_up_to_its_limit() -> None:
    (first,) = admitted((("own", b"1"), REASON))
    assert {"own": b"1", REASON[0]: REASON[1], "ottla.retry.attempt": b"1", "ottla.due-ms": b"%d" % (NOW + 1000)} == {
        name: value for name, value in first.items() if name != "ottla.retry.token"
    }
    (second,) = admitted(handed_back(first))
    (third,) = admitted(handed_back(second))
    assert [b"2", b"%d" % (NOW + 2000), b"3", b"%d" % (NOW + 4000)] == [
        each[name] for each in (second, third) for name in ("ottla.retry.attempt", "ottla.due-ms")
    ]
    assert 5000 == RULES.backoff(4, 0) == RULES.backoff(2**40, 0)
    assert b"1" == third["own"]


def test_after_the_last_attempt_a_record_is_dead_with_its_reason() -> None:
    record: Headers = (REASON,)
    for _ in range(3):
        (back,) = admitted(record)
        assert "ottla.dead" not in back
        record = handed_back(back)
    (dead,) = admitted(record, now=NOW + 9)
    assert (b"no stock", b"4", b"%d" % (NOW + 9)) == (
        dead["ottla.dead"], dead["ottla.retry.attempt"], dead["ottla.due-ms"],
    )  # fmt: skip
    (dead,) = admitted(handed_back({name: value for name, value in back.items() if name != REASON[0]}))
    assert b"handed back 4 times" == dead["ottla.dead"]


def test_a_rejected_record_is_dead_at_once() -> None:
    reject = ("ottla.retry.reject", b"never")
    found = admitted((reject,), (("ottla.retry.reject", b""), REASON), (("ottla.retry.reject", b""),))
    assert [b"never", b"no stock", b"rejected by a consumer"] == [each["ottla.dead"] for each in found]
    assert {b"%d" % NOW} == {each["ottla.due-ms"] for each in found}


@pytest.mark.parametrize(
    "changes",
    [
        {"retry_attempt": b"0"},
        {"retry_attempt": b"2"},
        {"retry_attempt": b"-1"},
        {"retry_attempt": b"99999999999999999999999"},
        {"retry_attempt": b"one"},
        {"retry_attempt": None},
        {"retry_token": None},
        {"retry_token": b""},
        {"retry_token": b"\xff" * 32},
        {"due_ms": None},
        {"due_ms": b"1"},
    ],
    ids=str,
)
def test_a_count_that_was_changed_makes_a_dead_letter(changes: dict[str, bytes | None]) -> None:
    (back,) = admitted(())
    (dead,) = admitted(handed_back(back, **changes))
    assert (CHANGED_COUNT.encode(), None, None) == (
        dead["ottla.dead"], dead.get("ottla.retry.attempt"), dead.get("ottla.retry.token"),
    )  # fmt: skip


def test_the_token_of_another_topic_does_not_count() -> None:
    other = RetryAdmission(secret=b"other", backoff_ms=1000, backoff_max_ms=5000, jitter=0.0, attempts_max=3)
    (back,) = admitted((), rules=other)
    assert CHANGED_COUNT.encode() == admitted(handed_back(back))[0]["ottla.dead"]


def test_clients_cannot_declare_records_dead_and_without_broker_headers_it_is_the_first_time() -> None:
    (back,) = admitted((("ottla.dead", b"x"), ("ottla.due-ms", b"1"), ("ottla.origin", b"x")))
    assert (b"1", False, False) == (back["ottla.retry.attempt"], "ottla.dead" in back, "ottla.origin" in back)


@pytest.mark.parametrize("origin", [b"", b"orders", b"orders/1", b"orders/x/3", b"orders/1/-3", b"\xff/1/3"])
def test_an_origin_that_makes_no_sense_is_refused(origin: bytes) -> None:
    with pytest.raises(InvalidRecordError, match=r"header ottla\.retry\.origin") as refused:
        admitted((), (("ottla.retry.origin", origin),))
    assert [1] == [index for index, _ in refused.value.record_errors]


ORDERED = RetryAdmission(
    secret=b"topic id", backoff_ms=1000, backoff_max_ms=5000, jitter=0.0, attempts_max=3, keeps_key_order=True
)
BEHIND = ("ottla.retry.behind", b"true")


def test_a_record_that_only_stays_behind_another_is_not_an_attempt() -> None:
    (waits,) = admitted((BEHIND,), rules=ORDERED)
    assert (b"0", b"%d" % (NOW + 1000), False) == (
        waits["ottla.retry.attempt"], waits["ottla.due-ms"], BEHIND[0] in waits,
    )  # fmt: skip
    (tried,) = admitted(handed_back(waits), rules=ORDERED)
    (waits_again,) = admitted((*handed_back(tried), BEHIND), rules=ORDERED)
    assert [b"1", b"1"] == [each["ottla.retry.attempt"] for each in (tried, waits_again)]
    assert b"1" == admitted((BEHIND,))[0]["ottla.retry.attempt"], "only if the topic keeps the order of keys"


def test_staying_behind_has_a_limit_that_clients_cannot_change() -> None:
    record: Headers = ()
    for _ in range(WAITS_MAX):
        (back,) = admitted((*record, BEHIND), rules=ORDERED)
        record = handed_back(back)
    assert b"0" == back["ottla.retry.attempt"]
    assert b"1" == admitted((*record, BEHIND), rules=ORDERED)[0]["ottla.retry.attempt"]
    fewer = b"0." + (back["ottla.retry.token"] or b"").partition(b".")[2]
    (dead,) = admitted((*handed_back(back, retry_token=fewer), BEHIND), rules=ORDERED)
    assert CHANGED_COUNT.encode() == dead["ottla.dead"]


def test_behind_is_true_or_false() -> None:
    with pytest.raises(InvalidRecordError, match=r"header ottla\.retry\.behind: 'yes' is not true or false"):
        admitted((("ottla.retry.behind", b"yes"),))


@given(st.integers(1, 200), st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1), st.integers(0, 2**40))
def test_the_backoff_varies_by_the_jitter_and_no_more(
    attempt: int, first: int, more: int, jitter: float, seed: int
) -> None:
    rules = RetryAdmission(secret=b"s", backoff_ms=first, backoff_max_ms=first + more, jitter=jitter, attempts_max=5)
    whole = min(first * 2 ** (attempt - 1), first + more)
    assert whole * (1 - jitter) - 1 <= rules.backoff(attempt, seed) <= whole * (1 + jitter) + 1


def test_records_of_one_batch_do_not_return_together() -> None:
    rules = RetryAdmission(secret=b"s", backoff_ms=1000, backoff_max_ms=5000, jitter=0.5, attempts_max=5)
    due = {int(each["ottla.due-ms"] or 0) - NOW for each in admitted(*[()] * 100, rules=rules)}
    assert (True, True, True) == (len(due) > 80, min(due) < 600, max(due) > 1400)
