"""What librdkafka and kafka-python do to a broker process, told by its metrics: records, bytes, requests and lag."""

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer

from tests.compat.metered_broker import MeteredBroker
from tests.waiting import PATIENCE_SECONDS, tries

RECORDS = 1000
CONSUMED = 600


def test_records_bytes_requests_and_lag(served: MeteredBroker) -> None:
    producer = Producer({"bootstrap.servers": served.address, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("t", value=b"value %d" % number, partition=number % 2)
    assert 0 == producer.flush(PATIENCE_SECONDS)
    assert RECORDS == served.metric("ottla_topic_appended_records_total", topic="t")
    sent = served.metric("ottla_topic_appended_bytes_total", topic="t")
    assert sent > RECORDS * len("value 1")
    produced = served.metric("ottla_requests_total", api="produce")
    assert produced == served.metric("ottla_request_seconds_count", api="produce") > 0
    assert 0 < served.metric("ottla_request_seconds_sum", api="produce") < PATIENCE_SECONDS

    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": served.address, **settings})
    consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
    read = 0
    for _ in tries("all is read"):
        if read >= RECORDS:
            break
        read += len(consumer.consume(RECORDS, 1.0))
    committed = [TopicPartition("t", partition, CONSUMED // 2) for partition in range(2)]
    consumer.commit(offsets=committed, asynchronous=False)
    consumer.close()
    assert RECORDS - CONSUMED == served.metric("ottla_consumer_group_lag", group="g", topic="t")
    assert 0 == served.metric("ottla_consumer_group_lag_unknown_partitions", group="g")
    assert served.metric("ottla_topic_fetched_bytes_total", topic="t") >= sent

    other = KafkaConsumer("t", bootstrap_servers=served.address, group_id="h", auto_offset_reset="earliest")
    values: list[bytes] = []
    for _ in tries("all is read"):
        if len(values) >= RECORDS:
            break
        values += [each.value for some in other.poll(1000).values() for each in some]
    other.commit()
    other.close()
    assert 0 == served.metric("ottla_consumer_group_lag", group="h", topic="t")
    assert 1 == served.metric("ottla_active_controller")
    assert 0 == served.metric("ottla_partitions_under_replicated")
    # The topic, and the one partition of the groups' offsets.
    assert 3 == served.metric("ottla_partitions_led")
    assert RECORDS == served.metric("ottla_topic_appended_records_total", topic="t")
