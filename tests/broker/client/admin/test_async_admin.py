"""The admin client against a real broker: every method once, what it answers, and what it refuses item by item."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from kio.static.constants import EntityType

from ottla.client.admin.async_admin import AsyncAdmin, OffsetSpec
from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.config_requests import ConfigSource, ResourceType
from ottla.client.admin.options import AdminConfig, AdminOptions
from ottla.client.admin.replica_requests import ElectionType
from ottla.client.admin.transaction_requests import NoOpenTransactionError
from ottla.client.admin.values import (
    ConfigResource,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    Outcomes,
    PartlyFailedError,
)
from ottla.client.errors import AnswerError, CannotConnectError, answer_error
from ottla.client.network.coordinators import CoordinatorType, to_coordinator
from ottla.client.options import OptionError
from ottla.client.producer.blocking_producer import Producer
from ottla.client.values import OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, MisuseError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.model.upgrade_type import UpgradeType
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds
from ottla.testing import InProcessBroker
from tests.wire.exchange import fill, message_class

MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def admin(broker: InProcessBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


def codes(outcomes: Outcomes[Any, Any]) -> dict[Any, ErrorCode]:
    return {key: error.error_code for key, error in outcomes.errors.items() if isinstance(error, AnswerError)}


# The cluster


def test_the_cluster_and_its_log_dirs(admin: Admin, broker: InProcessBroker) -> None:
    admin.create_topics([NewTopic("dirs", 2, 1)])
    described = admin.describe_cluster()
    assert (broker.broker.image.cluster_id, 0) == (described.cluster_id, described.controller)
    assert [(0, broker.bootstrap, None)] == [(each.id, str(each.address), each.rack) for each in described.brokers]
    asked = [TopicPartition("dirs", 1)]
    (log_dir,) = admin.describe_log_dirs(partitions=asked)[0]
    assert (str(broker.data), asked) == (log_dir.path, [each.partition for each in log_dir.partitions])
    assert [0] == list(admin.describe_log_dirs())


def test_the_quorum_and_brokers_that_are_gone(admin: Admin, broker: InProcessBroker) -> None:
    quorum = admin.describe_quorum()
    assert (0, [0], ()) == (quorum.leader_id, [each.replica_id for each in quorum.voters], quorum.observers)
    assert quorum.high_watermark == quorum.voters[0].log_end_offset >= quorum.leader_epoch > 0
    with pytest.raises(AnswerError, match="broker 0 is running"):
        admin.unregister_broker(0)
    with pytest.raises(AnswerError, match="no broker 7") as refused:
        admin.unregister_broker(7)
    assert ErrorCode.BROKER_ID_NOT_REGISTERED is refused.value.error_code


def test_features(admin: Admin) -> None:
    before = admin.describe_features()
    assert {"metadata.version": 30, "group.version": 1}.items() <= before.finalized.items()
    assert ((0, 1), (7, 30)) == (before.supported["group.version"], before.supported["metadata.version"])
    with pytest.raises(AnswerError, match=r"group.version cannot be 0: .* must be requested as a downgrade") as refused:
        admin.update_features({"group.version": 0})
    assert ErrorCode.INVALID_UPDATE_VERSION is refused.value.error_code
    admin.update_features({"group.version": 0}, UpgradeType.SAFE_DOWNGRADE, validate_only=True)
    assert before == admin.describe_features()
    admin.update_features({"group.version": 0}, UpgradeType.SAFE_DOWNGRADE)
    after = admin.describe_features()
    assert "group.version" not in after.finalized
    assert (after.finalized_epoch or 0) > (before.finalized_epoch or 0) > 0
    admin.update_features({"group.version": 1})
    assert before.finalized == admin.describe_features().finalized


def test_a_broker_that_is_not_there(broker: InProcessBroker) -> None:
    with (
        Admin(bootstrap_servers=[broker.bootstrap], request_timeout_ms=2000) as admin,
        pytest.raises(CannotConnectError, match="broker 7 is not in the cluster"),
    ):
        admin.describe_log_dirs([7])


# Topics


def test_topics_from_creation_to_deletion(admin: Admin) -> None:
    created = admin.create_topics(
        [
            NewTopic("one", 2, 1, topic_configs={"retention.ms": "60000"}),
            NewTopic("placed", replica_assignments={0: [0]}),
        ],
        wait_for_metadata=True,
    )
    assert {"one": 2, "placed": 1} == {name: each.partitions for name, each in created.items()}
    assert {"one", "placed"} <= set(admin.list_topics())
    described = admin.describe_topics(["one"])["one"]
    assert [(0, 0, (0,)), (1, 0, (0,))] == [(each.index, each.leader, each.isr) for each in described.partitions]
    assert created["one"].id == described.id
    admin.create_partitions({"one": 3, "placed": NewPartitions(2, [[0]])})
    assert {"one": 3, "placed": 2} == {
        name: len(each.partitions) for name, each in admin.describe_topics(["one", "placed"]).items()
    }
    admin.delete_topics(["one", "placed"])
    assert not {"one", "placed"} & set(admin.list_topics())


def test_only_checking_creates_nothing(admin: Admin) -> None:
    checked = admin.create_topics([NewTopic("wish", 5, 1)], validate_only=True)
    assert (["wish"], 5) == (list(checked), checked["wish"].partitions)
    assert "wish" not in admin.list_topics()
    admin.create_topics([NewTopic("grown", 1, 1)])
    admin.create_partitions({"grown": 9}, validate_only=True)
    assert 1 == len(admin.describe_topics(["grown"])["grown"].partitions)


def test_each_topic_has_its_own_outcome(admin: Admin) -> None:
    admin.create_topics([NewTopic("there")])
    mixed = admin.create_topics([NewTopic("there"), NewTopic("new"), NewTopic("no/name")], raise_errors=False)
    assert ["new"] == list(mixed)
    assert {
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    } == codes(mixed)
    with pytest.raises(AnswerError, match="topic there: "):
        mixed["there"]
    with pytest.raises(
        PartlyFailedError, match="1 of 2 failed: topic gone: the topic or partition does not exist"
    ) as partly:
        admin.delete_topics(["gone", "new"])
    assert ({"gone": MISSING}, ["new"]) == (partly.value.error_codes, list(partly.value.outcomes))
    with pytest.raises(AnswerError, match="topic gone: the topic or partition does not exist"):
        admin.describe_topics(["gone"])
    with pytest.raises(MisuseError, match="new_topics lists a topic twice"):
        admin.create_topics([NewTopic("a"), NewTopic("a")])


# Configs


def test_configs_are_described_and_changed(admin: Admin) -> None:
    admin.create_topics([NewTopic("set", topic_configs={"retention.ms": "1000"})])
    topic = ConfigResource(ResourceType.TOPIC, "set")
    names = ["retention.ms", "cleanup.policy"]
    before = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "set", names)])[topic]
    assert {"retention.ms": ("1000", ConfigSource.TOPIC), "cleanup.policy": ("delete", ConfigSource.DEFAULT)} == {
        name: (each.value, each.source) for name, each in before.items()
    }
    changes = {"retention.ms": None, "cleanup.policy": "compact"}
    admin.alter_configs([ConfigResource(ResourceType.TOPIC, "set", changes)])
    after = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "set", names)])[topic]
    assert ("compact", ConfigSource.TOPIC) == (after["cleanup.policy"].value, after["cleanup.policy"].source)
    assert ConfigSource.DEFAULT == after["retention.ms"].source
    assert topic in admin.list_config_resources([ResourceType.TOPIC])
    broker = ConfigResource(ResourceType.BROKER, "0")
    documented = admin.describe_configs([ConfigResource(ResourceType.BROKER, "0", ["log.dirs"])], True)[broker]
    assert documented["log.dirs"].documentation


def test_each_resource_has_its_own_outcome(admin: Admin) -> None:
    admin.create_topics([NewTopic("good")])
    good = ConfigResource(ResourceType.TOPIC, "good", {"retention.ms": "5"})
    bad = ConfigResource(ResourceType.TOPIC, "good-not", {"retention.ms": "5"})
    odd = ConfigResource(ResourceType.BROKER, "x", {"log.cleaner.threads": "2"})
    outcomes = admin.alter_configs([good, bad, odd], raise_errors=False)
    assert ([good], {bad: MISSING}) == (list(outcomes), codes(outcomes))
    assert "the name of a broker resource must be its id" in str(outcomes.errors[odd])
    with pytest.raises(MisuseError, match="topic good: configs must map names to new values"):
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, "good")])


# Records and offsets


def test_offsets_and_deleting_records(admin: Admin, broker: InProcessBroker) -> None:
    broker.create_topic("read", 2)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for at in range(10):
            producer.send("read", b"x", partition=0, timestamp_ms=1000 + at)
    full, empty, gone = TopicPartition("read", 0), TopicPartition("read", 1), TopicPartition("read", 2)
    assert {full: 10, empty: 0} == {
        each: found.offset for each, found in admin.list_offsets({full: OffsetSpec.LATEST, empty: -1}).items()
    }
    assert OffsetAndTimestamp(4, 1004) == admin.list_offsets({full: 1004})[full]
    assert OffsetAndTimestamp(-1, -1) == admin.list_offsets({full: 5000})[full]
    assert OffsetAndTimestamp(9, 1009) == admin.list_offsets({full: OffsetSpec.MAX_TIMESTAMP})[full]
    mixed = admin.list_offsets({full: OffsetSpec.EARLIEST, gone: OffsetSpec.EARLIEST}, raise_errors=False)
    assert ([full], {gone: MISSING}) == (list(mixed), codes(mixed))
    deleted = admin.delete_records({full: 3, empty: 5, TopicPartition("none", 0): 1}, raise_errors=False)
    assert {full: 3} == dict(deleted)
    assert {empty: ErrorCode.OFFSET_OUT_OF_RANGE, TopicPartition("none", 0): MISSING} == codes(deleted)
    assert 3 == admin.list_offsets({full: OffsetSpec.EARLIEST})[full].offset


# Leaders and replicas


def test_elections_and_reassignments(admin: Admin) -> None:
    admin.create_topics([NewTopic("led")], wait_for_metadata=True)
    led, gone = TopicPartition("led", 0), TopicPartition("led", 5)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [led, gone], raise_errors=False)
    assert ([led], {gone: MISSING}) == (list(elected), codes(elected))
    assert [] == list(admin.elect_leaders())
    moved = admin.alter_partition_reassignments({led: [0], gone: [0]}, raise_errors=False)
    assert ([led], {gone: MISSING}) == (list(moved), codes(moved))
    with pytest.raises(AnswerError) as refused:
        admin.alter_partition_reassignments({led: [0, 99]})
    assert ErrorCode.INVALID_REPLICA_ASSIGNMENT is refused.value.error_code
    with pytest.raises(AnswerError) as nothing:
        admin.alter_partition_reassignments({led: None})
    assert ErrorCode.NO_REASSIGNMENT_IN_PROGRESS is nothing.value.error_code
    assert {} == admin.list_partition_reassignments()
    assert {} == admin.list_partition_reassignments([led])


# Groups


def test_groups_offsets(admin: Admin, broker: InProcessBroker) -> None:
    broker.create_topic("offsets", 3)
    partitions = [TopicPartition("offsets", at) for at in range(3)]
    wishes: dict[TopicPartition, OffsetAndMetadata | int] = {
        partitions[0]: 5,
        partitions[1]: OffsetAndMetadata(7, "mine", 2),
    }
    admin.alter_consumer_group_offsets("idle", wishes)
    found = admin.list_consumer_group_offsets("idle")
    assert {partitions[0]: OffsetAndMetadata(5), partitions[1]: OffsetAndMetadata(7, "mine", 2)} == found
    assert [partitions[1]] == list(admin.list_consumer_group_offsets("idle", partitions[1:]))
    assert ["idle"] == [each.group_id for each in admin.list_consumer_groups(states_filter=["Empty"])]
    assert [] == admin.list_consumer_groups(types_filter=["consumer"])
    described = admin.describe_consumer_groups(["idle", "gone"], raise_errors=False)
    assert (True, {"gone": ErrorCode.GROUP_ID_NOT_FOUND}) == (described["idle"].is_idle, codes(described))
    refused = admin.alter_consumer_group_offsets("idle", {TopicPartition("none", 0): 1}, raise_errors=False)
    assert {TopicPartition("none", 0): MISSING} == codes(refused)
    assert [partitions[0]] == list(admin.delete_consumer_group_offsets("idle", partitions[:1]))
    assert [partitions[1]] == list(admin.list_consumer_group_offsets("idle"))
    admin.delete_consumer_groups(["idle"])
    with pytest.raises(AnswerError, match="group idle: the group does not exist"):
        admin.delete_consumer_groups(["idle"])


def join(admin: Admin, group_id: str, instance_id: str) -> str:
    """Makes somebody a static member without a consumer; answers its member id."""
    values = {
        "group_id": group_id,
        "session_timeout": milliseconds(30_000),
        "rebalance_timeout": milliseconds(1_000),
        "group_instance_id": instance_id,
        "protocol_type": "test",
        "protocols": [{"name": "range"}],
    }
    message = fill(message_class(ApiKey.JOIN_GROUP, 9, EntityType.request), values)
    cluster = admin._admin.cluster
    answer = admin._thread.call(cluster.retry(lambda: _joined(cluster, message)))
    return str(answer.member_id)


async def _joined(cluster: Any, message: Any) -> Any:
    answer = await to_coordinator(cluster, CoordinatorType.GROUP, message.group_id, ApiKey.JOIN_GROUP, message)
    if answer.error_code:
        raise answer_error(int(answer.error_code), "joining")
    return answer


def test_members_are_thrown_out(admin: Admin) -> None:
    join(admin, "crowd", "anna")
    (member,) = admin.describe_consumer_groups(["crowd"])["crowd"].members
    assert "anna" == member.instance_id
    with pytest.raises(AnswerError, match="the group has members; stop its consumers first"):
        admin.delete_consumer_groups(["crowd"])
    anna, nobody = MemberToRemove(group_instance_id="anna"), MemberToRemove(group_instance_id="nobody")
    removed = admin.remove_consumer_group_members("crowd", [nobody, anna], raise_errors=False)
    assert ([anna], {nobody: ErrorCode.UNKNOWN_MEMBER_ID}) == (list(removed), codes(removed))
    assert () == admin.describe_consumer_groups(["crowd"])["crowd"].members
    join(admin, "crowd", "bert")
    assert ["bert"] == [each.group_instance_id for each in admin.remove_consumer_group_members("crowd", reason="test")]
    assert [] == list(admin.remove_consumer_group_members("crowd"))


# Transactions


def test_transactions_are_listed_described_and_aborted(admin: Admin, broker: InProcessBroker) -> None:
    broker.create_topic("paid")
    paid = TopicPartition("paid", 0)
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id="till-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("paid", b"1").get(60)
        (listed,) = admin.list_transactions(state_filters=["Ongoing"], transactional_id_pattern="till-.*")
        described = admin.describe_transactions(["till-1", "till-2"], raise_errors=False)
        assert ("till-1", (paid,)) == (listed.transactional_id, described["till-1"].partitions)
        assert {"till-2": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND} == codes(described)
        (writer,) = admin.describe_producers([paid])[paid]
        assert (listed.producer_id, 0) == (writer.producer_id, writer.start_offset)
        assert [] == admin.find_hanging_transactions()
        assert 0 == admin.list_offsets({paid: OffsetSpec.LATEST}, read_committed=True)[paid].offset
        with pytest.raises(NoOpenTransactionError, match="starts at offset 1; open transactions start at 0"):
            admin.abort_transaction(paid, 1)
        admin.abort_transaction(paid, 0)
        assert 2 == admin.list_offsets({paid: OffsetSpec.LATEST}, read_committed=True)[paid].offset
        producer.abort_transaction()
    gone = TopicPartition("paid-not", 0)
    assert {gone: MISSING} == codes(admin.describe_producers([gone], raise_errors=False))


# The client itself


async def test_the_asyncio_class_answers_the_same(broker: InProcessBroker) -> None:
    async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(f"many-{at}") for at in range(50)])
        assert 50 == len([name for name in await admin.list_topics() if name.startswith("many-")])
        await admin.delete_topics(f"many-{at}" for at in range(50))
    with pytest.raises(MisuseError, match="the admin client is closed; create a new one"):
        await admin.list_topics()
    assert 1 == len(asyncio.all_tasks())


def test_every_method_is_there_twice() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert methods(AsyncAdmin) - {"cluster"} == methods(Admin)


def own_threads(before: set[threading.Thread]) -> list[str]:
    """The names of new threads of clients; the broker in this process may start others at any time."""
    return [each.name for each in set(threading.enumerate()) - before if each.name == "ottla admin"]


def test_closing_leaves_no_thread(broker: InProcessBroker) -> None:
    before = set(threading.enumerate())
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.list_topics()
        assert ["ottla admin"] == own_threads(before)
    assert [] == own_threads(before)
    admin.close()
    with pytest.raises(MisuseError, match="the admin client is closed; create a new one"):
        admin.list_topics()


def test_wrong_options_and_addresses() -> None:
    with pytest.raises(OptionError, match="Admin has no option bootstrap; did you mean bootstrap_servers"):
        Admin(bootstrap="x:1")  # type: ignore[call-arg]
    with pytest.raises(InvalidRequestError, match="'a:b' is not an address"):
        Admin(bootstrap_servers="a:b")
    before = set(threading.enumerate())
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        with pytest.raises(CannotConnectError, match=r"cannot reach any broker of 127\.0\.0\.1:1"):
            admin.create_topics([NewTopic("x"), NewTopic("y")], raise_errors=False)
        with pytest.raises(CannotConnectError, match=r"cannot reach any broker of 127\.0\.0\.1:1"):
            admin.list_topics()
    assert set() == set(threading.enumerate()) - before


def test_what_no_message_can_hold_is_refused(admin: Admin) -> None:
    with pytest.raises(MisuseError, match="huge: the request cannot be encoded"):
        admin.create_topics([NewTopic("huge", 10**12)])
    with pytest.raises(MisuseError, match=r"topics must be a list of str, not str 'orders'; write \['orders'\]"):
        admin.delete_topics("orders")
    with pytest.raises(MisuseError, match="topics must be a list of str or None, not str 'orders'"):
        admin.describe_topics("orders")


def test_a_broker_that_hangs_is_given_up_in_time(broker: InProcessBroker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap, request_timeout_ms=2000) as admin:
        admin.list_topics()
        broker.pause()
        try:
            with pytest.raises(RetriableError, match="METADATA was not answered within 2000 ms"):
                admin.list_topics()
        finally:
            broker.resume()


def test_what_a_type_checker_knows_is_what_there_is() -> None:
    hints = get_type_hints(AdminConfig)
    assert get_type_hints(AdminOptions) == {each.name: hints[each.name] for each in fields(AdminConfig)}
