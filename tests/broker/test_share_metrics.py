"""The metrics of share groups count what members do."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from kio.schema.errors import ErrorCode

from ottla.testing.in_process_broker import InProcessBroker
from tests.broker.metric_samples import samples_of
from tests.broker.test_share_dead_letters import SETTINGS, begin, read
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.share_member import ACCEPT, REJECT, RELEASE, RENEW, Member, set_configs

LONG = timedelta(seconds=30)


def samples(broker: InProcessBroker) -> dict[str, float]:
    """Every sample, with the value of its label if it has one."""
    return {
        " ".join([name.removeprefix("ottla_share_"), *(label for _, label in labels)]): value
        for (name, labels), value in samples_of(broker.broker).items()
        if name.startswith("ottla_share_")
    }


def holds(broker: InProcessBroker, **expected: float) -> Callable[[], bool]:
    return lambda: all(samples(broker)[name] == value for name, value in expected.items())


def test_deliveries_acknowledgements_and_dead_letters_are_counted(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "broker", SETTINGS) as broker, RawConnection(broker.bootstrap) as connection:
        assert {0} == set(samples(broker).values())
        _, group_id, topic_id = begin(
            connection,
            [b"a", b"b", b"c", b"d"],
            dead_letters="dlq.counted",
            share_delivery_count_limit="2",
        )
        member = Member(connection, group_id, topic_id)
        assert [(0, 3, 1)] == member.fetch(max_wait=LONG)
        assert holds(broker, sessions=1, partitions=1, in_flight_records=4, acquired_records_total=4)()
        # Locks are short from here on: those of the other records, which are used in time, are not.
        set_configs(connection, group_id, share_record_lock_duration_ms="1000")
        assert [ErrorCode.none] == member.acknowledge((3, 3, [RENEW]), is_renew_ack=True)
        assert [ErrorCode.none] == member.acknowledge((0, 2, [ACCEPT, REJECT, RELEASE]))
        assert [ErrorCode.invalid_record_state] == member.acknowledge((2, 2, [ACCEPT]))
        # The first lock of record 3 expires, then the second locks of records 2 and 3.
        wait_until(holds(broker, locks_expired_records_total=1))
        assert 2 == sum(last - first + 1 for first, last, count in member.fetch(max_wait=LONG) if count == 2)
        assert 3 == len(read(broker, "dlq.counted", 3))
        wait_until(holds(broker, in_flight_records=0))
        found = samples(broker)
        counts = {
            name: found[f"acknowledged_records_total {name}"] for name in ("accept", "release", "reject", "renew")
        }
        assert dict.fromkeys(counts, 1) == counts
        expected = {
            "acquired_records_total": 6,
            "redelivered_records_total": 2,
            "locks_expired_records_total": 3,
            "delivery_limit_records_total": 2,
            "dead_records_total": 3,
            "dead_records_failed_total": 0,
            "fetches_total": 2,
            "acknowledgements_refused_total": 1,
        }
        assert expected == {name: found[name] for name in expected}
        assert found["fetched_bytes_total"] > 0
        assert [ErrorCode.none] == member.acknowledge((0, 0, [ACCEPT]), share_session_epoch=-1)
        wait_until(holds(broker, sessions=0, partitions=0))
