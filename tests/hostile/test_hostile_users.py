"""An ordinary user without rights, over SASL_PLAINTEXT and SASL_SSL: it is answered or refused, and disturbs nobody.

The other modules of this folder do the same over a listener without a login; here is what differs: permissions, the
audit log, and requests and responses that pass through TLS.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from random import Random
from struct import pack
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import SERVED, ApiKey
from tests.hostile.batches import numbered_batch
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import DESCRIPTORS_MAX, GROWTH_BYTES_MAX
from tests.hostile.effort import FUZZ_SECONDS, repeat
from tests.hostile.mutations import mutated
from tests.hostile.requests import SECURITY_FIELDS, Target, every_version, valid_frame
from tests.hostile.secured import ADMIN, MALLORY, PROTOCOLS, SecuredProcess
from tests.hostile.sockets import send_what_is_taken
from tests.hostile.talk import ANSWER_SECONDS, exchange, has_ping
from tests.wire.exchange import request_frame
from tests.wire.world import create_topic, produce

SHARE = 5
"""Of the time of the fuzzer."""
VERSIONS = tuple(every_version())
REQUEST_BYTES_MAX = 100 << 20
MANY = 20_000
AUDIT_BYTES_MAX = 10_000
FETCH_BYTES = 50 << 20
STUCK = 10


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    with SecuredProcess(tmp_path_factory.mktemp("users")) as broker:
        idle = broker.descriptors()
        yield broker
        assert broker.is_running(), broker.program.log_end
        assert [] == broker.alarms()
        most = idle + DESCRIPTORS_MAX
        broker.wait_descriptors(most)
        broker.stop()


@pytest.fixture(scope="module")
def target(secured: SecuredProcess) -> Target:
    """A topic that mallory may not even see."""
    with secured.connection(ADMIN, "SASL_PLAINTEXT") as connection:
        topic_id = create_topic(connection, "target", 3, retention_ms="-1")
        for number in range(20):
            produce(connection, topic_id, numbered_batch(number * 1000, 1000, size=1000))
    return Target(topic="target", topic_id=topic_id)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def bystander(secured: SecuredProcess, protocol: str) -> Bystander:
    """A client that may do what it does, on the same listener."""
    return Bystander(protocol, connect=partial(secured.connection, ADMIN))


def end_offsets(secured: SecuredProcess, target: Target) -> list[int]:
    parts = [{"partition_index": index, "timestamp": -1} for index in range(target.partitions)]
    with secured.connection(ADMIN, "SASL_PLAINTEXT") as connection:
        wanted = {"replica_id": -1, "topics": [{"name": target.topic, "partitions": parts}]}
        (topic,) = connection.ask_newest(ApiKey.LIST_OFFSETS, wanted).topics
        assert {ErrorCode.none} == {part.error_code for part in topic.partitions}
        return [part.offset for part in topic.partitions]


def test_every_request_of_a_user_without_rights_is_answered(secured: SecuredProcess, target: Target) -> None:
    before = end_offsets(secured, target)
    for api_key, version in VERSIONS:
        is_settled, received = exchange(
            "SASL_PLAINTEXT",
            valid_frame(api_key, version, target, Random(3)),
            patience=ANSWER_SECONDS,
            open_socket=partial(secured.open_as, MALLORY),
        )
        assert (True, True) == (is_settled, has_ping(received)), f"{api_key.name} v{version}"
        assert b"record " not in received, f"{api_key.name} v{version} has records of others"
    assert before == end_offsets(secured, target)


def test_mutated_requests_of_a_user_without_rights(
    secured: SecuredProcess, target: Target, protocol: str, bystander: Bystander
) -> None:
    offsets = end_offsets(secured, target)
    secured.forget_peak()
    before = secured.resident_bytes()

    def send_some(random: Random) -> None:
        frames = []
        for _ in range(random.randint(1, 5)):
            frame = valid_frame(*random.choice(VERSIONS), target, random)
            frames.append(mutated(frame, random) if random.random() < 0.8 else frame)
        _, received = exchange(protocol, b"".join(frames), open_socket=partial(secured.open_as, MALLORY))
        assert b"record " not in received

    with bystander:
        rounds = repeat(send_some, FUZZ_SECONDS / SHARE)
    grown = secured.peak_bytes() - before
    print(f"{rounds} connections; grown by {grown >> 20} MiB")
    assert grown < GROWTH_BYTES_MAX
    assert offsets == end_offsets(secured, target)
    bystander.check()


def test_mutated_requests_about_users_acls_quotas_and_tokens(secured: SecuredProcess, target: Target) -> None:
    """By a user that may do all this: what a tool of an operator might send by mistake."""
    bystander = Bystander("SASL_SSL", connect=partial(secured.connection, ADMIN))
    versions = [each for each in VERSIONS if each[0] in SECURITY_FIELDS]
    accepted = 0

    def send_some(random: Random) -> None:
        nonlocal accepted
        frames = []
        for _ in range(random.randint(1, 5)):
            frame = valid_frame(*random.choice(versions), target, random)
            frames.append(mutated(frame, random) if random.random() < 0.7 else frame)
        _, received = exchange("SASL_PLAINTEXT", b"".join(frames), open_socket=partial(secured.open_as, ADMIN))
        accepted += has_ping(received)

    with bystander:
        rounds = repeat(send_some, FUZZ_SECONDS / SHARE)
    print(f"{rounds} connections, {accepted} of them were answered to the end")
    assert accepted > 0
    assert [] == secured.alarms()
    bystander.check()


GIANTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: {"topics": [{"name": f"n{each}", "topic_id": None} for each in range(MANY)]},
    ApiKey.DELETE_TOPICS: {"topics": [{"name": f"n{each}", "topic_id": None} for each in range(MANY)]},
    ApiKey.DESCRIBE_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": f"n{each}"} for each in range(MANY)]},
    ApiKey.DESCRIBE_GROUPS: {"groups": [f"n{each}" for each in range(MANY)]},
    ApiKey.FIND_COORDINATOR: {"key_type": 1, "coordinator_keys": [f"n{each}" for each in range(MANY)]},
}


@pytest.mark.parametrize("api_key", GIANTS, ids=lambda api_key: api_key.name)
def test_giants_of_a_user_without_rights_do_not_fill_the_audit_log(secured: SecuredProcess, api_key: ApiKey) -> None:
    log_bytes = len(secured.log())
    secured.forget_peak()
    before = secured.resident_bytes()
    frame = request_frame(api_key, SERVED[api_key].highest, {"timeout": timedelta(seconds=1), **GIANTS[api_key]})
    is_settled, received = exchange(
        "SASL_PLAINTEXT", frame, patience=60.0, open_socket=partial(secured.open_as, MALLORY)
    )
    assert (True, True) == (is_settled, has_ping(received))
    assert secured.peak_bytes() - before < GROWTH_BYTES_MAX
    logged = secured.log()[log_bytes:]
    assert f"is denied operation DESCRIBE on {MANY} resources" in logged or ("DESCRIBE_CONFIGS on" in logged)
    assert len(logged) < AUDIT_BYTES_MAX


def test_lengths_alone_take_no_memory(secured: SecuredProcess, protocol: str, bystander: Bystander) -> None:
    secured.forget_peak()
    before = secured.resident_bytes()
    with bystander, ExitStack() as opened:
        for _ in range(50):
            each = opened.enter_context(secured.open_as(MALLORY, protocol))
            each.sendall(pack(">ihhi", REQUEST_BYTES_MAX, ApiKey.PRODUCE, 9, 1) + b"x" * 20_000)
        with secured.connection(ADMIN, protocol) as other:
            other.ask_newest(ApiKey.METADATA, {"topics": []})
        bystander.wait_disturbed()
    # In a single buffer there would be 100 MiB for each.
    assert secured.peak_bytes() - before < GROWTH_BYTES_MAX / 2
    bystander.check()


def test_fetches_that_are_not_read(
    secured: SecuredProcess, target: Target, protocol: str, bystander: Bystander
) -> None:
    """Here the reader has the right to read. Over TLS, what is sent was copied and encrypted before."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": FETCH_BYTES}
    values = {"topics": [{"topic_id": target.topic_id, "partitions": [part]}], "max_bytes": FETCH_BYTES}
    frame = request_frame(ApiKey.FETCH, 13, {**values, "session_epoch": -1, "max_wait": timedelta(0)})
    secured.forget_peak()
    before = secured.resident_bytes()
    with bystander, ExitStack() as opened:
        for _ in range(STUCK):
            stuck = opened.enter_context(secured.open_as(ADMIN, protocol, receive_bytes=4096))
            stuck.sendall(frame * 20)
        with secured.connection(ADMIN, protocol) as other:
            assert ErrorCode.none is other.ask(ApiKey.FETCH, 13, {**values, "session_epoch": -1}).error_code
        bystander.wait_disturbed()
    grown = secured.peak_bytes() - before
    print(f"grown by {grown >> 20} MiB")
    # Ten responses of 20 MB would be 200 MB.
    assert grown < GROWTH_BYTES_MAX / 2
    bystander.check()


def test_answers_that_are_not_read(secured: SecuredProcess, protocol: str, bystander: Bystander) -> None:
    names = [{"name": f"n{each}", "topic_id": None} for each in range(100)]
    frame = request_frame(ApiKey.METADATA, 9, {"topics": names, "allow_auto_topic_creation": False})
    content = frame * 20_000
    secured.forget_peak()
    before = secured.resident_bytes()
    with bystander, ExitStack() as opened:
        for _ in range(3):
            silent = opened.enter_context(secured.open_as(MALLORY, protocol, receive_bytes=4096))
            taken = send_what_is_taken(silent, content, seconds=0.3)
            assert taken < len(content), "what nobody reads must not be answered for ever"
        # The broker answers thousands of requests until the sockets are full; among them the bystander gets its turns.
        bystander.wait_disturbed()
    grown = secured.peak_bytes() - before
    print(f"grown by {grown >> 20} MiB")
    assert grown < GROWTH_BYTES_MAX / 2
    bystander.check()
