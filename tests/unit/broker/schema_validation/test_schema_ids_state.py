"""What is remembered about schema ids, and for how long."""

from ottla.broker.schema_validation.schema_ids_state import (
    FAILED_SECONDS,
    REFUSED_IDS_MAX,
    REFUSED_SECONDS,
    VALID_IDS_MAX,
    VALID_RETRY_SECONDS,
    VALID_SECONDS,
    Failed,
    Known,
    Question,
    Refused,
    SchemaIdsState,
)
from ottla.metadata.configs.schema_settings import SubjectStrategy


def question(number: int, *, is_key: bool = False) -> Question:
    return Question(b"\0" + number.to_bytes(4, "big"), "t", is_key, SubjectStrategy.TOPIC)


def test_valid_ids_stay_valid() -> None:
    state = SchemaIdsState()
    state.on_answer(question(1), Known.VALID, 0.0)
    assert Known.VALID is state.verdict(question(1), 1e9)
    assert None is state.verdict(question(1, is_key=True), 0.0)


def test_valid_ids_are_asked_again_after_a_while_and_stay_valid_if_there_is_no_answer() -> None:
    state = SchemaIdsState()
    state.on_answer(question(1), Known.VALID, 0.0)
    assert [False, True] == [state.is_due(question(1), now) for now in (VALID_SECONDS - 0.1, VALID_SECONDS)]
    assert not state.is_due(question(2), 1e9)
    state.on_answer(question(1), Failed("away"), 400.0)
    assert Known.VALID is state.verdict(question(1), 400.0)
    assert [False, True] == [state.is_due(question(1), 400.0 + after) for after in (29.9, VALID_RETRY_SECONDS)]
    state.on_answer(question(1), Refused("deleted"), 500.0)
    assert Refused("deleted") == state.verdict(question(1), 500.0)


def test_refused_ids_and_failures_are_asked_again_after_a_while() -> None:
    state = SchemaIdsState()
    for number, verdict, seconds in ((1, Refused("no"), REFUSED_SECONDS), (2, Failed("away"), FAILED_SECONDS)):
        state.on_answer(question(number), verdict, 10.0)
        assert verdict == state.verdict(question(number), 9.99 + seconds)
        assert None is state.verdict(question(number), 10.0 + seconds)
        state.on_answer(question(number), Known.VALID, 20.0)
        assert Known.VALID is state.verdict(question(number), 20.0)


def test_invalid_ids_do_not_displace_valid_ones() -> None:
    state = SchemaIdsState()
    state.on_answer(question(0), Known.VALID, 0.0)
    for number in range(1, VALID_IDS_MAX + REFUSED_IDS_MAX):
        state.on_answer(question(number), Refused("no"), 0.0)
    assert Known.VALID is state.verdict(question(0), 0.0)
    assert None is state.verdict(question(1), 0.0)
    assert Refused("no") == state.verdict(question(VALID_IDS_MAX + REFUSED_IDS_MAX - 1), 0.0)


def test_the_ids_used_last_are_kept() -> None:
    state = SchemaIdsState()
    for number in range(VALID_IDS_MAX):
        state.on_answer(question(number), Known.VALID, 0.0)
    assert Known.VALID is state.verdict(question(0), 0.0)
    state.on_answer(question(VALID_IDS_MAX), Known.VALID, 0.0)
    assert [Known.VALID, None] == [state.verdict(question(number), 0.0) for number in (0, 1)]
