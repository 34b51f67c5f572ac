"""Wrong and hostile requests of share consumers: Ottla answers with the error codes that Apache Kafka answers with."""

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.compat.kafkas_word import Both
from tests.wire.exchange import RawConnection
from tests.wire.groups import unused_group
from tests.wire.share_member import ACCEPT, GAP, REJECT, RELEASE, RENEW, Member, set_up
from tests.wire.world import create_topic, unused_name

NOW: Final = timedelta(0)
LONG: Final = timedelta(seconds=30)
HUGE: Final = 2**62
EPOCH_MAX: Final = 2**31 - 1
UNKNOWN_TOPIC: Final = UUID(int=77)
SIZE_MAX: Final = 200

Codes = dict[str, Any]


def fetch_codes(answer: Any) -> Any:
    """The error of a ShareFetch, or the errors of its partitions: fetch and acknowledgement."""
    if answer.error_code is not ErrorCode.none:
        return answer.error_code
    return [(part.error_code, part.acknowledge_error_code) for each in answer.responses for part in each.partitions]


def test_acknowledgements(both: Both) -> None:
    def scenario(connection: RawConnection) -> Codes:
        group_id, topic_id = set_up(connection, records=2)
        member = Member(connection, group_id, topic_id)
        acquired: list[tuple[int, int, int]] = []
        while not acquired:
            acquired = member.fetch(max_wait=LONG)
        last = acquired[-1][1]
        cases: dict[str, list[tuple[int, int, list[int]]]] = {
            "behind what is acquired": [(0, last + 1, [ACCEPT])],
            "far behind what is acquired": [(HUGE, HUGE + 1, [ACCEPT])],
            "huge": [(0, HUGE, [ACCEPT])],
            "reversed": [(1, 0, [ACCEPT])],
            "negative and reversed": [(-1, -2, [ACCEPT])],
            "overlapping": [(0, 2, [ACCEPT]), (1, 3, [ACCEPT])],
            "overlapping by one": [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
            "twice": [(0, 0, [ACCEPT]), (0, 0, [RELEASE])],
            "descending": [(2, 2, [ACCEPT]), (0, 0, [ACCEPT])],
            "without types": [(0, 0, [])],
            "too many types": [(0, 1, [ACCEPT] * 3)],
            "too few types": [(0, 3, [ACCEPT] * 3)],
            "unknown type": [(0, 0, [5])],
            "negative type": [(0, 0, [-1])],
            "one unknown type of many": [(0, 1, [ACCEPT, 9])],
            "renewal without saying so": [(0, 0, [RENEW])],
            "many types": [(0, HUGE, [ACCEPT] * 20_000)],
            "far below": [(-2, 0, [ACCEPT])],
            "below, and the first": [(-1, 0, [ACCEPT])],
        }
        codes: Codes = {name: member.acknowledge(*batches) for name, batches in cases.items()}
        codes["a mixture"] = member.acknowledge((1, 4, [ACCEPT, GAP, REJECT, RELEASE]))
        # The released one is not acquired; the others are done.
        codes["released before"] = member.acknowledge((4, 4, [ACCEPT]))
        codes["done and acquired"] = member.acknowledge((0, 5, [ACCEPT]))
        codes["nothing"] = member.acknowledge()
        codes["the rest"] = member.acknowledge((5, last, [ACCEPT]))
        codes["by another version"] = fetch_codes(member.ask_fetch((4, 4, [RENEW]), version=1, max_wait=NOW))
        return codes

    theirs, ours = both(scenario)
    assert theirs == ours


def test_sessions(both: Both) -> None:
    def scenario(connection: RawConnection) -> Codes:
        group_id, topic_id = set_up(connection, records=1)
        member = Member(connection, group_id, topic_id)
        codes: Codes = {}
        for epoch in (1, -1, -2, EPOCH_MAX):
            codes[f"fetch {epoch} without a session"] = fetch_codes(member.ask_fetch(share_session_epoch=epoch))
            codes[f"acknowledge {epoch} without a session"] = member.acknowledge(share_session_epoch=epoch)
        member.epoch = 0
        codes["an acknowledgement opens"] = member.acknowledge((0, 0, [ACCEPT]), share_session_epoch=0)
        codes["opens and acknowledges"] = fetch_codes(member.ask_fetch((0, 0, [ACCEPT])))
        member.epoch = 0
        while not member.fetch(max_wait=LONG):
            pass
        for epoch in (member.epoch + 1, member.epoch - 1, -2, EPOCH_MAX):
            answer = member.ask_fetch(share_session_epoch=epoch, max_wait=NOW)
            codes[f"fetch {epoch - member.epoch}"] = fetch_codes(answer)
            codes[f"acknowledge {epoch - member.epoch}"] = member.acknowledge(
                (0, 0, [ACCEPT]), share_session_epoch=epoch
            )
        other = Member(connection, group_id, topic_id, "other")
        other.fetch(max_wait=NOW)
        codes["what another has"] = other.acknowledge((0, 0, [ACCEPT]))
        codes["its own"] = member.acknowledge((0, 0, [ACCEPT]))
        codes["closes"] = member.acknowledge(share_session_epoch=-1)
        codes["closed"] = member.acknowledge((1, 1, [ACCEPT]))
        for name in ("", "x" * 37):
            codes[f"member id of {len(name)}"] = fetch_codes(Member(connection, group_id, topic_id, name).ask_fetch())
        return {key.replace("2147483645", "many"): code for key, code in codes.items()}

    theirs, ours = both(scenario)
    assert theirs == ours


def test_places(both: Both) -> None:
    def scenario(connection: RawConnection) -> Codes:
        group_id, topic_id = set_up(connection, records=1)
        elsewhere = create_topic(connection, unused_name())
        member = Member(connection, group_id, topic_id)
        while not member.fetch(max_wait=LONG):
            pass
        codes: Codes = {}
        for name, place in (
            ("unknown topic", (UNKNOWN_TOPIC, 0)),
            ("unknown partition", (topic_id, 5)),
            ("negative partition", (topic_id, -1)),
            ("a partition that was not fetched", (elsewhere, 0)),
        ):
            batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}]
            part = {"partition_index": place[1], "acknowledgement_batches": batches}
            topics = [{"topic_id": place[0], "partitions": [part]}]
            codes[name] = member.acknowledge(topics=topics)
        return codes

    theirs, ours = both(scenario)
    assert theirs == ours


