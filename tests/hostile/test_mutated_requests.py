"""Valid requests of every API and version, each with a few faults: the broker answers or closes, and lives on."""

from random import Random

import pytest

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.effort import FUZZ_SECONDS, repeat
from tests.hostile.mutations import mutated
from tests.hostile.requests import Target, every_version, valid_frame
from tests.hostile.talk import ANSWER_SECONDS, exchange, has_ping
from tests.wire.exchange import is_flexible, request_frame

VERSIONS = tuple(every_version())


def test_every_request_is_understood_before_it_is_spoiled(broker: BrokerProcess, target: Target) -> None:
    for api_key, version in VERSIONS:
        frame = valid_frame(api_key, version, target, Random(3))
        is_settled, received = exchange(broker.address, frame, patience=ANSWER_SECONDS)
        assert (True, True) == (is_settled, has_ping(received)), f"{api_key.name} v{version}"


def test_unknown_tagged_fields_are_skipped(broker: BrokerProcess) -> None:
    """A newer client of the same version may send fields that this broker has never heard of."""
    unknown = b"\x02\x63\x03abc\x64\x00"
    for api_key, version in VERSIONS:
        values = {"client_software_name": "hostile", "client_software_version": "1.0", "topics": []}
        frame = request_frame(api_key, version, values)
        if frame[-1:] != b"\0" or api_key in (ApiKey.PRODUCE, ApiKey.FETCH):
            continue
        if not is_flexible(api_key, version):
            continue
        spoiled = frame[4:-1] + unknown
        content = len(spoiled).to_bytes(4, "big") + spoiled
        _, received = exchange(broker.address, content, patience=ANSWER_SECONDS)
        assert has_ping(received), f"{api_key.name} v{version}"


@pytest.mark.parametrize(("acks", "answers"), [(0, 0), (1, 1), (9, 1)])
def test_a_refused_produce_request_without_batches(broker: BrokerProcess, acks: int, answers: int) -> None:
    """Found by the test below: there was no batch to give the reason."""
    frame = request_frame(ApiKey.PRODUCE, 4, {"transactional_id": "x", "acks": acks, "topic_data": []})
    _, received = exchange(broker.address, frame, patience=ANSWER_SECONDS)
    assert has_ping(received)
    _, without = exchange(broker.address, b"", patience=ANSWER_SECONDS)
    assert (answers > 0) == (len(received) > len(without))


def test_mutated_requests_are_answered_or_end_the_connection(broker: BrokerProcess, target: Target) -> None:
    broker.forget_peak()
    before = broker.resident_bytes()
    waited = 0

    def send_some(random: Random) -> None:
        nonlocal waited
        frames = []
        for _ in range(random.randint(1, 5)):
            frame = valid_frame(*random.choice(VERSIONS), target, random)
            frames.append(mutated(frame, random) if random.random() < 0.8 else frame)
        is_settled, _ = exchange(broker.address, b"".join(frames))
        waited += not is_settled

    with Bystander(broker.address) as bystander:
        rounds = repeat(send_some, FUZZ_SECONDS)
    print(f"{rounds} connections, {waited} of which waited; grown by {broker.peak_bytes() - before >> 20} MiB")
    assert [] == broker.alarms()
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX
    assert waited < rounds / 2, "most requests must be answered or refused, not waited for"
    bystander.check()
