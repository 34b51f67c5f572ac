"""Creates the repartition and changelog topics that the topology of a streams group needs, for the member that asked.

The client needs CREATE on the cluster or on each topic, and its mutation quota counts. What cannot be created is
reported in the status that says that topics are missing; the next heartbeats try again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ottla.broker.handlers.topics.mutation_quota import MutationQuota
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.decisions import NewTopic
from ottla.coordination.groups.streams.requests import Status, StatusCode, StreamsHeartbeatResponse
from ottla.coordination.groups.streams.topology import InternalTopic
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.security.resources import Operation, ResourceType

_DEFAULT_COUNT = -1


async def create_missing_topics(
    services: Services, context: RequestContext, answer: StreamsHeartbeatResponse
) -> StreamsHeartbeatResponse:
    """Creates the missing topics of an answer; returns it with what went wrong."""
    topics = [topic for topic in answer.missing_topics if topic.name not in services.image.topics]
    if not topics:
        return answer
    denied = []
    if not context.sees_cluster(Operation.CREATE):
        denied = [
            topic.name for topic in topics if not context.allows(Operation.CREATE, ResourceType.TOPIC, topic.name)
        ]
    if denied:
        return _with_detail(answer, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
    failures = await _create(services, context, topics)
    if failures:
        return _with_detail(answer, f"Creation failed: {', '.join(failures)}.")
    return answer


async def _create(services: Services, context: RequestContext, topics: Sequence[InternalTopic]) -> list[str]:
    """Creates topics; returns those that failed, each with the reason."""
    quota = MutationQuota(services, context, strict_since=0)
    failures = {}
    wanted = []
    for topic in topics:
        refusal = quota.refusal(topic.name, topic.name, topic.partitions)
        if refusal is not None:
            failures[topic.name] = refusal.message
            continue
        wanted.append(
            NewTopic(
                name=topic.name,
                partition_count=topic.partitions,
                replication_factor=topic.replication_factor or _DEFAULT_COUNT,
                configs=dict(topic.configs),
            )
        )
    try:
        made = await services.controller.create_topics(wanted)
        async with asyncio.timeout(services.config.request_timeout_ms / 1000):
            await services.wait_revision(made.revision)
    except (OttlaError, TimeoutError) as error:
        failures |= dict.fromkeys((topic.name for topic in wanted), str(error) or "timed out")
    else:
        for outcome in made.outcomes:
            # Another member's heartbeat may have created it at the same time.
            if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) and outcome.name is not None:
                failures[outcome.name] = outcome.message or outcome.error.name
    for name in failures:
        quota.take_back(name)
    return [f"{name} ({why})" for name, why in failures.items()]


def _with_detail(answer: StreamsHeartbeatResponse, detail: str) -> StreamsHeartbeatResponse:
    code = StatusCode.MISSING_INTERNAL_TOPICS
    statuses = [
        Status(code, f"{status.detail}; {detail}") if status.code is code else status for status in answer.statuses
    ]
    return replace(answer, statuses=tuple(statuses))
