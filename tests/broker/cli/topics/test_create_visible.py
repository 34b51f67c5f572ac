"""`ottla topics create` on a cluster whose brokers show a new topic later than its controller has created it."""

import asyncio
from itertools import chain, repeat
from typing import Any, Final

from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import write_response
from ottla.transport.addresses import Address
from tests.broker.client.scripted_broker import response, scripted, versions_answer
from tests.processes import OTTLA, run

BROKER: Final = 5
HIDDEN: Final = {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": "new", "partitions": []}
LEADERLESS: Final = {"partition_index": 0, "leader_id": -1, "error_code": ErrorCode.LEADER_NOT_AVAILABLE}
ELECTING: Final = {"error_code": ErrorCode.NONE, "name": "new", "partitions": [LEADERLESS]}
VISIBLE: Final = {
    "error_code": ErrorCode.NONE,
    "name": "new",
    "partitions": [{"partition_index": 0, "leader_id": BROKER, "replica_nodes": [BROKER], "isr_nodes": [BROKER]}],
}
FORBIDDEN: Final = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "name": "new", "partitions": []}


async def create(*shown: dict[str, Any]) -> tuple[int | None, str, list[ApiKey]]:
    """Exit status, output, and the requests behind the creation; each Metadata for the topic answers the next of
    `shown`, and in the end the last."""
    here: list[Address] = []
    asked: list[ApiKey] = []
    described = chain(shown, repeat(shown[-1]))

    def answer(api_key: int, version: int, correlation_id: int, _: bytes) -> bytes:
        key = ApiKey(api_key)
        if key is ApiKey.API_VERSIONS:
            return versions_answer(version, correlation_id)
        is_created = ApiKey.CREATE_TOPICS in asked
        asked.append(key)
        if key is ApiKey.CREATE_TOPICS:
            made = {"name": "new", "num_partitions": 1, "replication_factor": 1, "error_code": ErrorCode.NONE}
            return write_response(key, version, correlation_id, response(key, 7, topics=[made]))
        assert key is ApiKey.METADATA
        broker = {"node_id": BROKER, "host": here[0].host, "port": here[0].port}
        topics = [next(described)] if is_created else []
        found = response(key, 13, brokers=[broker], cluster_id="c", controller_id=BROKER, topics=topics)
        return write_response(key, version, correlation_id, found)

    async with scripted(answer) as (_, address):
        here.append(address)
        command = [*OTTLA, "topics", "create", "new", "--bootstrap", f"{address.host}:{address.port}"]
        done = await asyncio.to_thread(run, command, status=None)
    return done.returncode, done.stdout + done.stderr, asked[asked.index(ApiKey.CREATE_TOPICS) + 1 :]


async def test_returns_when_the_brokers_show_it() -> None:
    status, printed, asked = await create(HIDDEN, HIDDEN, ELECTING, VISIBLE)
    assert (0, "created topic new with 1 partition\n") == (status, printed)
    assert [ApiKey.METADATA] * 4 == asked


async def test_whoever_may_create_but_not_describe_does_not_wait() -> None:
    status, printed, asked = await create(FORBIDDEN)
    assert (0, "created topic new with 1 partition\n") == (status, printed)
    assert [ApiKey.METADATA] == asked
