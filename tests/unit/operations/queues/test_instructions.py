"""The headers of a record that is parked again for another time."""

from ottla.client.values import Header
from ottla.model import queue_names
from ottla.operations.queues.instructions import rescheduled_headers, rescheduling_id


def test_another_time_takes_the_place_of_what_the_record_and_the_broker_said() -> None:
    own: list[Header] = [("trace", b"t"), ("empty", None), (queue_names.DELAY_ID, b"a"), (queue_names.TTL_MS, b"5")]
    times: list[Header] = [
        (queue_names.DELAY_MS, b"100"),
        (queue_names.DELIVER_AT_MS, b"200"),
        (queue_names.DELAY_REPLACE, b"true"),
        (queue_names.DUE_MS, b"300"),
        (queue_names.ORIGIN, b"orders/0/1"),
    ]
    assert [*own, (queue_names.DELIVER_AT_MS, b"400")] == rescheduled_headers([*own[:2], *times, *own[2:]], 400)


def test_each_queue_has_a_producer_of_its_own() -> None:
    assert "ottla-reschedule-orders.delayed" == rescheduling_id("orders.delayed")
