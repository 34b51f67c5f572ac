"""The controller mutation quota of one request: partitions that it creates or deletes.

Clients that know the error code are refused, topic by topic, while their bucket is in debt. Older clients are only
throttled afterwards.
"""

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.decisions import TopicOutcome
from ottla.model.error_codes import ErrorCode


class MutationQuota:
    """Counts the partitions of one request, from version `strict_since` of its API on strictly."""

    def __init__(self, services: Services, context: RequestContext, *, strict_since: int) -> None:
        self._quotas = services.quotas
        self._context = context
        self._is_strict = context.version >= strict_since
        self._counted: dict[object, int] = {}
        self.throttle_ms = 0
        """The longest throttle time so far."""

    def refusal(self, key: object, name: str | None, partition_count: int) -> TopicOutcome | None:
        """Counts the partitions of one topic; the outcome if the quota does not allow them."""
        if self._quotas.is_unlimited or partition_count <= 0:
            return None
        context = self._context
        may, throttle_ms = self._quotas.mutate(
            context.connection, context.client_id, partition_count, is_strict=self._is_strict
        )
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        if may:
            self._counted[key] = partition_count
            return None
        return TopicOutcome(
            name=name,
            error=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            message=f"the controller_mutation_rate quota is exceeded; retry in {throttle_ms} ms",
        )

    def take_back(self, key: object) -> None:
        """The topic's change has failed for another reason: its partitions do not count."""
        count = self._counted.pop(key, 0)
        if count:
            self._quotas.take_back_mutations(self._context.connection, self._context.client_id, count)
