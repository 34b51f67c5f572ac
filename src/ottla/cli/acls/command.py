"""`ottla acls`: adds, lists and removes ACLs, and checks what they allow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.acls.options import (
    AccessOptions,
    AllowHosts,
    AllowPrincipals,
    DenyHosts,
    DenyPrincipals,
    FilterType,
    Groups,
    OfCluster,
    Operations,
    PatternType,
    Principals,
    ResourceOptions,
    Subjects,
    Tokens,
    Topics,
    TransactionalIds,
    Users,
    parse_operations,
)
from ottla.cli.command_runner import ExitStatus, application, examples, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, UsageError
from ottla.cli.output import human_count, print_json, print_list, say, say_errors, tell

if TYPE_CHECKING:
    from ottla.client.admin.acls import ACL
    from ottla.client.network.cluster import Cluster

app = application("Add, list and remove access control lists (ACLs), and check what they allow.")

_COLUMNS: Final = {
    "resource": "resource_type",
    "name": "resource_name",
    "pattern": "pattern_type",
    "principal": "principal",
    "host": "host",
    "operation": "operation",
    "permission": "permission_type",
}
_SHOWN_BEFORE_REMOVAL_MAX: Final = 20

Producer = Annotated[
    bool, typer.Option("--producer", help="Everything that a producer needs: Write, Describe and Create on --topic.")
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="Everything that a consumer needs: Read on --topic and --group.")
]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: also IdempotentWrite on the cluster, for old brokers.")
]


@app.command(
    "add",
    epilog=examples(
        "ottla acls add --allow-principal User:alice --operation Read,Write --topic events",
        "ottla acls add --allow-principal User:app --producer --topic app. --resource-pattern-type prefixed",
        "ottla acls add --allow-principal User:app --consumer --topic events --group app",
        "ottla acls add --deny-principal User:* --deny-host 10.9.0.0/16 --operation All --topic '*'",
    ),
)
def add(
    allow_principal: AllowPrincipals = None,
    deny_principal: DenyPrincipals = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: OfCluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    subject: Subjects = None,
    resource_pattern_type: PatternType = "literal",
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Add ACLs: one for each resource, principal, host and operation. Those that exist stay as they are."""
    access = AccessOptions(
        allow_principals=allow_principal,
        deny_principals=deny_principal,
        allow_hosts=allow_host,
        deny_hosts=deny_host,
    )
    access.check()
    if not (allow_principal or deny_principal):
        raise UsageError("pass --allow-principal or --deny-principal")
    resources = ResourceOptions(
        topics=topic,
        groups=group,
        cluster=cluster,
        transactional_ids=transactional_id,
        tokens=delegation_token,
        users=user_principal,
        subjects=subject,
    )
    acls = _wanted(
        access,
        resources,
        operation,
        resource_pattern_type,
        producer=producer,
        consumer=consumer,
        idempotent=idempotent,
    )

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.acl_requests import create_acls

        refused = await create_acls(cluster, acls)
        created = [acl for acl in acls if acl not in refused]
        if as_json:
            print_json([_document(acl) for acl in created])
        else:
            tell(*(f"added: {acl}" for acl in created))
        say_errors(refused.values())
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


