"""CreateAcls, DescribeAcls and DeleteAcls. Without an authorizer they answer SECURITY_DISABLED, as Kafka does.

What ACLs mean is in `ottla.security.acls`; any broker commits them, and every broker decides by its image.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kio.static.primitive import i8

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.acls import AclBinding, AclFilter, FilterPatternType, PatternType, Permission
from ottla.security.resources import Operation, ResourceType

_ANY: Final = 1
"""The number of a filter's type, operation or permission that accepts all."""
_CREATED_MAX: Final = 10_000
"""Kafka's limit of one request."""

E = TypeVar("E", ResourceType, Operation, Permission, PatternType, FilterPatternType)


class NoAuthorizerError(InvalidRequestError):
    """The broker has no authorizer, so that ACLs have no meaning."""

    code = ErrorCode.SECURITY_DISABLED


def _check_authorizer(services: Services) -> None:
    if services.authorizer.allows_all:
        raise NoAuthorizerError("no authorizer is configured; set authorizer.class.name on all brokers")


# CreateAcls


async def create_acls(services: Services, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Adds the ACLs that are valid; one that exists already is a success."""
    results: list[OttlaError | None] = []
    try:
        context.check_cluster(Operation.ALTER)
        _check_authorizer(services)
        if len(request.creations) > _CREATED_MAX:
            raise InvalidRequestError(f"one request may create at most {_CREATED_MAX} ACLs; send several requests")
        bindings = []
        for creation in request.creations:
            try:
                bindings.append(_binding(creation))
                results.append(None)
            except InvalidRequestError as error:
                results.append(error)
        if bindings:
            await services.wait_revision(await services.controller.create_acls(bindings))
    except OttlaError as error:
        results = [error if done is None else done for done in results] or [error] * len(request.creations)
    return CreateAclsResponse(
        throttle_time=milliseconds(0),
        results=tuple(
            AclCreationResult(
                error_code=wire_error(ErrorCode.NONE if error is None else error.code),
                error_message=None if error is None else str(error),
            )
            for error in results
        ),
    )


def _binding(creation: AclCreation) -> AclBinding:
    """Raises InvalidRequestError unless the ACL is valid."""
    binding = AclBinding(
        resource_type=_parse(ResourceType, creation.resource_type, "resource type"),
        pattern_type=_parse(PatternType, creation.resource_pattern_type, "pattern type"),
        name=creation.resource_name,
        principal=creation.principal,
        host=creation.host,
        operation=_parse(Operation, creation.operation, "operation"),
        permission=_parse(Permission, creation.permission_type, "permission type"),
    )
    binding.check()
    return binding


# DescribeAcls


def describe_acls(services: Services, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The ACLs that the filter selects, by resource."""
    found: dict[tuple[ResourceType, PatternType, str], list[AclBinding]] = {}
    code, message = ErrorCode.NONE, None
    try:
        context.check_cluster(Operation.DESCRIBE)
        _check_authorizer(services)
        wanted = _filter(request)
        for each in _sorted([each for each in services.image.acls if wanted.matches(each)]):
            found.setdefault((each.resource_type, each.pattern_type, each.name), []).append(each)
    except OttlaError as error:
        code, message = error.code, str(error)
    return DescribeAclsResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(code),
        error_message=message,
        resources=tuple(
            DescribeAclsResource(
                resource_type=i8(resource_type),
                resource_name=name,
                pattern_type=i8(pattern_type),
                acls=tuple(
                    AclDescription(
                        principal=each.principal,
                        host=each.host,
                        operation=i8(each.operation),
                        permission_type=i8(each.permission),
                    )
                    for each in bindings
                ),
            )
            for (resource_type, pattern_type, name), bindings in found.items()
        ),
    )


# DeleteAcls


async def delete_acls(services: Services, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Removes the ACLs that any filter selects, and tells for each filter which."""
    results: list[DeleteAclsFilterResult | None] = [None] * len(request.filters)
    try:
        context.check_cluster(Operation.ALTER)
        _check_authorizer(services)
        filters: dict[int, AclFilter] = {}
        for place, asked in enumerate(request.filters):
            try:
                filters[place] = _filter(asked)
            except InvalidRequestError as error:
                results[place] = _failed(error)
        if filters:
            deleted = await services.controller.delete_acls(list(filters.values()))
            await services.wait_revision(deleted.revision)
            for place, bindings in zip(filters, deleted.outcomes, strict=True):
                results[place] = _deleted(bindings)
    except OttlaError as error:
        results = [result or _failed(error) for result in results]
    return DeleteAclsResponse(
        throttle_time=milliseconds(0), filter_results=tuple(result for result in results if result is not None)
    )


def _deleted(bindings: Sequence[AclBinding]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=wire_error(ErrorCode.NONE),
        error_message=None,
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                error_code=wire_error(ErrorCode.NONE),
                error_message=None,
                resource_type=i8(each.resource_type),
                resource_name=each.name,
                pattern_type=i8(each.pattern_type),
                principal=each.principal,
                host=each.host,
                operation=i8(each.operation),
                permission_type=i8(each.permission),
            )
            for each in _sorted(bindings)
        ),
    )


def _failed(error: OttlaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=wire_error(error.code), error_message=str(error), matching_acls=())


# Filters


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Raises InvalidRequestError for numbers that Kafka does not know."""
    return AclFilter(
        resource_type=_parse_filter(ResourceType, asked.resource_type_filter, "resource type"),
        pattern_type=_parse(FilterPatternType, asked.pattern_type_filter, "pattern type"),
        name=asked.resource_name_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=_parse_filter(Operation, asked.operation, "operation"),
        permission=_parse_filter(Permission, asked.permission_type, "permission type"),
    )


def _parse_filter(kind: type[E], number: int, what: str) -> E | None:
    return None if number == _ANY else _parse(kind, number, what)


def _parse(kind: type[E], number: int, what: str) -> E:
    try:
        return kind(number)
    except ValueError as error:
        allowed = ", ".join(f"{each.value} ({each.name})" for each in kind)
        raise InvalidRequestError(f"{what} {number} is not valid here; it must be one of {allowed}") from error


def _sorted(bindings: Sequence[AclBinding]) -> list[AclBinding]:
    return sorted(
        bindings,
        key=lambda each: (
            each.resource_type,
            each.name,
            each.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission,
        ),
    )