def test_limits_of_a_fetch(both: Both) -> None:
    def scenario(connection: RawConnection) -> Codes:
        group_id, topic_id = set_up(connection, records=1)
        codes: Codes = {}
        wishes: list[dict[str, Any]] = [
            {"max_records": 0},
            {"max_records": -1},
            {"max_bytes": 0},
            {"batch_size": 0},
            {"batch_size": -5},
            {"min_bytes": EPOCH_MAX},
            {"max_bytes": 1},
            {"is_renew_ack": True},
        ]
        for number, wish in enumerate(wishes):
            member = Member(connection, group_id, topic_id, f"m{number}")
            answer = member.ask_fetch(**wish)
            codes[str(wish)] = fetch_codes(answer)
            if answer.error_code is ErrorCode.none:
                member.acknowledge(share_session_epoch=-1)
        return codes

    theirs, ours = both(scenario)
    assert theirs == ours


def test_heartbeats(both: Both) -> None:
    def scenario(connection: RawConnection) -> Codes:
        name, group_id = unused_name(), unused_group(connection)
        create_topic(connection, name)

        def beat(**values: Any) -> Any:
            wish = {
                "group_id": group_id,
                "member_id": "m",
                "member_epoch": 0,
                "subscribed_topic_names": [name],
                **values,
            }
            return connection.ask_newest(ApiKey.SHARE_GROUP_HEARTBEAT, wish)

        codes: Codes = {
            "empty group": beat(group_id="").error_code,
            "empty member": beat(member_id="").error_code,
            "no topics": beat(subscribed_topic_names=[]).error_code,
            "null topics": beat(subscribed_topic_names=None).error_code,
            "epoch of a missing member": beat(member_epoch=3).error_code,
            "leaves without joining": beat(member_epoch=-1).error_code,
            "epoch -2": beat(member_epoch=-2).error_code,
            "member of 36": beat(member_id="x" * 36).error_code,
            "member of 37": beat(member_id="x" * 37).error_code,
        }
        epoch = beat().member_epoch
        codes["again"] = beat(member_epoch=epoch).error_code
        codes["newer"] = beat(member_epoch=epoch + 5).error_code
        codes["joins again"] = beat().error_code
        newest = epoch
        while newest < epoch + 2:
            # Each member that comes is a new epoch for all.
            beat(member_id=f"n{newest}")
            newest = beat(member_epoch=newest).member_epoch
        codes["the epoch before"] = beat(member_epoch=newest - 1).error_code
        codes["an older epoch"] = beat(member_epoch=newest - 2).error_code
        codes["leaves with an older epoch"] = beat(member_epoch=-1).error_code
        codes["after leaving"] = beat(member_epoch=newest).error_code
        codes["comes back"] = beat().error_code
        return codes

    theirs, ours = both(scenario)
    assert theirs == ours


def test_the_size_of_a_group(both: Both) -> None:
    """With the default of both, 200 members."""

    def scenario(connection: RawConnection) -> Codes:
        name, group_id = unused_name(), unused_group(connection)
        create_topic(connection, name)

        def join(member_id: str, member_epoch: int = 0) -> Any:
            values = {"group_id": group_id, "member_id": member_id, "member_epoch": member_epoch}
            return connection.ask_newest(ApiKey.SHARE_GROUP_HEARTBEAT, {**values, "subscribed_topic_names": [name]})

        codes: Codes = {"members": [join(f"m{at}").error_code for at in range(SIZE_MAX)]}
        codes["one more"] = join("one more").error_code
        codes["one that is there"] = join("m7").error_code
        codes["leaves"] = join("m7", -1).error_code
        codes["in its place"] = join("one more").error_code
        return codes

    theirs, ours = both(scenario)
    assert theirs == ours


def test_locks_are_limited(both: Both) -> None:
    """The least that can be set is 100 records in flight; there are 60 batches of 10 and less."""

    def scenario(connection: RawConnection) -> Codes:
        group_id, topic_id = set_up(connection, records=60, share_partition_max_record_locks="100")
        member = Member(connection, group_id, topic_id)
        codes: Codes = {}
        limited = {"share_acquire_mode": 1, "max_records": 1000}
        acquired: list[tuple[int, int, int]] = []
        while not acquired:
            acquired = member.fetch(max_wait=LONG, **limited)
        codes["limited"] = acquired[0][0], acquired[-1][1]
        codes["no more"] = member.fetch(max_wait=NOW, **limited)
        other = Member(connection, group_id, topic_id, "other")
        codes["nor another"] = other.fetch(max_wait=NOW, max_records=1000)
        codes["in the middle"] = member.acknowledge((50, 59, [ACCEPT]))
        codes["the window does not move"] = other.fetch(max_wait=NOW, **limited)
        codes["at the start"] = member.acknowledge((0, 9, [ACCEPT]))
        found = other.fetch(max_wait=LONG, **limited)
        codes["as many as were done"] = found[0][0], found[-1][1]
        return codes

    theirs, ours = both(scenario)
    assert theirs == ours
