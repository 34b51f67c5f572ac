"""Admin requests about ACLs: create, describe, delete."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.client.admin.acls import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.errors import OttlaError
from ottla.protocol.apis import ApiKey


async def create_acls(cluster: Cluster, acls: Sequence[ACL]) -> dict[ACL, OttlaError]:
    """Creates ACLs, of which none may be listed twice; returns those that were refused."""
    from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
    from kio.static.primitive import i8

    message = CreateAclsRequest(
        creations=tuple(
            AclCreation(
                resource_type=i8(acl.resource_pattern.resource_type),
                resource_name=acl.resource_pattern.resource_name,
                resource_pattern_type=i8(acl.resource_pattern.pattern_type),
                principal=acl.principal,
                host=acl.host,
                operation=i8(acl.operation),
                permission_type=i8(acl.permission_type),
            )
            for acl in acls
        )
    )
    response = await cluster.retry(lambda: cluster.to_controller(ApiKey.CREATE_ACLS, message))
    return {
        acl: answer_error(int(result.error_code), f"ACL {acl}", result.error_message)
        for acl, result in zip(acls, response.results, strict=True)
        if result.error_code
    }


async def describe_acls(cluster: Cluster, wanted: ACLFilter) -> list[ACL]:
    """The ACLs that a filter selects, sorted by resource and principal."""
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest

    message = DescribeAclsRequest(**_filter_fields(wanted))

    async def ask() -> list[ACL]:
        response = await cluster.to_controller(ApiKey.DESCRIBE_ACLS, message)
        if response.error_code:
            raise answer_error(int(response.error_code), "ACLs", response.error_message)
        return [_acl(resource, each) for resource in response.resources for each in resource.acls]

    return _sorted(await cluster.retry(ask))


async def delete_acls(
    cluster: Cluster, filters: Sequence[ACLFilter]
) -> tuple[dict[ACLFilter, list[ACL]], Mapping[ACLFilter, OttlaError]]:
    """Deletes what the filters select: (deleted ACLs by filter, the filters that failed)."""
    from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest

    message = DeleteAclsRequest(filters=tuple(DeleteAclsFilter(**_filter_fields(each)) for each in filters))
    response = await cluster.retry(lambda: cluster.to_controller(ApiKey.DELETE_ACLS, message))
    deleted: dict[ACLFilter, list[ACL]] = {}
    failed: dict[ACLFilter, OttlaError] = {}
    for wanted, result in zip(filters, response.filter_results, strict=True):
        errors = [each for each in (result, *result.matching_acls) if each.error_code]
        if errors:
            failed[wanted] = answer_error(int(errors[0].error_code), "deleting ACLs", errors[0].error_message)
        else:
            deleted[wanted] = _sorted(_acl(each, each) for each in result.matching_acls)
    return deleted, failed


def _filter_fields(wanted: ACLFilter) -> dict[str, Any]:
    from kio.static.primitive import i8

    return {
        "resource_type_filter": i8(wanted.resource_pattern.resource_type),
        "resource_name_filter": wanted.resource_pattern.resource_name,
        "pattern_type_filter": i8(wanted.resource_pattern.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": i8(wanted.operation),
        "permission_type": i8(wanted.permission_type),
    }


def _acl(resource: Any, found: Any) -> ACL:
    return ACL(
        principal=found.principal,
        host=found.host,
        operation=ACLOperation(int(found.operation)),
        permission_type=ACLPermissionType(int(found.permission_type)),
        resource_pattern=ResourcePattern(
            ACLResourceType(int(resource.resource_type)),
            resource.resource_name,
            ACLResourcePatternType(int(resource.pattern_type)),
        ),
    )


def _sorted(acls: Iterable[ACL]) -> list[ACL]:
    return sorted(
        acls,
        key=lambda acl: (
            acl.resource_pattern.resource_type,
            acl.resource_pattern.resource_name,
            acl.resource_pattern.pattern_type,
            acl.principal,
            acl.host,
            acl.permission_type,
            acl.operation,
        ),
    )
