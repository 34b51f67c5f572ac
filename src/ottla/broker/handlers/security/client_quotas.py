"""DescribeClientQuotas and AlterClientQuotas. The rules are in `ottla.security.quota_rules`."""

from collections.abc import Iterable

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntryData as AlteredEntry
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.alter_client_quotas.v1.response import EntityData as AnsweredEntity
from kio.schema.alter_client_quotas.v1.response import EntryData as Answer
from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kio.static.primitive import f64

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.quota_entity import QuotaEntity
from ottla.security.quota_rules import check_quota_key, checked_quota, entity_parts, quota_entity, quota_filter
from ottla.security.resources import Operation


def describe_client_quotas(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that the filter selects."""
    try:
        context.check_cluster(Operation.DESCRIBE_CONFIGS)
        wanted = quota_filter(
            [(each.entity_type, each.match_type, each.match) for each in request.components], strict=request.strict
        )
    except OttlaError as error:
        return DescribeClientQuotasResponse(
            throttle_time=milliseconds(0),
            error_code=wire_error(error.code),
            error_message=str(error),
            entries=None,
        )
    return DescribeClientQuotasResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(ErrorCode.NONE),
        error_message=None,
        entries=tuple(
            EntryData(
                entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity_parts(entity)),
                values=tuple(ValueData(key=key, value=f64(value)) for key, value in quotas.items()),
            )
            for entity, quotas in services.image.client_quotas.items()
            if wanted.matches(entity)
        ),
    )


async def alter_client_quotas(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Sets and removes quotas; entities whose change is not valid leave the others alone."""
    errors: list[OttlaError | None] = [None] * len(request.entries)
    try:
        context.check_cluster(Operation.ALTER_CONFIGS)
        changes: dict[QuotaEntity, dict[str, float | None]] = {}
        for place, entry in enumerate(request.entries):
            try:
                entity, change = _change(entry)
                changes.setdefault(entity, {}).update(change)
            except InvalidRequestError as error:
                errors[place] = error
        if changes and not request.validate_only:
            await services.wait_revision(await services.controller.alter_client_quotas(changes))
    except OttlaError as error:
        errors = [known or error for known in errors]
    return _answered(zip(request.entries, errors, strict=True))


def _change(entry: AlteredEntry) -> tuple[QuotaEntity, dict[str, float | None]]:
    entity = quota_entity([(each.entity_type, each.entity_name) for each in entry.entity])
    change: dict[str, float | None] = {}
    for each in entry.ops:
        if each.key in change:
            raise InvalidRequestError(f"the quota {each.key[:100]!r} is changed twice")
        if each.remove:
            check_quota_key(entity, each.key)
        change[each.key] = None if each.remove else checked_quota(entity, each.key, each.value)
    return entity, change


def _answered(entries: Iterable[tuple[AlteredEntry, OttlaError | None]]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        throttle_time=milliseconds(0),
        entries=tuple(
            Answer(
                error_code=wire_error(ErrorCode.NONE if error is None else error.code),
                error_message=None if error is None else str(error),
                entity=tuple(
                    AnsweredEntity(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
                ),
            )
            for entry, error in entries
        ),
    )