def _wanted(
    access: AccessOptions,
    resources: ResourceOptions,
    operation: Sequence[str] | None,
    pattern_type: str,
    *,
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> "list[ACL]":
    from ottla.cli.acls.conveniences import needs
    from ottla.client.admin.acls import ACLOperation

    operations = parse_operations(operation)
    if producer or consumer or idempotent:
        if operations:
            raise UsageError("--producer and --consumer choose the operations; omit --operation")
        wanted = needs(resources, pattern_type, producer=producer, consumer=consumer, idempotent=idempotent)
    else:
        wanted = [(pattern, operations or [ACLOperation.ALL]) for pattern in resources.patterns(pattern_type)]
    if not wanted:
        raise UsageError("pass a resource: --topic, --group, --cluster, --transactional-id, ...")
    return list(dict.fromkeys(acl for pattern, chosen in wanted for acl in access.acls(chosen, pattern)))


@app.command(
    "list",
    epilog=examples(
        "ottla acls list",
        "ottla acls list --topic events --resource-pattern-type match",
        "ottla acls list --principal User:alice",
    ),
)
def list_acls(
    principal: Principals = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: OfCluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    subject: Subjects = None,
    resource_pattern_type: FilterType = "any",
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List ACLs: all, or those of some resources and principals."""
    from ottla.client.admin.acls import ACLFilter, ACLOperation

    resources = ResourceOptions(
        topics=topic,
        groups=group,
        cluster=cluster,
        transactional_ids=transactional_id,
        tokens=delegation_token,
        users=user_principal,
        subjects=subject,
    )
    wanted_principals: Sequence[str | None] = principal or [None]
    filters = [
        ACLFilter(who, None, what, resource_pattern=pattern)
        for pattern in resources.filters(resource_pattern_type)
        for who in wanted_principals
        for what in parse_operations(operation) or [ACLOperation.ANY]
    ]

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.acl_requests import describe_acls

        found = dict.fromkeys([acl for each in filters for acl in await describe_acls(cluster, each)])
        print_list([_document(acl) for acl in found], _COLUMNS, as_json=as_json)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "remove",
    epilog=examples(
        "ottla acls remove --allow-principal User:alice --operation Write --topic events",
        "ottla acls remove --topic events",
    ),
)
def remove(
    allow_principal: AllowPrincipals = None,
    deny_principal: DenyPrincipals = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: OfCluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    subject: Subjects = None,
    resource_pattern_type: FilterType = "literal",
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Remove the ACLs of a resource: all, or those of some principals, hosts and operations."""
    access = AccessOptions(
        allow_principals=allow_principal,
        deny_principals=deny_principal,
        allow_hosts=allow_host,
        deny_hosts=deny_host,
    )
    access.check()
    resources = ResourceOptions(
        topics=topic,
        groups=group,
        cluster=cluster,
        transactional_ids=transactional_id,
        tokens=delegation_token,
        users=user_principal,
        subjects=subject,
    )
    if not (list(resources.names()) or allow_principal or deny_principal):
        raise UsageError("pass a resource or a principal; `ottla acls list` shows all ACLs")
    operations = parse_operations(operation)
    filters = [
        each for pattern in resources.filters(resource_pattern_type) for each in access.filters(operations, pattern)
    ]

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.acl_requests import delete_acls, describe_acls

        found = list(dict.fromkeys([acl for each in filters for acl in await describe_acls(cluster, each)]))
        if not found:
            say("no ACL matches; nothing was removed")
            if as_json:
                print_json([])
            return ExitStatus.DONE
        if not yes:
            say(*(f"  {acl}" for acl in found[:_SHOWN_BEFORE_REMOVAL_MAX]))
            if len(found) > _SHOWN_BEFORE_REMOVAL_MAX:
                say(f"  and {len(found) - _SHOWN_BEFORE_REMOVAL_MAX} more")
        confirm(f"Remove {human_count(len(found), 'ACL')}?", yes=yes)
        deleted, failed = await delete_acls(cluster, list(dict.fromkeys(filters)))
        removed = list(dict.fromkeys(acl for each in deleted.values() for acl in each))
        if as_json:
            print_json([_document(acl) for acl in removed])
        else:
            tell(*(f"removed: {acl}" for acl in removed))
        say_errors(failed.values())
        return ExitStatus.REFUSED if failed else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "check",
    epilog=examples(
        "ottla acls check --principal User:alice --operation Read --topic events",
        "ottla acls check --principal User:app --operation Write --topic events --host 10.1.2.3 --json",
    ),
)
def check(
    principal: Annotated[str, typer.Option("--principal", metavar="TYPE:NAME", help="Principal.", show_default=False)],
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: OfCluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    subject: Subjects = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address of the client.")] = "127.0.0.1",
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Check whether the ACLs allow an operation, and show which of them decide.

    The exit status is 1 if an operation is not allowed. Super users (super.users of the brokers) may do everything
    regardless of ACLs; this command does not know them.
    """
    resources = ResourceOptions(
        topics=topic,
        groups=group,
        cluster=cluster,
        transactional_ids=transactional_id,
        tokens=delegation_token,
        users=user_principal,
        subjects=subject,
    )
    operations = parse_operations(operation)
    names = list(resources.names())
    if not names or not operations:
        raise UsageError("pass --operation and a resource: --topic, --group, --cluster, --transactional-id, ...")
    if ":" not in principal:
        raise UsageError(f"principal {principal!r} must have the form Type:name, as User:{principal}")

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.acl_requests import describe_acls
        from ottla.client.admin.acls import ACLFilter, ACLResourcePatternType, ResourcePatternFilter
        from ottla.operations.security.acl_decision import Question, decide
        from ottla.operations.security.acl_words import spelled_operation
        from ottla.security.acl_index import Verdict
        from ottla.security.resources import Operation, ResourceType

        documents: list[dict[str, Any]] = []
        for kind, name in names:
            pattern = ResourcePatternFilter(kind, name, ACLResourcePatternType.MATCH)
            acls = await describe_acls(cluster, ACLFilter(resource_pattern=pattern))
            for each in operations:
                question = Question(
                    principal=principal,
                    host=host,
                    operation=Operation(int(each)),
                    resource_type=ResourceType(int(kind)),
                    name=name,
                )
                found = decide(acls, question)
                documents.append(
                    {
                        "principal": principal,
                        "host": host,
                        "operation": spelled_operation(each),
                        "resource_type": kind.name.lower(),
                        "resource_name": name,
                        "verdict": found.verdict.value,
                        "because": [_document(acl) for acl in found.because],
                    }
                )
                if not as_json:
                    tell(f"{found.verdict.value}: {spelled_operation(each)} on {kind.name.lower()} {name}")
                    tell(*(f"  {acl}" for acl in found.because))
                    if found.verdict is Verdict.NOT_COVERED:
                        tell("  no ACL covers the resource: denied, unless allow.everyone.if.no.acl.found is true")
        if as_json:
            print_json(documents)
        is_allowed = all(each["verdict"] == Verdict.ALLOWED.value for each in documents)
        return ExitStatus.DONE if is_allowed else ExitStatus.REFUSED

    run_with_cluster(bootstrap, profile, work)


def _document(acl: "ACL") -> dict[str, str]:
    from ottla.operations.security.acl_words import spelled_operation

    pattern = acl.resource_pattern
    return {
        "resource_type": pattern.resource_type.name.lower(),
        "resource_name": pattern.resource_name,
        "pattern_type": pattern.pattern_type.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": spelled_operation(acl.operation),
        "permission_type": acl.permission_type.name.lower(),
    }
