"""What `--topic` means."""

import pytest

from ottla.operations.topic_choices import BadTopicChoiceError, parse_topic_choice


@pytest.mark.parametrize(
    ("text", "expected"),
    [("events", ("events", None)), ("events:3", ("events", (3,))), ("events:2, 0,2", ("events", (2, 0)))],
)
def test_choices_are_read(text: str, expected: tuple[str, tuple[int, ...] | None]) -> None:
    assert expected == parse_topic_choice(text)


@pytest.mark.parametrize("text", ["", ":1", "events:", "events:a", "events:1,", "events:-1", "events:1:2", "events:¹"])
def test_what_names_no_partitions_is_refused(text: str) -> None:
    with pytest.raises(BadTopicChoiceError, match="is not TOPIC or TOPIC:0,1,2"):
        parse_topic_choice(text)
