"""What configs say about a topic's queues, and which topics are companions of others."""

from ottla.client.consumer.topic_queues import TopicQueue, topic_queue, without_companions
from ottla.model.dead_letters import DeadLetterHeaders


def test_configs_of_a_topic_with_retry() -> None:
    configs = {
        "ottla.retry.enable": "true",
        "errors.deadletterqueue.topic.name": "dead",
        "ottla.deadletter.headers": "spring",
    }
    expected = TopicQueue(has_retry=True, dead_letter_topic="dead", dead_letter_headers=DeadLetterHeaders.SPRING)
    assert expected == topic_queue("orders", configs)


def test_kafka_has_none_of_the_configs() -> None:
    assert TopicQueue(has_retry=False, dead_letter_topic="dlq.orders") == topic_queue("orders", {})
    assert "dlq.orders" == topic_queue("orders", {"errors.deadletterqueue.topic.name": ""}).dead_letter_topic


def test_companions_are_left_out_only_beside_their_topic() -> None:
    companions = {"a.delayed", "a.g.retry", "a.g.x.redelivery", "a.half", "a.half-checks"}
    assert {"a", "a.b", "b.retry"} == without_companions({"a", "a.b", "b.retry", *companions})
    assert companions == without_companions(companions)
