"""The options of share consumers, and what they refuse before they connect."""

import pytest

from ottla import AcknowledgeType, ShareConsumer, TopicPartition
from ottla.client.arguments import ArgumentError
from ottla.client.options import OptionError
from ottla.model.errors import MisuseError


def test_a_group_is_required() -> None:
    with pytest.raises(OptionError, match="needs a group_id"):
        ShareConsumer("t")


def test_unknown_options_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match="did you mean share_acquire_mode"):
        ShareConsumer("t", group_id="g", share_aquire_mode="record_limit")  # type: ignore[call-arg]


def test_modes_are_names() -> None:
    with pytest.raises(OptionError, match="'implicit', 'explicit'"):
        ShareConsumer("t", group_id="g", share_acknowledgement_mode="none")  # type: ignore[arg-type]


def test_topics_are_names() -> None:
    with pytest.raises(MisuseError, match="topic names"):
        ShareConsumer("", group_id="g")


def test_misuse_is_refused_without_a_broker() -> None:
    with ShareConsumer(group_id="g") as consumer:
        with pytest.raises(MisuseError, match="not subscribed"):
            consumer.poll()
        with pytest.raises(MisuseError, match='needs share_acknowledgement_mode="explicit"'):
            consumer.acknowledge_offsets(TopicPartition("t", 0), [1])
        with pytest.raises(ArgumentError, match="type must be AcknowledgeType"):
            consumer.acknowledge_offsets(TopicPartition("t", 0), [1], 1)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="is closed"):
        consumer.poll()


def test_the_types_are_those_of_the_protocol() -> None:
    assert [1, 2, 3, 4] == [AcknowledgeType[name] for name in ("ACCEPT", "RELEASE", "REJECT", "RENEW")]
